//! Public keys of issuers, in sets, and the service's own private keys.
//!
//! A public key is Ed25519, P-256 or RSA and verifies only its one algorithm. Private keys are Ed25519.

use std::{collections::HashMap, fmt};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, Ed25519KeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
        RsaPublicKeyComponents, UnparsedPublicKey,
    },
};
use serde::Deserialize;

use super::MeshConfig;

/// Length of an Ed25519 public key.
const PUBLIC_KEY_BYTES: usize = 32;

/// Length of one coordinate of a point on P-256.
const COORDINATE_BYTES: usize = 32;

/// The defect of a key or key set. Never shows key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set")]
    NotAKeySet,
    /// No key of the set is for signatures, of a supported kind, and has a `kid`.
    #[error("the key set has no usable key (Ed25519, P-256 or RSA, for signatures, with a kid)")]
    NoUsableKey,
    /// Two keys share one `kid`, so a token could mean either.
    #[error("two keys of the set have the same kid")]
    DuplicateKeyId,
    /// The private key is not PKCS#8 with an Ed25519 key.
    #[error("not an Ed25519 private key in PKCS#8 (PEM or base64)")]
    NotAPrivateKey,
    /// The system's random generator failed.
    #[error("no randomness to make a key from")]
    NoRandomness,
    /// The public half of the private key is not in the set.
    #[error("the key set lacks the public half of the private key")]
    NotInKeySet,
}

/// The signature keys of a JSON Web Key Set, by `kid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    keys: HashMap<String, PublicKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicKey {
    Ed25519([u8; PUBLIC_KEY_BYTES]),
    /// An uncompressed point: 0x04 and both coordinates.
    P256(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl PublicKey {
    /// The only value of `alg` that the key accepts.
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
            Self::Rsa { .. } => "RS256",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verdict = match self {
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
        };
        verdict.is_ok()
    }
}

impl KeySet {
    /// Parses a JSON Web Key Set. Skips unsupported kinds of keys, which issuers may publish too.
    pub fn parse(json: &str) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        let document: Document = serde_json::from_str(json).map_err(|_| KeyError::NotAKeySet)?;
        let mut keys = HashMap::new();
        for (id, public_key) in document.keys.into_iter().filter_map(signature_key) {
            if keys.insert(id, public_key).is_some() {
                return Err(KeyError::DuplicateKeyId);
            }
        }
        if keys.is_empty() { Err(KeyError::NoUsableKey) } else { Ok(Self { keys }) }
    }

    /// Returns the `kid` of an Ed25519 public key.
    pub(super) fn id_of(&self, public_key: &[u8]) -> Option<&str> {
        let is_it = |key: &PublicKey| matches!(key, PublicKey::Ed25519(own) if own.as_slice() == public_key);
        self.keys.iter().find(|(_, key)| is_it(key)).map(|(id, _)| id.as_str())
    }

    /// Returns true if the key with this id signed `message`, and `None` without such a key.
    #[must_use]
    pub fn verify(&self, key_id: &str, message: &[u8], signature: &[u8]) -> Option<bool> {
        Some(self.keys.get(key_id)?.has_signed(message, signature))
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the algorithm of the key with this id.
    pub(super) fn algorithm_of(&self, key_id: &str) -> Option<&'static str> {
        self.keys.get(key_id).map(PublicKey::algorithm)
    }
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
}

fn signature_key(key: serde_json::Value) -> Option<(String, PublicKey)> {
    let key: Jwk = serde_json::from_value(key).ok()?;
    if key.r#use.as_deref().is_some_and(|r#use| r#use != "sig") {
        return None;
    }
    let public_key = match (key.kty.as_str(), key.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => PublicKey::Ed25519(decode(&key.x)?.try_into().ok()?),
        ("EC", Some("P-256")) => {
            let (x, y) = (decode(&key.x)?, decode(&key.y)?);
            let is_point = x.len() == COORDINATE_BYTES && y.len() == COORDINATE_BYTES;
            is_point.then(|| PublicKey::P256([&[0x04], x.as_slice(), y.as_slice()].concat()))?
        }
        ("RSA", _) => PublicKey::Rsa { modulus: decode(&key.n)?, exponent: decode(&key.e)? },
        _ => return None,
    };
    // `Ed25519` is the newer name of `EdDSA` with this curve.
    let is_for_us = key.alg.as_deref().is_none_or(|algorithm| {
        algorithm == public_key.algorithm() || (algorithm, public_key.algorithm()) == ("Ed25519", "EdDSA")
    });
    is_for_us.then_some((key.kid?, public_key))
}

fn decode(part: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part.as_ref()?).ok()
}

/// An Ed25519 private key.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Parses PKCS#8 as PEM (the output of `openssl genpkey -algorithm ed25519`) or bare base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let base64: String = text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let pkcs8 = STANDARD.decode(base64).map_err(|_| KeyError::NotAPrivateKey)?;
        // `maybe_unchecked`: openssl writes PKCS#8 version 1, which has no public half to check against.
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).map_err(|_| KeyError::NotAPrivateKey)?;
        Ok(Self(pair))
    }

    /// The public key of the pair.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Generates a key in the form of the settings: PKCS#8 in base64.
    pub fn generate() -> Result<String, KeyError> {
        let pkcs8 =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandomness)?;
        Ok(STANDARD.encode(pkcs8))
    }

    /// Returns the key's id: the first 12 bytes of its public key's SHA-256, in base64url. A new key so gets a new id.
    #[must_use]
    pub fn key_id(&self) -> String {
        let hash = digest(&SHA256, self.public_key());
        URL_SAFE_NO_PAD.encode(hash.as_ref().get(..12).unwrap_or_default())
    }

    /// Returns a JSON Web Key Set with the public key.
    #[must_use]
    pub fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.public_key());
        let key = serde_json::json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.key_id(), "x": x,
        });
        serde_json::json!({ "keys": [key] }).to_string()
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey(***)")
    }
}

