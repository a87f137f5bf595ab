//! JSON Web Tokens in compact form, signed with EdDSA, ES256 or RS256, and nothing else.
//!
//! Written out instead of taken from `jsonwebtoken`: without its built-in providers that crate needs a process-wide
//! one of ours, reads the system clock by itself, and supports the algorithms whose confusion is the classic hole.
//! Here a key has one algorithm, so there is none to confuse: `alg` is compared, never obeyed.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use onsale_types::Timestamp;
use serde::Deserialize;

use super::keys::{KeySet, SigningKey};

/// Longer tokens are refused unread.
pub(super) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// What a token may be signed with.
const ALGORITHMS: [&str; 3] = ["EdDSA", "ES256", "RS256"];

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// More than one `authorization` header: which one would count?
    #[error("more than one authorization header")]
    Duplicated,
    /// The header is not `Bearer <token>`, or the token not three parts of base64url and JSON.
    #[error("malformed")]
    Malformed,
    /// Longer than 8 KiB.
    #[error("longer than 8 KiB")]
    TooLong,
    /// Signed with an algorithm that is not its key's or that we do not know, or not at all.
    #[error("not signed with the algorithm of its key")]
    WrongAlgorithm,
    /// From an issuer that is not in the settings.
    #[error("from an unknown issuer")]
    UnknownIssuer,
    /// Signed with a key its issuer does not have.
    #[error("signed with an unknown key")]
    UnknownKey,
    /// The signature does not fit.
    #[error("the signature does not fit")]
    BadSignature,
    /// `exp` has passed.
    #[error("expired")]
    Expired,
    /// `nbf` has not come.
    #[error("not yet valid")]
    NotYetValid,
    /// Meant for somebody else.
    #[error("for another audience")]
    WrongAudience,
}

/// A token taken apart; nothing in it is proven yet.
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
    /// Extensions the verifier must understand; we understand none.
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

    /// Whose keys to try it with. Only a claim until [`UnverifiedToken::verify`] has been.
    pub(super) fn issuer(&self) -> Result<&str, TokenFault> {
        self.claims.get("iss").and_then(serde_json::Value::as_str).ok_or(TokenFault::UnknownIssuer)
    }

    /// The claims, once one of `keys` is proven to have signed them.
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

/// Claims whose signature has been verified.
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
            // Whole seconds only: the issuers we know write no others, and rounding would need floats.
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

    /// `aud` is a text or a list of them; one must be ours.
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

    /// `nbf` must not be after `latest`: now, plus what the issuer's clock may be ahead.
    pub(super) fn check_not_before(&self, latest: Timestamp) -> Result<(), TokenFault> {
        match self.not_before {
            Some(not_before) if not_before > latest => Err(TokenFault::NotYetValid),
            Some(_) | None => Ok(()),
        }
    }

    /// All of them, as the reader wants them.
    pub(super) fn all_as<C: serde::de::DeserializeOwned>(&self) -> Result<C, TokenFault> {
        C::deserialize(&self.all).map_err(|_| TokenFault::Malformed)
    }

    /// A claim that is a text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.all.get(name)?.as_str().map(str::to_owned)
    }

    /// A claim that is a truth value.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.all.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// The texts of a claim that is one or a list of them; dots in `path` go into objects.
    pub(super) fn texts(&self, path: &str) -> Vec<&str> {
        // The whole name first: some issuers name claims by URL, with dots in it.
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

/// A signed token with these claims.
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
