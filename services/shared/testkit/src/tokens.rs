//! Identity tokens for tests: valid ones for every role, and the broken kinds that an attacker would try.
//!
//! Tokens are assembled from raw parts, never with the code under test: a mistake in code shared by signer and verifier would
//! stay undetected.

use std::{sync::Arc, time::Duration};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use onsale_kit::{
    auth::{
        AuthConfig, GrantedRole, Identity, IssuerConfig, KeyFetchConfig, MESH, MeshConfig, ServiceTokens,
    },
    config::{Secret, Text},
    contract::RoleSet,
};
use onsale_proto::auth::v1::Role;
use onsale_types::{Clock, SystemClock, Timestamp};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use serde_json::{Value, json};
use uuid::Uuid;

/// `iss` claim of the tokens of customers, organizers and staff.
pub const ISSUER: &str = "https://identity.test";
/// `aud` claim of the tokens of customers, organizers and staff.
pub const AUDIENCE: &str = "onsale-test";

const KEY_ID: &str = "people-1";
const MESH_KEY_ID: &str = "mesh-1";
const LIFETIME: Duration = Duration::from_secs(300);

/// Returns the identity of a token for `subject`. Customer and organizer ids derived from it equal those that a service
/// derives from the token, because they depend on issuer and subject only.
#[must_use]
pub fn identity(subject: &str) -> Identity {
    Identity {
        subject: subject.to_owned(),
        roles: RoleSet::EMPTY,
        issuer: ISSUER.into(),
        email: None,
        locale: None,
        display_name: None,
        expiry: Timestamp::EPOCH,
    }
}

/// Generates signing keys, settings that trust these keys, and tokens signed with them.
pub struct TestIssuer {
    people: Key,
    mesh: Key,
    /// A key that is in no key set.
    stranger: Key,
    clock: Arc<dyn Clock>,
}

/// A token that every verifier must refuse.
#[derive(Clone, Debug)]
pub struct BrokenToken {
    /// The one flaw of the token, for failure messages.
    pub flaw: &'static str,
    /// The token without the `Bearer` prefix.
    pub token: String,
}

impl Default for TestIssuer {
    fn default() -> Self {
        Self::new()
    }
}

