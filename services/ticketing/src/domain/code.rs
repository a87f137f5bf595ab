//! Ticket codes: small enough to scan as a QR code from a scratched phone, and signed, so that a scanner without a network can
//! verify them.
//!
//! 111 bytes, written as 148 characters of URL-safe base64 (QR version 8 at medium error correction):
//!
//! | bytes | content |
//! |---|---|
//! | 1 | version of this format: 1 |
//! | 12 | id of the signing key |
//! | 16 | event id |
//! | 16 | ticket id |
//! | 2 | serial, big endian; a transferred ticket gets the next |
//! | 64 | Ed25519 signature of all bytes before it |
//!
//! Anyone who shows a code is admitted, so codes must never be logged.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use onsale_kit::auth::{KeyError, KeySet, SigningKey};
use onsale_types::{EventId, TicketId};
use uuid::Uuid;

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 12;
const SIGNATURE_BYTES: usize = 64;
/// Length of every code.
pub(crate) const CODE_CHARS: usize = 148;

/// Text of a code, verified or not. Prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Code(String);

impl Code {
    /// Wraps a text that was stored or scanned. Only [`Codes::read`] verifies it.
    #[must_use]
    pub fn from_text(text: String) -> Self {
        Self(text)
    }

    /// Returns the text. It must not be logged.
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

/// Signed content of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePayload {
    /// Event that the code admits to.
    pub event_id: EventId,
    /// Ticket whose code this is.
    pub ticket_id: TicketId,
    /// Number of the code among those of the ticket, from 0.
    pub serial: u16,
}

/// The code is malformed or not signed by us. Both have the same error, so that a forger learns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the code is malformed or was not signed by this service")]
pub struct CodeInvalid;

/// Signs and verifies codes.
#[derive(Debug)]
pub struct Codes {
    key: SigningKey,
    key_id: [u8; KEY_ID_BYTES],
    current: KeySet,
    retired: Option<KeySet>,
}

impl Codes {
    /// Creates codes that are signed with `key`. Codes that were signed with a key of `retired` are accepted too.
    pub fn new(key: SigningKey, retired: Option<KeySet>) -> Result<Self, KeyError> {
        let current = KeySet::parse(&key.jwks())?;
        let key_id = URL_SAFE_NO_PAD.decode(key.key_id()).ok().and_then(|bytes| bytes.try_into().ok());
        Ok(Self { key_id: key_id.ok_or(KeyError::NoUsableKey)?, key, current, retired })
    }

    /// Returns the code of a payload, which is the same every time for the same key.
    #[must_use]
    pub fn sign(&self, payload: &CodePayload) -> Code {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.key_id);
        bytes.extend_from_slice(payload.event_id.as_uuid().as_bytes());
        bytes.extend_from_slice(payload.ticket_id.as_uuid().as_bytes());
        bytes.extend_from_slice(&payload.serial.to_be_bytes());
        let signature = self.key.sign(&bytes);
        bytes.extend_from_slice(&signature);
        Code(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Returns the payload of a code that was signed with one of our keys.
    pub fn read(&self, code: &Code) -> Result<CodePayload, CodeInvalid> {
        if code.0.len() != CODE_CHARS {
            return Err(CodeInvalid);
        }
        let bytes = URL_SAFE_NO_PAD.decode(&code.0).map_err(|_| CodeInvalid)?;
        let (signed, signature) = bytes.split_last_chunk::<SIGNATURE_BYTES>().ok_or(CodeInvalid)?;
        let (key_id, payload) = parse(signed).ok_or(CodeInvalid)?;
        let key_id = URL_SAFE_NO_PAD.encode(key_id);
        let keys = std::iter::once(&self.current).chain(&self.retired);
        let mut verdicts = keys.filter_map(|keys| keys.verify(&key_id, signed, signature));
        if verdicts.any(|is_good| is_good) { Ok(payload) } else { Err(CodeInvalid) }
    }
}

fn parse(signed: &[u8]) -> Option<([u8; KEY_ID_BYTES], CodePayload)> {
    let (version, rest) = signed.split_first_chunk::<1>()?;
    let (key_id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
    let (event, rest) = rest.split_first_chunk::<16>()?;
    let (ticket, rest) = rest.split_first_chunk::<16>()?;
    let serial: [u8; 2] = rest.try_into().ok()?;
    let payload = CodePayload {
        event_id: EventId::from_uuid(Uuid::from_bytes(*event)),
        ticket_id: TicketId::from_uuid(Uuid::from_bytes(*ticket)),
        serial: u16::from_be_bytes(serial),
    };
    (*version == [VERSION]).then_some((*key_id, payload))
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

    fn payload() -> CodePayload {
        CodePayload { event_id: EventId::generate(), ticket_id: TicketId::generate(), serial: 0 }
    }

    fn any_payload() -> impl Strategy<Value = CodePayload> {
        (any::<u128>(), any::<u128>(), any::<u16>()).prop_map(|(event, ticket, serial)| CodePayload {
            event_id: EventId::from_uuid(Uuid::from_u128(event)),
            ticket_id: TicketId::from_uuid(Uuid::from_u128(ticket)),
            serial,
        })
    }

    proptest! {
        #[test]
        fn code_has_a_fixed_length_and_reads_back_as_its_payload(payload in any_payload()) {
            let codes = codes();
            let code = codes.sign(&payload);
            prop_assert_eq!(code.expose().len(), CODE_CHARS);
            prop_assert_eq!(codes.read(&code), Ok(payload));
            prop_assert_eq!(codes.sign(&payload), code);
        }

        #[test]
        fn different_payloads_have_different_codes(first in any_payload(), second in any_payload()) {
            let codes = codes();
            prop_assert_eq!(codes.sign(&first) == codes.sign(&second), first == second);
        }

        #[test]
        fn code_with_a_flipped_bit_is_refused(payload in any_payload(), at in 0..111_usize, bit in 0..8_u8) {
            let codes = codes();
            let mut bytes = URL_SAFE_NO_PAD.decode(codes.sign(&payload).expose()).unwrap();
            bytes[at] ^= 1 << bit;
            let changed = Code::from_text(URL_SAFE_NO_PAD.encode(bytes));
            prop_assert_eq!(codes.read(&changed), Err(CodeInvalid));
        }

        #[test]
        fn arbitrary_text_is_refused_without_a_panic(text in ".{0,200}") {
            prop_assert_eq!(codes().read(&Code::from_text(text)), Err(CodeInvalid));
        }
    }

    #[test]
    fn code_of_another_key_is_refused_unless_the_key_is_retired() {
        let (old, new) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let parse = |text: &str| SigningKey::parse(text).unwrap();
        let old_codes = Codes::new(parse(&old), None).unwrap();
        let payload = payload();
        let code = old_codes.sign(&payload);
        let without = Codes::new(parse(&new), None).unwrap();
        assert_eq!(without.read(&code), Err(CodeInvalid));
        let retired = KeySet::parse(&parse(&old).jwks()).unwrap();
        let with = Codes::new(parse(&new), Some(retired)).unwrap();
        assert_eq!(with.read(&code), Ok(payload));
    }

    #[test]
    fn code_is_not_printed() {
        let code = codes().sign(&payload());
        assert_eq!(format!("{code:?}"), "Code(***)");
    }
}
