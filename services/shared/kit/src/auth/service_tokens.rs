//! Tokens that this service presents to other services. They live for `auth.mesh.token_lifetime`, 60 s by default.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use onsale_types::{Clock, Timestamp};
use parking_lot::Mutex;

use super::{
    MeshConfig, jwt,
    keys::{KeyError, SigningKey},
};

/// Issuer and audience of the tokens between services.
pub const MESH: &str = "onsale-mesh";

/// Signs this service's tokens and caches the newest one for half of its lifetime.
pub struct ServiceTokens {
    service: String,
    key: SigningKey,
    key_id: String,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    bearer: HeaderValue,
    issue_time: Timestamp,
    /// Time from which a new token is signed.
    renew_time: Timestamp,
}

impl ServiceTokens {
    /// Creates the tokens of `service`, signed with the mesh's key.
    pub fn new(service: &str, config: &MeshConfig, clock: Arc<dyn Clock>) -> Result<Self, KeyError> {
        let key = config.signing_key()?;
        let key_id = config.keys()?.id_of(key.public_key()).ok_or(KeyError::NotInKeySet)?.to_owned();
        Ok(Self {
            service: service.to_owned(),
            key,
            key_id,
            lifetime: config.token_lifetime,
            clock,
            cached: Mutex::new(None),
        })
    }

    /// Returns the value of the `authorization` header for a call to another service.
    pub fn bearer(&self) -> HeaderValue {
        let now = self.clock.now();
        let mut cached = self.cached.lock();
        match cached.as_ref() {
            // A clock that was set back also makes a new token: the cached one would not be valid yet.
            Some(token) if (token.issue_time..token.renew_time).contains(&now) => token.bearer.clone(),
            Some(_) | None => {
                let token = self.sign(now);
                let bearer = token.bearer.clone();
                *cached = Some(token);
                bearer
            }
        }
    }

    fn sign(&self, now: Timestamp) -> CachedToken {
        let expiry = now.checked_add(self.lifetime).unwrap_or(now);
        let (issued_at, _) = now.to_seconds_and_nanos();
        let (expires_at, _) = expiry.to_seconds_and_nanos();
        let claims = serde_json::json!({
            "iss": MESH,
            "aud": MESH,
            "sub": self.service,
            "roles": ["SERVICE"],
            "iat": issued_at,
            "exp": expires_at,
        });
        let token = jwt::sign(&self.key, &self.key_id, &claims);
        // Base64url and dots always form a valid header. An empty one would be refused by the callee.
        let mut bearer =
            HeaderValue::try_from(format!("Bearer {token}")).unwrap_or(HeaderValue::from_static(""));
        bearer.set_sensitive(true);
        CachedToken { bearer, issue_time: now, renew_time: now.checked_add(self.lifetime / 2).unwrap_or(now) }
    }
}

impl std::fmt::Debug for ServiceTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServiceTokens").field("service", &self.service).finish_non_exhaustive()
    }
}