impl TestIssuer {
    /// Generates new keys. Token times come from the clock of the operating system.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// Generates new keys. Token times come from `clock`.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { people: Key::generate(), mesh: Key::generate(), stranger: Key::generate(), clock }
    }

    /// Returns the JSON Web Key Set for the tokens of customers, organizers and staff.
    #[must_use]
    pub fn jwks(&self) -> String {
        self.people.jwks(KEY_ID)
    }

    /// Returns the JSON Web Key Set for the tokens of services.
    #[must_use]
    pub fn mesh_jwks(&self) -> String {
        self.mesh.jwks(MESH_KEY_ID)
    }

    /// Returns the private key of the mesh in the form of the settings: PKCS#8 in base64.
    #[must_use]
    pub fn mesh_key(&self) -> String {
        STANDARD.encode(&self.mesh.pkcs8)
    }

    /// Returns settings that trust this issuer for customers, organizers and staff, and its mesh key for services.
    #[must_use]
    pub fn auth_config(&self) -> AuthConfig {
        AuthConfig {
            issuers: vec![IssuerConfig {
                issuer: ISSUER.to_owned(),
                audiences: vec![AUDIENCE.to_owned()],
                jwks: Text::from(self.jwks()),
                jwks_url: None,
                roles_claim: "roles".to_owned(),
                roles_mapping: std::collections::BTreeMap::new(),
                roles_always: Vec::new(),
                roles_granted: vec![GrantedRole::Customer, GrantedRole::Organizer, GrantedRole::Staff],
                leeway: Duration::ZERO,
            }],
            token_cache_bytes_max: 1024 * 1024,
            key_fetch: KeyFetchConfig {
                interval: Duration::from_secs(300),
                interval_min: Duration::from_millis(100),
                timeout: Duration::from_secs(3),
                document_bytes_max: 64 * 1024,
            },
            mesh: self.mesh_config(),
        }
    }

    /// Returns the mesh part of [`TestIssuer::auth_config`].
    #[must_use]
    pub fn mesh_config(&self) -> MeshConfig {
        MeshConfig {
            key: Secret::new(self.mesh_key()),
            jwks: Text::from(self.mesh_jwks()),
            token_lifetime: LIFETIME,
            leeway: Duration::ZERO,
        }
    }

    /// Returns the token source with which a service named `service` authenticates its calls.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the settings are made from the same key")]
    pub fn service_tokens(&self, service: &str) -> ServiceTokens {
        ServiceTokens::new(service, &self.mesh_config(), Arc::clone(&self.clock))
            .expect("the settings of a test issuer are valid")
    }

    /// Returns a valid token of a new subject with this role. The mesh key signs SERVICE tokens; the other key signs all
    /// others.
    #[must_use]
    pub fn token(&self, role: Role) -> String {
        self.token_for(&Uuid::now_v7().to_string(), &[role])
    }

    /// Returns a valid token of `subject` with these roles.
    #[must_use]
    pub fn token_for(&self, subject: &str, roles: &[Role]) -> String {
        if roles.contains(&Role::Service) {
            self.sign_mesh(&self.mesh_claims(subject))
        } else {
            self.sign(&self.claims(subject, roles))
        }
    }

    /// Returns the claims of a valid token, for a test to change before signing.
    #[must_use]
    pub fn claims(&self, subject: &str, roles: &[Role]) -> Value {
        let names: Vec<_> = roles.iter().map(|role| role_name(*role)).collect();
        let now = self.now_seconds();
        json!({
            "iss": ISSUER, "aud": AUDIENCE, "sub": subject, "roles": names,
            "iat": now, "exp": now.saturating_add(LIFETIME.as_secs().cast_signed()),
        })
    }

    /// Signs any claims with the key for customers, organizers and staff.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.people.sign(&header("EdDSA", KEY_ID), claims)
    }

    /// Signs any claims with the mesh key.
    #[must_use]
    pub fn sign_mesh(&self, claims: &Value) -> String {
        self.mesh.sign(&header("EdDSA", MESH_KEY_ID), claims)
    }

    /// Returns one token of every broken kind. Apart from its one flaw each would be valid for `role`, which must not be
    /// SERVICE.
    #[must_use]
    pub fn broken(&self, role: Role) -> Vec<BrokenToken> {
        let mut all = self.broken_claims(role);
        all.extend(self.broken_signatures(role));
        all.into_iter().map(|(flaw, token)| BrokenToken { flaw, token }).collect()
    }

    /// Returns tokens with a valid signature and unacceptable claims.
    fn broken_claims(&self, role: Role) -> Vec<(&'static str, String)> {
        let now = self.now_seconds();
        let with = |claim: &str, value: Value| {
            let mut claims = self.claims("somebody", &[role]);
            if let Some(claims) = claims.as_object_mut() {
                claims.insert(claim.to_owned(), value);
            }
            self.sign(&claims)
        };
        let without = |claim: &str| {
            let mut claims = self.claims("somebody", &[role]);
            if let Some(claims) = claims.as_object_mut() {
                claims.remove(claim);
            }
            self.sign(&claims)
        };
        vec![
            ("expired", with("exp", json!(now.saturating_sub(1)))),
            ("expiring this second", with("exp", json!(now))),
            ("without expiry", without("exp")),
            ("with an expiry that is a text", with("exp", json!("4102444800"))),
            ("not yet valid", with("nbf", json!(now.saturating_add(60)))),
            ("for another audience", with("aud", json!("somebody-else"))),
            ("for a list of other audiences", with("aud", json!(["one", "another"]))),
            ("for the mesh, from the people's issuer", with("aud", json!(MESH))),
            ("without audience", without("aud")),
            ("from another issuer", with("iss", json!("https://evil.test"))),
            ("from the mesh, signed by the people's issuer", with("iss", json!(MESH))),
            ("without issuer", without("iss")),
            ("without subject", without("sub")),
            ("with an empty subject", with("sub", json!(""))),
            ("claims that are no object", self.sign(&json!([1, 2, 3]))),
        ]
    }

    /// Returns tokens with valid claims and an unacceptable signature or form.
    fn broken_signatures(&self, role: Role) -> Vec<(&'static str, String)> {
        let claims = self.claims("somebody", &[role]);
        let good = self.sign(&claims);
        let (signed, signature) = good.rsplit_once('.').unwrap_or_default();
        let mut other_claims = claims.clone();
        if let Some(claims) = other_claims.as_object_mut() {
            claims.insert("sub".to_owned(), json!("somebody else"));
        }
        let other = self.sign(&other_claims);
        let other_signed = other.rsplit_once('.').unwrap_or_default().0;

        vec![
            ("alg none without signature", unsigned(&header("none", KEY_ID), &claims)),
            ("alg None without signature", unsigned(&header("None", KEY_ID), &claims)),
            (
                "alg none with the good signature",
                format!("{}{signature}", unsigned(&header("none", KEY_ID), &claims)),
            ),
            (
                "HS256 keyed with the public key",
                self.people.confuse(&claims, self.people.pair.public_key().as_ref()),
            ),
            ("HS256 keyed with the key set", self.people.confuse(&claims, self.jwks().as_bytes())),
            ("a good signature under alg RS256", self.people.sign(&header("RS256", KEY_ID), &claims)),
            ("signed by a stranger with a known kid", self.stranger.sign(&header("EdDSA", KEY_ID), &claims)),
            ("signed by a stranger with its own kid", self.stranger.sign(&header("EdDSA", "other"), &claims)),
            ("signed by the mesh's key", self.mesh.sign(&header("EdDSA", MESH_KEY_ID), &claims)),
            (
                "signed by a key in its own header",
                self.stranger.sign(&self.stranger.header_with_key(), &claims),
            ),
            ("without kid", self.people.sign(&json!({ "alg": "EdDSA" }), &claims)),
            ("with a critical extension", self.people.sign(&critical_header(), &claims)),
            ("with another token's signature", format!("{other_signed}.{signature}")),
            (
                "with a shortened signature",
                good.get(..good.len().saturating_sub(4)).unwrap_or_default().to_owned(),
            ),
            ("with an empty signature", format!("{signed}.")),
            ("without signature part", signed.to_owned()),
            ("with a fourth part", format!("{good}.{signature}")),
            ("with padding", format!("{good}=")),
            ("no token", "somebody".to_owned()),
            ("empty", String::new()),
            ("longer than any token", format!("{good}{}", "A".repeat(16 * 1024))),
        ]
    }

    fn mesh_claims(&self, subject: &str) -> Value {
        let now = self.now_seconds();
        json!({
            "iss": MESH, "aud": MESH, "sub": subject, "roles": ["SERVICE"],
            "iat": now, "exp": now.saturating_add(LIFETIME.as_secs().cast_signed()),
        })
    }

    fn now_seconds(&self) -> i64 {
        self.clock.now().to_seconds_and_nanos().0
    }
}