impl MeshConfig {
    /// Parses the keys that verify service tokens.
    pub(super) fn keys(&self) -> Result<KeySet, KeyError> {
        KeySet::parse(self.jwks.as_str())
    }

    /// Parses the key that signs this service's tokens.
    pub(super) fn signing_key(&self) -> Result<SigningKey, KeyError> {
        SigningKey::parse(self.key.expose())
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use serde_json::json;

    use super::*;

    const MESSAGE: &[u8] = b"a message";

    /// Made with openssl: the modulus of a 2048-bit key, and a signature of [`MESSAGE`] with the discarded private key.
    const RSA_MODULUS: &str = "xT5maUF7vhpnecbsgkLCmY1wWekn1Wd3bu8sJ4arHcO/rhzSJ+b1YQJ8TliNAoboXPWL6kr4s3X2bDEUCLE5tzgeRY8AiUoTjkeOkHKmqjwuYxbfOTBk7fDLfOWtxUR9vRlzQ78o7oc20oD1VkLn3HKoi5J9qitkzunZNMTfMEZw/hOEs3ri7yK+vCtLtCEsUL17yflj9R9RXZVPBKmQX9kXhEkx9CrBJpBBqoLPNFFs4CJDYymaliCuNBl+BLQyXi2y2ttOh9dP3xsl0Qn0zbZ2TjU25wHJqcJDYks0ZUkebM96xGx2SoNLhv7xyXylTAcR5vxJX/1fRY5sKXXc0w==";
    const RSA_SIGNATURE: &str = "U470OGheiGWu8+FBtirTy4iVULdbMoBAHeWt6E2h1yjKHNix92axLKe4UxA/k10MoJ3ZKMLStjT5fsHIa5hgySEf78RONcAnLeGJydM+UkLwQlLPyJbmo4T8OHH/MnqlwB3CU+Y/3UmhgRc44UTqpTsItpZOxt3CgrAXkqjzREjlJ7E35LFabykELcxbXd6rXUpyfbPiT4xeK8cVvml+czZHCWSSPqekIJbFH8ir7E+mW+i3sjCGXA00zxo/nBLRwssaQvse8hR0YrP98JsBYuTEqpCLZvPWjI3x7U/qxmsDtz7hhV54a5Brro9raplaW4kPlrftfJ3tE+6SmCVJrA==";

    fn rsa_modulus() -> String {
        URL_SAFE_NO_PAD.encode(STANDARD.decode(RSA_MODULUS).unwrap())
    }

    fn key_set(key: &serde_json::Value) -> Result<KeySet, KeyError> {
        KeySet::parse(&json!({ "keys": [key] }).to_string())
    }

    #[test]
    fn rsa_key_verifies_only_its_own_signature() {
        let key = json!({ "kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": rsa_modulus(), "e": "AQAB" });
        let keys = key_set(&key).unwrap();
        let signature = STANDARD.decode(RSA_SIGNATURE).unwrap();
        assert_eq!(keys.algorithm_of("1"), Some("RS256"));
        assert_eq!(keys.verify("1", MESSAGE, &signature), Some(true));
        assert_eq!(keys.verify("1", b"another message", &signature), Some(false));
        assert_eq!(keys.verify("2", MESSAGE, &signature), None);
    }

    #[test]
    fn a_key_on_p256_verifies_what_it_signed_and_nothing_else() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let coordinate = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        let key = json!({
            "kty": "EC", "crv": "P-256", "kid": "1", "x": coordinate(1..33), "y": coordinate(33..65),
        });
        let keys = key_set(&key).unwrap();
        let signature = pair.sign(&random, MESSAGE).unwrap();
        assert_eq!(keys.algorithm_of("1"), Some("ES256"));
        assert_eq!(keys.verify("1", MESSAGE, signature.as_ref()), Some(true));
        assert_eq!(keys.verify("1", b"another message", signature.as_ref()), Some(false));
    }

    #[test]
    fn keys_for_other_uses_are_skipped() {
        for key in [
            json!({ "kty": "RSA", "kid": "1", "use": "enc", "n": rsa_modulus(), "e": "AQAB" }),
            json!({ "kty": "RSA", "kid": "1", "alg": "RS512", "n": rsa_modulus(), "e": "AQAB" }),
            json!({ "kty": "RSA", "n": rsa_modulus(), "e": "AQAB" }),
            json!({ "kty": "EC", "crv": "P-256", "kid": "1", "x": "AA", "y": "AA" }),
            json!({ "kty": "EC", "crv": "P-384", "kid": "1", "x": "AA", "y": "AA" }),
            json!({ "kty": "oct", "kid": "1", "k": "AAAA" }),
        ] {
            assert_eq!(key_set(&key), Err(KeyError::NoUsableKey), "{key}");
        }
    }
}
