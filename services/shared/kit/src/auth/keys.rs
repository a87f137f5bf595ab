//! Keys: sets of public keys as issuers publish them, and our own private one. Ed25519 only.

use std::{collections::HashMap, fmt};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use serde::Deserialize;

use super::MeshConfig;

/// An Ed25519 public key has this many bytes.
const PUBLIC_KEY_BYTES: usize = 32;

/// Why a key cannot be used. Never shows key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set")]
    NotAKeySet,
    /// No key of the set is an Ed25519 signing key with a `kid`.
    #[error("the key set has no usable key (kty OKP, crv Ed25519, with a kid)")]
    NoUsableKey,
    /// Two keys have one id, so a token could mean either.
    #[error("two keys of the set have the same kid")]
    DuplicateKeyId,
    /// The private key is not PKCS#8 with an Ed25519 key.
    #[error("not an Ed25519 private key in PKCS#8 (PEM or base64)")]
    NotAPrivateKey,
    /// The system gives no random numbers to make a key from.
    #[error("no randomness to make a key from")]
    NoRandomness,
    /// The private key is not one of the set's.
    #[error("the key set lacks the public half of the private key")]
    NotInKeySet,
}

/// The Ed25519 keys of a JSON Web Key Set, by `kid`.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: HashMap<String, [u8; PUBLIC_KEY_BYTES]>,
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys of other kinds are skipped: an issuer may serve others too.
    pub fn parse(json: &str) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        let document: Document = serde_json::from_str(json).map_err(|_| KeyError::NotAKeySet)?;
        let mut keys = HashMap::new();
        for (id, public_key) in document.keys.into_iter().filter_map(usable) {
            if keys.insert(id, public_key).is_some() {
                return Err(KeyError::DuplicateKeyId);
            }
        }
        if keys.is_empty() { Err(KeyError::NoUsableKey) } else { Ok(Self { keys }) }
    }

    /// The id of a public key.
    #[must_use]
    pub fn id_of(&self, public_key: &[u8]) -> Option<&str> {
        self.keys.iter().find(|(_, key)| key.as_slice() == public_key).map(|(id, _)| id.as_str())
    }

    /// Whether the key with this id signed `message`. None when there is no such key.
    #[must_use]
    pub fn verify(&self, key_id: &str, message: &[u8], signature: &[u8]) -> Option<bool> {
        let key = self.keys.get(key_id)?;
        Some(UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok())
    }
}

fn usable(key: serde_json::Value) -> Option<(String, [u8; PUBLIC_KEY_BYTES])> {
    #[derive(Deserialize)]
    struct Key {
        kty: String,
        crv: Option<String>,
        kid: Option<String>,
        x: Option<String>,
        r#use: Option<String>,
        alg: Option<String>,
    }
    let key: Key = serde_json::from_value(key).ok()?;
    let is_ed25519 = key.kty == "OKP" && key.crv.as_deref() == Some("Ed25519");
    let is_for_signatures = key.r#use.is_none_or(|r#use| r#use == "sig");
    let is_for_us = key.alg.is_none_or(|algorithm| algorithm == "EdDSA" || algorithm == "Ed25519");
    if !(is_ed25519 && is_for_signatures && is_for_us) {
        return None;
    }
    let public_key = URL_SAFE_NO_PAD.decode(key.x?).ok()?;
    Some((key.kid?, public_key.try_into().ok()?))
}

/// Our own Ed25519 private key.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Reads PKCS#8, as PEM (what `openssl genpkey -algorithm ed25519` writes) or bare base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let base64: String = text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let pkcs8 = STANDARD.decode(base64).map_err(|_| KeyError::NotAPrivateKey)?;
        // `maybe_unchecked` because openssl writes PKCS#8 version 1, which has no public half to check against.
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).map_err(|_| KeyError::NotAPrivateKey)?;
        Ok(Self(pair))
    }

    /// The public half.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// A new key, as settings have it: PKCS#8 in base64.
    pub fn generate() -> Result<String, KeyError> {
        let pkcs8 =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandomness)?;
        Ok(STANDARD.encode(pkcs8))
    }

    /// The key's id: the beginning of the hash of its public half, so that a new key has a new id without anybody's care.
    #[must_use]
    pub fn key_id(&self) -> String {
        let hash = digest(&SHA256, self.public_key());
        URL_SAFE_NO_PAD.encode(hash.as_ref().get(..12).unwrap_or_default())
    }

    /// The public half, as a JSON Web Key Set of one key.
    #[must_use]
    pub fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.public_key());
        let key = serde_json::json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.key_id(), "x": x,
        });
        serde_json::json!({ "keys": [key] }).to_string()
    }

    /// The signature of `message`.
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
    /// The keys that may sign service tokens.
    pub(super) fn keys(&self) -> Result<KeySet, KeyError> {
        KeySet::parse(self.jwks.as_str())
    }

    /// The key that signs ours.
    pub(super) fn signing_key(&self) -> Result<SigningKey, KeyError> {
        SigningKey::parse(self.key.expose())
    }
}
