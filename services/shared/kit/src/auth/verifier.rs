//! Verifies tokens and caches the valid ones: an Ed25519 check costs more than the rest of an empty call.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION};
use onsale_proto::auth::v1::Role;
use onsale_types::{Clock, Timestamp};
use quick_cache::{Weighter, sync::Cache};

use super::{
    AuthConfig, AuthError, GrantedRole, Identity, IssuerConfig, KeyError, MESH, TokenFault,
    jwt::{Claims, TOKEN_BYTES_MAX, UnverifiedToken},
    keys::KeySet,
    published_keys::PublishedKeys,
};
use crate::{contract::RoleSet, tasks::Tasks};

/// Verifies tokens of the issuers in the settings and of the mesh.
pub struct Verifier {
    issuers: HashMap<String, Issuer>,
    clock: Arc<dyn Clock>,
    /// Holds only tokens that passed every check, so that forgeries cannot evict valid ones.
    verified: Arc<Cache<Box<[u8]>, Arc<Identity>, TokenWeight>>,
}

struct Issuer {
    name: Arc<str>,
    audiences: Vec<String>,
    keys: IssuerKeys,
    roles_claim: String,
    roles_mapping: HashMap<String, Role>,
    roles_always: RoleSet,
    roles_granted: RoleSet,
    leeway: Duration,
}

/// Source of an issuer's keys.
enum IssuerKeys {
    /// Keys from the settings.
    Fixed(Arc<KeySet>),
    /// Keys from the issuer's URL.
    Published(Arc<PublishedKeys>),
}

impl IssuerKeys {
    /// Returns the keys, `None` if they were never fetched.
    fn current(&self) -> Option<Arc<KeySet>> {
        match self {
            Self::Fixed(keys) => Some(Arc::clone(keys)),
            Self::Published(keys) => keys.current(),
        }
    }
}

impl Verifier {
    /// Creates a verifier for the issuers in `config` and the mesh.
    pub fn new(config: &AuthConfig, clock: Arc<dyn Clock>) -> Result<Self, KeyError> {
        let mut issuers = HashMap::from([(MESH.to_owned(), Issuer::mesh(config)?)]);
        for issuer in &config.issuers {
            issuers.insert(issuer.issuer.clone(), Issuer::new(issuer, config)?);
        }
        let bytes_max = config.token_cache_bytes_max;
        let items_estimate = usize::try_from(bytes_max / TokenWeight::TYPICAL).unwrap_or(usize::MAX);
        let verified = Arc::new(Cache::with_weighter(items_estimate, bytes_max, TokenWeight));
        Ok(Self { issuers, clock, verified })
    }

    /// Starts the key fetches of issuers with a URL. Each change of keys clears the cache, because an issuer may have revoked
    /// a key.
    pub(crate) fn start_key_fetch(&self, tasks: &Tasks) {
        for issuer in self.issuers.values() {
            let IssuerKeys::Published(keys) = &issuer.keys else { continue };
            let verified = Arc::clone(&self.verified);
            tasks.spawn("issuer-keys", Arc::clone(keys).run(tasks.token(), move || verified.clear()));
        }
    }

    /// Authorizes a call of a method that is open to `allowed`, and returns the caller's identity. A method that is open to
    /// anyone needs no token (`None`), but a token that is sent must be valid, so that no caller acts under a foreign name.
    /// Waits for at most one key fetch, and only if the token's key is unknown.
    pub async fn authorize(
        &self,
        headers: &HeaderMap,
        allowed: RoleSet,
    ) -> Result<Option<Arc<Identity>>, AuthError> {
        let is_open = allowed.contains(Role::Anyone);
        match bearer(headers)? {
            None if is_open => Ok(None),
            None => Err(AuthError::TokenMissing),
            Some(token) => {
                let identity = match self.verify(token) {
                    Err(
                        AuthError::TokenInvalid(TokenFault::UnknownKey) | AuthError::KeysUnavailable { .. },
                    ) if self.refresh_keys(token).await => self.verify(token)?,
                    verdict => verdict?,
                };
                if is_open || allowed.intersects(identity.roles) {
                    Ok(Some(identity))
                } else {
                    Err(AuthError::RoleMissing)
                }
            }
        }
    }

    /// Verifies `token` and returns the identity of its bearer.
    pub fn verify(&self, token: &str) -> Result<Arc<Identity>, AuthError> {
        let now = self.clock.now();
        if let Some(identity) = self.verified.get(token.as_bytes()) {
            self.check_expiry(&identity, now)?;
            return Ok(identity);
        }
        let unverified = UnverifiedToken::parse(token)?;
        let issuer = self.issuers.get(unverified.issuer()?).ok_or(TokenFault::UnknownIssuer)?;
        let keys = issuer.keys.current();
        let keys = keys.ok_or_else(|| AuthError::KeysUnavailable { issuer: Arc::clone(&issuer.name) })?;
        let claims = unverified.verify(&keys)?;
        claims.check_audience(&issuer.audiences)?;
        claims.check_not_before(now.checked_add(issuer.leeway).unwrap_or(now))?;
        let identity = Arc::new(issuer.identity(&claims));
        self.check_expiry(&identity, now)?;
        self.verified.insert(token.as_bytes().into(), Arc::clone(&identity));
        // The keys change before the cache is cleared. This removes a result of old keys that was cached after the clearing.
        if !issuer.keys.current().is_some_and(|current| Arc::ptr_eq(&current, &keys)) {
            self.verified.remove(token.as_bytes());
        }
        Ok(identity)
    }

