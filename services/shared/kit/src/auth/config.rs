//! The settings of identity: who may issue tokens, for whom, and which roles.

use std::{collections::BTreeMap, time::Duration};

use onsale_proto::auth::v1::Role;
use serde::Deserialize;

use super::{keys::KeySet, service_tokens::MESH};
use crate::config::{Problem, Secret, Text};

/// Documents longer than this are no key sets; the settings may ask for less.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Section `auth`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// Who issues tokens to people.
    pub issuers: Vec<IssuerConfig>,
    /// Verified tokens are remembered in at most this much memory.
    pub token_cache_bytes_max: u64,
    /// How keys are fetched from issuers that publish them.
    pub key_fetch: KeyFetchConfig,
    /// Tokens between services.
    pub mesh: MeshConfig,
}

/// How keys are fetched from the `jwks_url` of an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFetchConfig {
    /// How often, while all is well.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// A token with an unknown key has them fetched at once, but no sooner than this after the attempt before.
    #[serde(with = "humantime_serde")]
    pub interval_min: Duration,
    /// How long one attempt may take, and a call wait for it.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// A longer document is refused.
    pub document_bytes_max: usize,
}

/// One issuer of tokens to people.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The claim `iss`, exactly.
    pub issuer: String,
    /// A token's `aud` must have one of these.
    pub audiences: Vec<String>,
    /// The public keys: a JSON Web Key Set, inline or `{ file = … }`. Keys of kinds we do not know are skipped.
    #[serde(default)]
    pub jwks: Text,
    /// Where the issuer publishes them, instead.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// The claim that lists roles; dots go into objects (`realm_access.roles`).
    #[serde(default = "roles_claim_default")]
    pub roles_claim: String,
    /// What the values of that claim mean. Without it the roles' own names count (`CUSTOMER`, in any case).
    #[serde(default)]
    pub roles_mapping: BTreeMap<String, GrantedRole>,
    /// Roles that every token of this issuer has, claim or not.
    #[serde(default)]
    pub roles_always: Vec<GrantedRole>,
    /// The only roles this issuer can ever grant, whatever its tokens say.
    pub roles_granted: Vec<GrantedRole>,
    /// How far the issuer's clock may be from ours.
    #[serde(default = "leeway_default", with = "humantime_serde")]
    pub leeway: Duration,
}

/// The tokens services show each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// Ed25519 private key that signs this service's tokens: PKCS#8, as PEM or base64.
    pub key: Secret,
    /// The public keys that are accepted from others; the public half of `key` among them.
    pub jwks: Text,
    /// How long a token is good; a new one is made at half of it.
    #[serde(with = "humantime_serde")]
    pub token_lifetime: Duration,
    /// How far clocks in the mesh may differ.
    #[serde(with = "humantime_serde")]
    pub leeway: Duration,
}

/// A role a token can give. Not ANYONE, which needs no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GrantedRole {
    /// A person who buys.
    Customer,
    /// Who creates and steers events.
    Organizer,
    /// Who works at the venue or at support.
    Staff,
    /// Another service; only the mesh itself can grant it.
    Service,
}

impl GrantedRole {
    /// The role with this name, in any case.
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
    /// What is wrong with where the keys come from: the key, and why.
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
