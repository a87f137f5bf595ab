//! JSON Web Tokens in compact form, signed with EdDSA, ES256 or RS256 only.
//!
//! Implemented here because `jsonwebtoken` without its built-in providers needs a process-wide provider of ours, reads the
//! system clock itself, and supports the algorithms that are known for confusion attacks. Here each key has exactly one
//! algorithm, and `alg` is compared with it, so no token can choose another.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use onsale_types::Timestamp;
use serde::Deserialize;

use super::keys::{KeySet, SigningKey};

/// Longest accepted token. Longer ones are refused before they are parsed.
pub(super) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Accepted values of `alg`.
const ALGORITHMS: [&str; 3] = ["EdDSA", "ES256", "RS256"];

/// The defect of a refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// More than one `authorization` header, so the token is ambiguous.
    #[error("more than one authorization header")]
    Duplicated,
    /// Not `Bearer <token>`, or not three parts of base64url with JSON inside.
    #[error("malformed")]
    Malformed,
    /// Longer than 8 KiB.
    #[error("longer than 8 KiB")]
    TooLong,
    /// Unsigned, or signed with an unknown algorithm or another one than its key's.
    #[error("not signed with the algorithm of its key")]
    WrongAlgorithm,
    /// The issuer is not in the settings.
    #[error("from an unknown issuer")]
    UnknownIssuer,
    /// The issuer has no key with the token's `kid`.
    #[error("signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the token and key.
    #[error("the signature does not match")]
    BadSignature,
    /// `exp` plus the leeway has passed.
    #[error("expired")]
    Expired,
    /// `nbf` minus the leeway has not come.
    #[error("not yet valid")]
    NotYetValid,
    /// `aud` names none of the accepted audiences.
    #[error("for another audience")]
    WrongAudience,
}

/// A parsed token whose signature has not been checked.
pub(super) struct UnverifiedToken<'a> {
    algorithm: String,
    key_id: String,
    claims: serde_json::Value,
    signed: &'a [u8],
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Critical extensions. A token with any is refused, because the verifier supports none.
    crit: Option<serde_json::Value>,
}

impl<'a> UnverifiedToken<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, TokenFault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenFault::Malformed)?;
        if !ALGORITHMS.contains(&header.alg.as_str()) {
            return Err(TokenFault::WrongAlgorithm);
        }
        if header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        Ok(Self {
            algorithm: header.alg,
            key_id: header.kid.ok_or(TokenFault::UnknownKey)?,
            claims: serde_json::from_slice(&decode(claims)?).map_err(|_| TokenFault::Malformed)?,
            signed: signed.as_bytes(),
            signature: decode(signature)?,
        })
    }

    /// The issuer that the token names, which selects the keys. Not trustworthy before [`UnverifiedToken::verify`].
    pub(super) fn issuer(&self) -> Result<&str, TokenFault> {
        self.claims.get("iss").and_then(serde_json::Value::as_str).ok_or(TokenFault::UnknownIssuer)
    }

    /// Checks the signature with `keys` and returns the claims.
    pub(super) fn verify(self, keys: &KeySet) -> Result<Claims, TokenFault> {
        if keys.algorithm_of(&self.key_id).is_some_and(|algorithm| algorithm != self.algorithm) {
            return Err(TokenFault::WrongAlgorithm);
        }
        match keys.verify(&self.key_id, self.signed, &self.signature) {
            Some(true) => Claims::read(self.claims),
            Some(false) => Err(TokenFault::BadSignature),
            None => Err(TokenFault::UnknownKey),
        }
    }
}

/// Claims of a token whose signature has been verified.
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) expiry: Timestamp,
    not_before: Option<Timestamp>,
    all: serde_json::Value,
}

impl Claims {
    fn read(all: serde_json::Value) -> Result<Self, TokenFault> {
        #[derive(Deserialize)]
        struct Registered {
            sub: String,
            // Whole seconds only: known issuers write no fractions, and rounding would need floats.
            exp: i64,
            nbf: Option<i64>,
        }
        let registered = Registered::deserialize(&all).map_err(|_| TokenFault::Malformed)?;
        if registered.sub.is_empty() {
            return Err(TokenFault::Malformed);
        }
        Ok(Self {
            subject: registered.sub,
            expiry: Timestamp::from_secs(registered.exp),
            not_before: registered.nbf.map(Timestamp::from_secs),
            all,
        })
    }

    /// Checks that `aud`, a text or a list, contains one of `audiences`.
    pub(super) fn check_audience(&self, audiences: &[String]) -> Result<(), TokenFault> {
        let is_ours = |value: &serde_json::Value| {
            value.as_str().is_some_and(|audience| audiences.iter().any(|ours| ours == audience))
        };
        let fits = match self.all.get("aud") {
            Some(serde_json::Value::Array(list)) => list.iter().any(is_ours),
            Some(single) => is_ours(single),
            None => false,
        };
        if fits { Ok(()) } else { Err(TokenFault::WrongAudience) }
    }

    /// Checks that `nbf` is not after `latest`, which is now plus the leeway.
    pub(super) fn check_not_before(&self, latest: Timestamp) -> Result<(), TokenFault> {
        match self.not_before {
            Some(not_before) if not_before > latest => Err(TokenFault::NotYetValid),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn all_as<C: serde::de::DeserializeOwned>(&self) -> Result<C, TokenFault> {
        C::deserialize(&self.all).map_err(|_| TokenFault::Malformed)
    }

    /// Returns a text claim. `None` if it is missing or of another type.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.all.get(name)?.as_str().map(str::to_owned)
    }

    /// Returns a boolean claim, false if it is missing or of another type.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.all.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Returns the texts of a claim that is one text or a list. Dots in `path` lead into objects.
    pub(super) fn texts(&self, path: &str) -> Vec<&str> {
        // The whole path first: some issuers use URLs with dots as claim names.
        let whole = self.all.get(path);
        let claim = whole.or_else(|| path.split('.').try_fold(&self.all, |value, key| value.get(key)));
        match claim {
            Some(serde_json::Value::Array(list)) => {
                list.iter().filter_map(serde_json::Value::as_str).collect()
            }
            Some(single) => single.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }
}

/// Signs a token with these claims.
pub(super) fn sign(key: &SigningKey, key_id: &str, claims: &serde_json::Value) -> String {
    let header = serde_json::json!({ "alg": "EdDSA", "typ": "JWT", "kid": key_id });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn decode(part: &str) -> Result<Vec<u8>, TokenFault> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Malformed)
}