struct Key {
    pkcs8: Vec<u8>,
    pair: Ed25519KeyPair,
}

impl Key {
    #[expect(clippy::expect_used, reason = "a test machine without randomness cannot run any test")]
    fn generate() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system has randomness");
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key just made is readable");
        Self { pkcs8: pkcs8.as_ref().to_vec(), pair }
    }

    fn jwk(&self, key_id: &str) -> Value {
        let public = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": key_id, "x": public })
    }

    fn jwks(&self, key_id: &str) -> String {
        json!({ "keys": [self.jwk(key_id)] }).to_string()
    }

    fn header_with_key(&self) -> Value {
        json!({ "alg": "EdDSA", "kid": KEY_ID, "jwk": self.jwk(KEY_ID) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = signed_part(header, claims);
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Signs with HS256 and a public key as the secret. A verifier that trusts the `alg` header would accept the token.
    fn confuse(&self, claims: &Value, public: &[u8]) -> String {
        let signed = signed_part(&header("HS256", KEY_ID), claims);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }
}

fn header(algorithm: &str, key_id: &str) -> Value {
    json!({ "alg": algorithm, "typ": "JWT", "kid": key_id })
}

fn critical_header() -> Value {
    json!({ "alg": "EdDSA", "kid": KEY_ID, "crit": ["b64"], "b64": false })
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.", signed_part(header, claims))
}

fn signed_part(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn role_name(role: Role) -> &'static str {
    let name = role.as_str_name();
    name.strip_prefix("ROLE_").unwrap_or(name)
}
