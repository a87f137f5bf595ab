//! A ticket's code: what is in the QR, small enough to scan from a scratched phone, and signed, so that a scanner without a
//! network can tell ours from all others.
//!
//! 111 bytes, as 148 characters of URL-safe base64 (QR version 8 at medium correction):
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version of this form: 1 |
//! | 12 | id of the key that signed it |
//! | 16 | event |
//! | 16 | ticket |
//! | 2 | serial, big endian: a transferred ticket gets the next |
//! | 64 | Ed25519 signature of all before it |
//!
//! Whoever shows a code gets in: it must never be printed by accident.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use onsale_kit::auth::{KeyError, KeySet, SigningKey};
use onsale_types::{EventId, TicketId};
use uuid::Uuid;

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 12;
const SIGNATURE_BYTES: usize = 64;
/// Every code has exactly this many characters.
pub const CODE_CHARS: usize = 148;

/// The text of a code. Prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Code(String);

impl Code {
    /// Takes what our own store gave back, or a caller showed; only [`Codes::read`] says whether it is good.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Code(***)")
    }
}

/// What a code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFacts {
    /// The event it admits to.
    pub event_id: EventId,
    /// The ticket.
    pub ticket_id: TicketId,
    /// Which of the ticket's codes it is.
    pub serial: u16,
}

/// The code is malformed or not signed by us. One error for both: a forger learns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a code of ours")]
pub struct CodeInvalid;

/// Makes codes and reads them.
#[derive(Debug)]
pub struct Codes {
    key: SigningKey,
    key_id: [u8; KEY_ID_BYTES],
    current: KeySet,
    retired: Option<KeySet>,
}

impl Codes {
    /// Signs with `key`; reads codes of `retired` keys too.
    pub fn new(key: SigningKey, retired: Option<KeySet>) -> Result<Self, KeyError> {
        let current = KeySet::parse(&key.jwks())?;
        let key_id = URL_SAFE_NO_PAD.decode(key.key_id()).ok().and_then(|bytes| bytes.try_into().ok());
        Ok(Self { key_id: key_id.ok_or(KeyError::NoUsableKey)?, key, current, retired })
    }

    /// The code of a ticket: always the same for the same facts and key.
    #[must_use]
    pub fn sign(&self, facts: &CodeFacts) -> Code {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.key_id);
        bytes.extend_from_slice(facts.event_id.as_uuid().as_bytes());
        bytes.extend_from_slice(facts.ticket_id.as_uuid().as_bytes());
        bytes.extend_from_slice(&facts.serial.to_be_bytes());
        let signature = self.key.sign(&bytes);
        bytes.extend_from_slice(&signature);
        Code(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// What a code says, if we signed it.
    pub fn read(&self, code: &Code) -> Result<CodeFacts, CodeInvalid> {
        if code.0.len() != CODE_CHARS {
            return Err(CodeInvalid);
        }
        let bytes = URL_SAFE_NO_PAD.decode(&code.0).map_err(|_| CodeInvalid)?;
        let (signed, signature) = bytes.split_last_chunk::<SIGNATURE_BYTES>().ok_or(CodeInvalid)?;
        let (key_id, facts) = parse(signed).ok_or(CodeInvalid)?;
        let key_id = URL_SAFE_NO_PAD.encode(key_id);
        let keys = std::iter::once(&self.current).chain(&self.retired);
        let mut verdicts = keys.filter_map(|keys| keys.verify(&key_id, signed, signature));
        if verdicts.any(|is_good| is_good) { Ok(facts) } else { Err(CodeInvalid) }
    }
}

fn parse(signed: &[u8]) -> Option<([u8; KEY_ID_BYTES], CodeFacts)> {
    let (version, rest) = signed.split_first_chunk::<1>()?;
    let (key_id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
    let (event, rest) = rest.split_first_chunk::<16>()?;
    let (ticket, rest) = rest.split_first_chunk::<16>()?;
    let serial: [u8; 2] = rest.try_into().ok()?;
    let facts = CodeFacts {
        event_id: EventId::from_uuid(Uuid::from_bytes(*event)),
        ticket_id: TicketId::from_uuid(Uuid::from_bytes(*ticket)),
        serial: u16::from_be_bytes(serial),
    };
    (*version == [VERSION]).then_some((*key_id, facts))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn codes() -> Codes {
        Codes::new(new_key(), None).unwrap()
    }

    fn new_key() -> SigningKey {
        SigningKey::parse(&SigningKey::generate().unwrap()).unwrap()
    }

    fn facts() -> CodeFacts {
        CodeFacts { event_id: EventId::generate(), ticket_id: TicketId::generate(), serial: 0 }
    }

    fn any_facts() -> impl Strategy<Value = CodeFacts> {
        (any::<u128>(), any::<u128>(), any::<u16>()).prop_map(|(event, ticket, serial)| CodeFacts {
            event_id: EventId::from_uuid(Uuid::from_u128(event)),
            ticket_id: TicketId::from_uuid(Uuid::from_u128(ticket)),
            serial,
        })
    }

    proptest! {
        #[test]
        fn a_code_is_read_back_and_has_its_fixed_length(facts in any_facts()) {
            let codes = codes();
            let code = codes.sign(&facts);
            prop_assert_eq!(code.expose().len(), CODE_CHARS);
            prop_assert_eq!(codes.read(&code), Ok(facts));
            prop_assert_eq!(codes.sign(&facts), code);
        }

        #[test]
        fn other_facts_make_another_code(first in any_facts(), second in any_facts()) {
            let codes = codes();
            prop_assert_eq!(codes.sign(&first) == codes.sign(&second), first == second);
        }

        #[test]
        fn a_code_with_any_bit_changed_is_refused(facts in any_facts(), at in 0..111_usize, bit in 0..8_u8) {
            let codes = codes();
            let mut bytes = URL_SAFE_NO_PAD.decode(codes.sign(&facts).expose()).unwrap();
            bytes[at] ^= 1 << bit;
            let changed = Code::from_text(URL_SAFE_NO_PAD.encode(bytes));
            prop_assert_eq!(codes.read(&changed), Err(CodeInvalid));
        }

        #[test]
        fn no_text_makes_read_panic(text in ".{0,200}") {
            prop_assert_eq!(codes().read(&Code::from_text(text)), Err(CodeInvalid));
        }
    }

    #[test]
    fn a_code_of_another_key_is_refused_unless_that_key_is_retired() {
        let (old, new) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let parse = |text: &str| SigningKey::parse(text).unwrap();
        let old_codes = Codes::new(parse(&old), None).unwrap();
        let facts = facts();
        let code = old_codes.sign(&facts);
        let without = Codes::new(parse(&new), None).unwrap();
        assert_eq!(without.read(&code), Err(CodeInvalid));
        let retired = KeySet::parse(&parse(&old).jwks()).unwrap();
        let with = Codes::new(parse(&new), Some(retired)).unwrap();
        assert_eq!(with.read(&code), Ok(facts));
    }

    #[test]
    fn a_code_is_never_printed() {
        let code = codes().sign(&facts());
        assert_eq!(format!("{code:?}"), "Code(***)");
    }
}
