//! Tokens of our own that travel through a client and come back: a turn, a place in line, a session of development.
//!
//! The signer is one service, the reader may be another: it needs the public keys only. What a token is for stands in its
//! audience, so that none can be shown as another.

use std::fmt;

use onsale_types::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    KeySet, SigningKey, TokenFault,
    jwt::{self, TOKEN_BYTES_MAX, UnverifiedToken},
};

/// What every signed token says.
#[derive(Clone, Copy, Debug)]
pub struct TokenFields<'a> {
    /// What the token is for.
    pub audience: &'a str,
    /// Whose it is.
    pub subject: &'a str,
    /// When it ends. Whole seconds travel; a fraction is dropped.
    pub expiry: Timestamp,
}

/// Signs tokens with one key.
pub struct TokenSigner {
    key: SigningKey,
    key_id: String,
    issuer: String,
}

/// The claims of a token do not make a JSON object. A mistake of the code, never of a caller.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// They cannot be written as JSON.
    #[error("failed to write the claims")]
    Write(#[source] serde_json::Error),
    /// They are something else than an object.
    #[error("the claims are not an object")]
    NotAnObject,
}

impl TokenSigner {
    /// Signs as `issuer`.
    #[must_use]
    pub fn new(key: SigningKey, issuer: &str) -> Self {
        Self { key_id: key.key_id(), key, issuer: issuer.to_owned() }
    }

    /// A token that says `fields`, and the fields of `claims` beside them.
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

    /// The public key, as a JSON Web Key Set for readers.
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

/// A token whose signature, issuer and audience are proven. Whether it has ended is for whoever reads it to say: by which
/// clock, and what an ended one still means, differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedToken<C> {
    /// Whose it is.
    pub subject: String,
    /// When it ends.
    pub expiry: Timestamp,
    /// What it says besides.
    pub claims: C,
}

/// Reads the tokens of one issuer for one purpose.
#[derive(Clone, Debug)]
pub struct TokenReader {
    keys: KeySet,
    issuer: String,
    audiences: [String; 1],
}

impl TokenReader {
    /// Accepts tokens of `issuer` for `audience`, signed with one of `keys`.
    #[must_use]
    pub fn new(keys: KeySet, issuer: &str, audience: &str) -> Self {
        Self { keys, issuer: issuer.to_owned(), audiences: [audience.to_owned()] }
    }

    /// What `token` says, if it is genuine. Does not look at its expiry.
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
    fn what_was_signed_is_read() {
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
    fn a_token_for_another_purpose_of_another_issuer_or_key_is_refused() {
        let signer = signer();
        let token = signer.sign(&FIELDS, &Turn { fencing_number: 7 }).unwrap();
        let refused = |reader: TokenReader| reader.read::<Turn>(&token).unwrap_err();
        assert_eq!(refused(reader(&signer, "queue", "place")), TokenFault::WrongAudience);
        assert_eq!(refused(reader(&signer, "inventory", "turn")), TokenFault::UnknownIssuer);
        assert_eq!(refused(reader(&self::signer(), "queue", "turn")), TokenFault::UnknownKey);
    }

    #[test]
    fn a_changed_token_is_refused() {
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
