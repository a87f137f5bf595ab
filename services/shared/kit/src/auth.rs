//! Authentication and access by role.
//!
//! A token is a JWT that is signed by an issuer from the settings. The server verifies it once per call (and caches the
//! result), compares its roles with those of the method's access option, and stores the [`Identity`] in the request's
//! extensions, where a handler reads it with [`identity`]. Access to single resources (a caller's own claim or event) is
//! checked by the handler's first line, not here.

use std::sync::Arc;

use onsale_proto::r#type::v1::ErrorReason;
use onsale_types::{CustomerId, OrganizerId, Timestamp};
use uuid::Uuid;

use crate::{
    contract::RoleSet,
    error::{Kind, Reason, ServiceError, to_status},
};

pub use self::{
    config::{AuthConfig, GrantedRole, IssuerConfig, KeyFetchConfig, MeshConfig},
    jwt::TokenFault,
    keys::{KeyError, KeySet, SigningKey},
    service_tokens::{MESH, ServiceTokens},
    signed::{SignError, SignedToken, TokenFields, TokenReader, TokenSigner},
    verifier::Verifier,
};

mod config;
mod jwt;
mod keys;
mod published_keys;
mod service_tokens;
mod signed;
mod verifier;

/// Identity of a caller, from its verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The claim `sub`, unique within the issuer. A service's name for a service.
    pub subject: String,
    /// Roles of the token, limited to those that its issuer may grant.
    pub roles: RoleSet,
    /// The claim `iss`.
    pub issuer: Arc<str>,
    /// `None` unless the issuer has verified the address.
    pub email: Option<String>,
    /// Preferred language, for example `hr`.
    pub locale: Option<String>,
    /// Preferred name, from the claim `name`.
    pub display_name: Option<String>,
    /// End of the token's validity, without leeway.
    pub expiry: Timestamp,
}

impl Identity {
    /// Derives the caller's id as a customer, always the same for the same issuer and subject. Any form of subject works.
    #[must_use]
    pub fn customer_id(&self) -> CustomerId {
        CustomerId::from_uuid(self.derive("customer"))
    }

    /// Derives the caller's id as an organizer.
    #[must_use]
    pub fn organizer_id(&self) -> OrganizerId {
        OrganizerId::from_uuid(self.derive("organizer"))
    }

    /// Hashes issuer and subject. The length before the issuer keeps different pairs with equal concatenations apart.
    fn derive(&self, kind: &str) -> Uuid {
        let name = format!("{kind}:{}:{}{}", self.issuer.len(), self.issuer, self.subject);
        Uuid::new_v5(&PEOPLE, name.as_bytes())
    }
}

/// Namespace of the UUIDs derived from identities.
const PEOPLE: Uuid = Uuid::from_u128(0x9d1f_6c3e_5a0b_4b6e_9a57_0c1d_52f3_7e21);

/// Returns the caller of this request, or an error if the method is open to anyone and the call carries no token.
pub fn identity<T>(request: &tonic::Request<T>) -> Result<&Identity, AuthError> {
    request.extensions().get::<Arc<Identity>>().map(Arc::as_ref).ok_or(AuthError::TokenMissing)
}

/// The cause of a refused call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The call carries no token, and the method needs one.
    #[error("the call needs a token")]
    TokenMissing,
    /// The token is malformed, forged or outside its validity.
    #[error("the token is not accepted: {0}")]
    TokenInvalid(TokenFault),
    /// The issuer is known, but its keys could not be fetched yet.
    #[error("the keys of {issuer} are not known yet")]
    KeysUnavailable {
        /// Name of the issuer in the settings.
        issuer: Arc<str>,
    },
    /// The token is valid, but none of its roles may call the method.
    #[error("none of the caller's roles may call this method")]
    RoleMissing,
}

impl From<TokenFault> for AuthError {
    fn from(fault: TokenFault) -> Self {
        Self::TokenInvalid(fault)
    }
}

impl ServiceError for AuthError {
    fn kind(&self) -> Kind {
        match self {
            Self::TokenMissing | Self::TokenInvalid(_) => Kind::Unauthenticated,
            Self::KeysUnavailable { .. } => Kind::Unavailable,
            Self::RoleMissing => Kind::Forbidden,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::TokenMissing => ErrorReason::TokenMissing.into(),
            Self::TokenInvalid(_) => ErrorReason::TokenInvalid.into(),
            Self::KeysUnavailable { .. } => ErrorReason::DependencyUnavailable.into(),
            Self::RoleMissing => ErrorReason::RoleMissing.into(),
        }
    }
}

impl From<AuthError> for tonic::Status {
    fn from(error: AuthError) -> Self {
        to_status(&error)
    }
}
