//! Who is calling, and whether they may.
//!
//! A token is a JWT signed by an issuer from the settings. The server verifies it once per call (and
//! remembers the verdict), compares its roles with those the contract asks for, and leaves the [`Identity`] with the
//! request, where a handler finds it with [`identity`]. What a caller may reach *within* a method (their own claim,
//! their own event) is the handler's first line, not decided here.

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

/// What a verified token says about its bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who it is, unique within the issuer. For a service: its name.
    pub subject: String,
    /// What they may be, limited to what the issuer may grant.
    pub roles: RoleSet,
    /// Who says so.
    pub issuer: Arc<str>,
    /// Only when the issuer has verified it.
    pub email: Option<String>,
    /// The language they prefer, e.g. `hr`.
    pub locale: Option<String>,
    /// How they like to be called.
    pub display_name: Option<String>,
    /// When the token ends.
    pub expiry: Timestamp,
}

impl Identity {
    /// The caller as a customer. The same for the same issuer and subject, for ever, whatever a subject looks like there.
    #[must_use]
    pub fn customer_id(&self) -> CustomerId {
        CustomerId::from_uuid(self.derive("customer"))
    }

    /// The caller as an organizer.
    #[must_use]
    pub fn organizer_id(&self) -> OrganizerId {
        OrganizerId::from_uuid(self.derive("organizer"))
    }

    /// An id that no other issuer or subject has. Lengths stand before the parts, so that no two splits look the same.
    fn derive(&self, kind: &str) -> Uuid {
        let name = format!("{kind}:{}:{}{}", self.issuer.len(), self.issuer, self.subject);
        Uuid::new_v5(&PEOPLE, name.as_bytes())
    }
}

/// The namespace of ids derived from identities.
const PEOPLE: Uuid = Uuid::from_u128(0x9d1f_6c3e_5a0b_4b6e_9a57_0c1d_52f3_7e21);

/// The caller of this request. An error when the method is open to anyone and the call had no token.
pub fn identity<T>(request: &tonic::Request<T>) -> Result<&Identity, AuthError> {
    request.extensions().get::<Arc<Identity>>().map(Arc::as_ref).ok_or(AuthError::TokenMissing)
}

/// Why a caller was turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There is no token.
    #[error("the call needs a token")]
    TokenMissing,
    /// There is one, and it is not good.
    #[error("the token is not accepted: {0}")]
    TokenInvalid(TokenFault),
    /// Its issuer is one of ours, but its keys could not be fetched yet.
    #[error("the keys of {issuer} are not known yet")]
    KeysUnavailable {
        /// Whose.
        issuer: Arc<str>,
    },
    /// It is good, but its roles are not enough.
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
