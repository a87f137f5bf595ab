//! Signed tokens of our own that pass through a client and come back: turns, queue tokens, development sessions.
//!
//! One service signs, and any service with the public key can read. The audience states the purpose, so that no token can
//! be used for another one.

use std::fmt;

use onsale_types::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    KeySet, SigningKey, TokenFault,
    jwt::{self, TOKEN_BYTES_MAX, UnverifiedToken},
};

/// The fields that every signed token has.
#[derive(Clone, Copy, Debug)]
pub struct TokenFields<'a> {
    /// Purpose of the token.
    pub audience: &'a str,
    /// The person or entry that the token belongs to.
    pub subject: &'a str,
    /// End of validity. Encoded in whole seconds; a fraction is dropped.
    pub expiry: Timestamp,
}

/// Signs tokens of one issuer with one key.
pub struct TokenSigner {
    key: SigningKey,
    key_id: String,
    issuer: String,
}

/// Claims that cannot be signed, which is a mistake in the code and never a caller's.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The claims have no JSON form.
    #[error("failed to encode the claims")]
    Write(#[source] serde_json::Error),
    /// The claims are JSON, but not an object.
    #[error("the claims are not an object")]
    NotAnObject,
}

impl TokenSigner {
    /// Creates a signer for `issuer`.
    #[must_use]
    pub fn new(key: SigningKey, issuer: &str) -> Self {
        Self { key_id: key.key_id(), key, issuer: issuer.to_owned() }
    }

    /// Signs a token with `fields` and the fields of `claims`. `fields` win where both set a name.
    pub fn sign<C: Serialize>(&self, fields: &TokenFields<'_>, claims: &C) -> Result<String, SignError> {
        let mut all = match serde_json::to_value(claims).map_err(SignError::Write)? {
            serde_json::Value::Object(all) => all,
            _ => return Err(SignError::NotAnObject),
        };
        let seconds = fields.expiry.as_micros().div_euclid(1_000_000);
        for (name, value) in [
            ("iss", self.issuer.as_str().into()),
            ("aud", fields.audience.into()),
            ("sub", fields.subject.into()),
            ("exp", seconds.into()),
        ] {
            all.insert(name.to_owned(), value);
        }
        Ok(jwt::sign(&self.key, &self.key_id, &serde_json::Value::Object(all)))
    }

    /// Returns a JSON Web Key Set with the public key, for readers.
    #[must_use]
    pub fn jwks(&self) -> String {
        self.key.jwks()
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSigner").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// A token whose signature, issuer and audience were verified, but not its expiry: readers differ in their clock and in
/// the meaning of an expired token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedToken<C> {
    /// The person or entry that the token belongs to.
    pub subject: String,
    /// End of validity, not checked.
    pub expiry: Timestamp,
    /// The other claims.
    pub claims: C,
}

/// Verifies the tokens of one issuer for one purpose.
#[derive(Clone, Debug)]
pub struct TokenReader {
    keys: KeySet,
    issuer: String,
    audiences: [String; 1],
}

impl TokenReader {
    /// Accepts tokens of `issuer` for `audience` that one of `keys` signed.
    #[must_use]
    pub fn new(keys: KeySet, issuer: &str, audience: &str) -> Self {
        Self { keys, issuer: issuer.to_owned(), audiences: [audience.to_owned()] }
    }

    /// Verifies `token` and returns its content. Does not check its expiry.
    pub fn read<C: DeserializeOwned>(&self, token: &str) -> Result<SignedToken<C>, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong);
        }
        let unverified = UnverifiedToken::parse(token)?;
        if unverified.issuer()? != self.issuer {
            return Err(TokenFault::UnknownIssuer);
        }
        let claims = unverified.verify(&self.keys)?;
        claims.check_audience(&self.audiences)?;
        Ok(SignedToken { subject: claims.subject.clone(), expiry: claims.expiry, claims: claims.all_as()? })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Turn {
        fencing_number: u64,
    }

    const FIELDS: TokenFields<'_> =
        TokenFields { audience: "turn", subject: "somebody", expiry: Timestamp::from_secs(60) };

    fn signer() -> TokenSigner {
        TokenSigner::new(SigningKey::parse(&SigningKey::generate().unwrap()).unwrap(), "queue")
    }

    fn reader(signer: &TokenSigner, issuer: &str, audience: &str) -> TokenReader {
        TokenReader::new(KeySet::parse(&signer.jwks()).unwrap(), issuer, audience)
    }

    #[test]
    fn signed_token_is_read() {
        let signer = signer();
        let token = signer.sign(&FIELDS, &Turn { fencing_number: 7 }).unwrap();
        let read = reader(&signer, "queue", "turn").read::<Turn>(&token).unwrap();
        assert_eq!(
            read,
            SignedToken {
                subject: "somebody".to_owned(),
                expiry: Timestamp::from_secs(60),
                claims: Turn { fencing_number: 7 }
            }
        );
    }

    #[test]
    fn token_of_another_audience_issuer_or_key_is_refused() {
        let signer = signer();
        let token = signer.sign(&FIELDS, &Turn { fencing_number: 7 }).unwrap();
        let refused = |reader: TokenReader| reader.read::<Turn>(&token).unwrap_err();
        assert_eq!(refused(reader(&signer, "queue", "place")), TokenFault::WrongAudience);
        assert_eq!(refused(reader(&signer, "inventory", "turn")), TokenFault::UnknownIssuer);
        assert_eq!(refused(reader(&self::signer(), "queue", "turn")), TokenFault::UnknownKey);
    }

    #[test]
    fn changed_token_is_refused() {
        let signer = signer();
        let token = signer.sign(&FIELDS, &Turn { fencing_number: 7 }).unwrap();
        let other = signer.sign(&FIELDS, &Turn { fencing_number: 8 }).unwrap();
        let (signed, _) = other.rsplit_once('.').unwrap();
        let (_, signature) = token.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{signature}");
        assert_eq!(
            reader(&signer, "queue", "turn").read::<Turn>(&forged).unwrap_err(),
            TokenFault::BadSignature
        );
    }

    #[test]
    fn claims_cannot_override_the_token_fields() {
        #[derive(Serialize)]
        struct Sly {
            sub: &'static str,
            fencing_number: u64,
        }
        let signer = signer();
        let token = signer.sign(&FIELDS, &Sly { sub: "somebody else", fencing_number: 1 }).unwrap();
        assert_eq!(reader(&signer, "queue", "turn").read::<Turn>(&token).unwrap().subject, "somebody");
    }
}