    /// Requests a fetch from the token's issuer. Returns true if an attempt was made.
    async fn refresh_keys(&self, token: &str) -> bool {
        let unverified = UnverifiedToken::parse(token).ok();
        let issuer = unverified.and_then(|token| self.issuers.get(token.issuer().ok()?));
        match issuer.map(|issuer| &issuer.keys) {
            Some(IssuerKeys::Published(keys)) => keys.refresh().await,
            Some(IssuerKeys::Fixed(_)) | None => false,
        }
    }

    fn check_expiry(&self, identity: &Identity, now: Timestamp) -> Result<(), TokenFault> {
        let leeway = self.issuers.get(&*identity.issuer).map_or(Duration::ZERO, |issuer| issuer.leeway);
        let end = identity.expiry.checked_add(leeway).unwrap_or(identity.expiry);
        if now < end { Ok(()) } else { Err(TokenFault::Expired) }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Verifier").field("issuers", &self.issuers.keys()).finish_non_exhaustive()
    }
}

impl Issuer {
    fn new(config: &IssuerConfig, auth: &AuthConfig) -> Result<Self, KeyError> {
        let name: Arc<str> = config.issuer.as_str().into();
        let keys = match &config.jwks_url {
            Some(url) => {
                IssuerKeys::Published(Arc::new(PublishedKeys::new(Arc::clone(&name), url, &auth.key_fetch)))
            }
            None => IssuerKeys::Fixed(Arc::new(KeySet::parse(config.jwks.as_str())?)),
        };
        let mapping = config.roles_mapping.iter().map(|(value, role)| (value.clone(), Role::from(*role)));
        let service = RoleSet::of(&[Role::Service]);
        let granted = roles(&config.roles_granted);
        Ok(Self {
            name,
            audiences: config.audiences.clone(),
            keys,
            roles_claim: config.roles_claim.clone(),
            roles_mapping: mapping.collect(),
            roles_always: roles(&config.roles_always),
            // Second check: the settings refuse SERVICE for these issuers already.
            roles_granted: if granted.intersects(service) { RoleSet::EMPTY } else { granted },
            leeway: config.leeway,
        })
    }

    fn mesh(config: &AuthConfig) -> Result<Self, KeyError> {
        Ok(Self {
            name: MESH.into(),
            audiences: vec![MESH.to_owned()],
            keys: IssuerKeys::Fixed(Arc::new(config.mesh.keys()?)),
            roles_claim: "roles".to_owned(),
            roles_mapping: HashMap::new(),
            roles_always: RoleSet::EMPTY,
            roles_granted: RoleSet::of(&[Role::Service]),
            leeway: config.mesh.leeway,
        })
    }

    fn identity(&self, claims: &Claims) -> Identity {
        let email_is_verified = claims.flag("email_verified");
        Identity {
            subject: claims.subject.clone(),
            roles: self.roles_of(claims),
            issuer: Arc::clone(&self.name),
            email: claims.text("email").filter(|_| email_is_verified),
            locale: claims.text("locale"),
            display_name: claims.text("name"),
            expiry: claims.expiry,
        }
    }

    /// Collects the roles of the claim and those of every token of the issuer, limited to the roles it may grant.
    fn roles_of(&self, claims: &Claims) -> RoleSet {
        let mut found = self.roles_always;
        for value in claims.texts(&self.roles_claim) {
            let role = if self.roles_mapping.is_empty() {
                GrantedRole::from_name(value).map(Role::from)
            } else {
                self.roles_mapping.get(value).copied()
            };
            // Other values of the claim have no meaning here.
            if let Some(role) = role {
                found.insert(role);
            }
        }
        found.intersection(self.roles_granted)
    }
}

#[derive(Clone, Copy, Debug)]
struct TokenWeight;

impl TokenWeight {
    /// Estimated size of an identity in the cache.
    const IDENTITY: u64 = 512;
    /// Estimated size of a token and its identity. Only sizes the cache's tables.
    const TYPICAL: u64 = 1024;
}

impl Weighter<Box<[u8]>, Arc<Identity>> for TokenWeight {
    fn weight(&self, token: &Box<[u8]>, _: &Arc<Identity>) -> u64 {
        u64::try_from(token.len()).unwrap_or(u64::MAX).saturating_add(Self::IDENTITY)
    }
}

fn roles(granted: &[GrantedRole]) -> RoleSet {
    RoleSet::of(&granted.iter().copied().map(Role::from).collect::<Vec<_>>())
}

/// Returns the token of the `authorization` header, `None` without the header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, TokenFault> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(TokenFault::Duplicated);
    }
    if value.len() > TOKEN_BYTES_MAX {
        return Err(TokenFault::TooLong);
    }
    let (scheme, token) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(TokenFault::Malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(TokenFault::Malformed);
    }
    Ok(Some(token))
}
