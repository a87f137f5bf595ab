//! The tokens this service shows to its neighbours: short-lived, so a leaked one is soon worthless.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use onsale_types::{Clock, Timestamp};
use parking_lot::Mutex;

use super::{
    MeshConfig, jwt,
    keys::{KeyError, SigningKey},
};

/// Issuer and audience of tokens between services.
pub const MESH: &str = "onsale-mesh";

/// Makes this service's tokens, and remembers the newest until half of its life has passed.
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
    /// From here on a new one is made.
    renew_time: Timestamp,
}

impl ServiceTokens {
    /// Tokens of `service`, signed with the mesh's key.
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

    /// The value of the `authorization` header for a call to a neighbour.
    pub fn bearer(&self) -> HeaderValue {
        let now = self.clock.now();
        let mut cached = self.cached.lock();
        match cached.as_ref() {
            // A clock that was set back makes a new one too: the old one would not be valid yet.
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
        // A token is base64url and dots, which is always a valid header; an empty one would be refused by the far side.
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
