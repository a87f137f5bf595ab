//! Settings of authentication: issuers, their audiences and keys, and the roles that they may grant.

use std::{collections::BTreeMap, time::Duration};

use onsale_proto::auth::v1::Role;
use serde::Deserialize;

use super::{keys::KeySet, service_tokens::MESH};
use crate::config::{Problem, Secret, Text};

/// Upper limit of `auth.key_fetch.document_bytes_max`: no key set is longer.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Section `auth`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// Issuers of tokens for people (default: none).
    pub issuers: Vec<IssuerConfig>,
    /// Memory limit of the cache of verified tokens (default 32 MiB).
    pub token_cache_bytes_max: u64,
    /// Fetching of keys from issuers with a `jwks_url`.
    pub key_fetch: KeyFetchConfig,
    /// Tokens between services.
    pub mesh: MeshConfig,
}

/// Section `auth.key_fetch`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFetchConfig {
    /// Time between two fetches while they succeed (default 5 min).
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// Shortest time between two attempts (default 10 s), also if tokens with unknown keys ask for one.
    #[serde(with = "humantime_serde")]
    pub interval_min: Duration,
    /// Time limit of one attempt, and of a call that waits for it (default 3 s).
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Longest accepted key set (default 256 KiB, at most 1 MiB).
    pub document_bytes_max: usize,
}

/// One issuer of tokens for people.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The exact value of the claim `iss`.
    pub issuer: String,
    /// Accepted audiences: `aud` must contain one of them.
    pub audiences: Vec<String>,
    /// Public keys as a JSON Web Key Set, inline or `{ file = … }`. Unknown kinds of keys are skipped.
    #[serde(default)]
    pub jwks: Text,
    /// URL at which the issuer publishes its keys, instead of `jwks`.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Claim that lists roles (default `roles`). Dots lead into objects (`realm_access.roles`).
    #[serde(default = "roles_claim_default")]
    pub roles_claim: String,
    /// Roles by value of that claim. Empty: the values are our role names (`CUSTOMER`, in any case).
    #[serde(default)]
    pub roles_mapping: BTreeMap<String, GrantedRole>,
    /// Roles of every token of this issuer, even without the claim (default: none).
    #[serde(default)]
    pub roles_always: Vec<GrantedRole>,
    /// The only roles that this issuer can grant. Other roles in its tokens are ignored.
    pub roles_granted: Vec<GrantedRole>,
    /// Largest accepted difference between the issuer's clock and ours (default 30 s).
    #[serde(default = "leeway_default", with = "humantime_serde")]
    pub leeway: Duration,
}

/// Section `auth.mesh`: tokens between services.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// Ed25519 private key that signs this service's tokens: PKCS#8 as PEM or base64.
    pub key: Secret,
    /// Public keys of all services, including the public half of `key`.
    pub jwks: Text,
    /// Lifetime of a token (default 60 s, 2 s to 10 min). A new one is signed at half of it.
    #[serde(with = "humantime_serde")]
    pub token_lifetime: Duration,
    /// Largest accepted difference between the clocks of services (default 5 s).
    #[serde(with = "humantime_serde")]
    pub leeway: Duration,
}

/// A role that a token can grant. Excludes ANYONE, which needs no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GrantedRole {
    /// A buyer.
    Customer,
    /// A person who creates and controls events.
    Organizer,
    /// A person who works at the venue or in support.
    Staff,
    /// Another service. Only the mesh itself can grant it.
    Service,
}

impl GrantedRole {
    /// Finds the role with this name, in upper or lower case.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Customer, Self::Organizer, Self::Staff, Self::Service].into_iter().find(|role| {
            Role::from(*role)
                .as_str_name()
                .strip_prefix("ROLE_")
                .is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    }
}

impl From<GrantedRole> for Role {
    fn from(role: GrantedRole) -> Self {
        match role {
            GrantedRole::Customer => Self::Customer,
            GrantedRole::Organizer => Self::Organizer,
            GrantedRole::Staff => Self::Staff,
            GrantedRole::Service => Self::Service,
        }
    }
}

impl AuthConfig {
    pub(crate) fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, issuer) in self.issuers.iter().enumerate() {
            let key = |name: &str| format!("auth.issuers[{index}].{name}");
            if issuer.issuer.is_empty() || issuer.issuer == MESH {
                problems.push(Problem::new(key("issuer"), "must not be empty or the mesh's own"));
            }
            if self.issuers.iter().filter(|other| other.issuer == issuer.issuer).count() > 1 {
                problems.push(Problem::new(key("issuer"), "is listed twice"));
            }
            if issuer.audiences.is_empty() || issuer.audiences.iter().any(|audience| audience == MESH) {
                problems.push(Problem::new(key("audiences"), "must not be empty or have the mesh's own"));
            }
            if issuer.roles_granted.contains(&GrantedRole::Service) {
                problems.push(Problem::new(key("roles_granted"), "SERVICE is granted by the mesh only"));
            }
            problems.extend(issuer.key_problem().map(|(name, message)| Problem::new(key(name), message)));
        }
        problems.extend(self.key_fetch.validate());
        problems.extend(self.mesh.validate());
        problems
    }
}

impl IssuerConfig {
    /// Checks the source of the keys. Returns the offending key and a message.
    fn key_problem(&self) -> Option<(&'static str, String)> {
        let Some(url) = &self.jwks_url else {
            return KeySet::parse(self.jwks.as_str()).err().map(|error| ("jwks", error.to_string()));
        };
        if !self.jwks.as_str().is_empty() {
            return Some(("jwks_url", "stands beside jwks: give one of the two".to_owned()));
        }
        let is_http = reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "https" | "http"));
        (!is_http)
            .then(|| ("jwks_url", "must be https://… (or http://… in a network of your own)".to_owned()))
    }
}

impl KeyFetchConfig {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |bad: bool, key: &str, message: &str| {
            if bad {
                problems.push(Problem::new(format!("auth.key_fetch.{key}"), message));
            }
        };
        refuse(
            self.interval < self.interval_min,
            "interval",
            "must not be below auth.key_fetch.interval_min",
        );
        refuse(self.interval_min < Duration::from_millis(100), "interval_min", "must be at least 100ms");
        let is_quick = !self.timeout.is_zero() && self.timeout <= Duration::from_secs(30);
        refuse(!is_quick, "timeout", "must be above zero and at most 30s");
        let is_bounded = (1..=DOCUMENT_BYTES_MAX).contains(&self.document_bytes_max);
        refuse(!is_bounded, "document_bytes_max", "must be from 1 to 1048576");
        problems
    }
}

impl MeshConfig {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.token_lifetime < Duration::from_secs(2) || self.token_lifetime > Duration::from_secs(600) {
            problems.push(Problem::new("auth.mesh.token_lifetime", "must be from 2s to 10m"));
        }
        match (self.keys(), self.signing_key()) {
            (Ok(keys), Ok(key)) if keys.id_of(key.public_key()).is_none() => {
                problems.push(Problem::new("auth.mesh.jwks", "lacks the public half of auth.mesh.key"));
            }
            (keys, key) => {
                let of = |name: &str, error: super::KeyError| Problem::new(name, error.to_string());
                problems.extend(keys.err().map(|error| of("auth.mesh.jwks", error)));
                problems.extend(key.err().map(|error| of("auth.mesh.key", error)));
            }
        }
        problems
    }
}

fn roles_claim_default() -> String {
    "roles".to_owned()
}

fn leeway_default() -> Duration {
    Duration::from_secs(30)
}
