//! Turn tokens and queue tokens. Equal facts make equal tokens, so every device of a customer gets the same.

use std::time::Duration;

use onsale_kit::auth::{KeyError, KeySet, SigningKey, TokenFields, TokenReader, TokenSigner};
use onsale_types::{CustomerId, EntryId, EventId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        entry::{Entry, Turn},
        refusal::Refusal,
        window::Ticket,
    },
    error::Error,
};

/// Who signs.
const ISSUER: &str = "queue";
/// What Claim takes.
const TURN: &str = "onsale-turn";
/// What Queue itself takes.
const PLACE: &str = "onsale-place";

/// What a turn token says besides customer and expiry.
#[derive(Serialize)]
struct TurnClaims {
    event_id: EventId,
    entry_id: EntryId,
    fencing_number: u64,
}

/// What a queue token says besides customer and expiry.
#[derive(Serialize, Deserialize)]
struct PlaceClaims {
    event_id: EventId,
    entry_id: EntryId,
    seq: u64,
    /// None in tokens older than the field.
    #[serde(default)]
    join_time: Option<Timestamp>,
}

/// A turn with what its customer needs to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedTurn {
    /// The turn.
    pub turn: Turn,
    /// Its token.
    pub token: String,
    /// Page on which to choose and pay; empty: none.
    pub checkout_url: String,
}

/// Signs and reads the tokens of Queue.
pub struct Tokens {
    signer: TokenSigner,
    places: TokenReader,
    place_lifetime: Duration,
    /// Without a slash at the end; empty: no web shop.
    web_url: String,
}

impl Tokens {
    /// Signs with `signing_key`; queue tokens last for `place_lifetime` from joining.
    pub fn new(signing_key: &str, place_lifetime: Duration, web_url: &str) -> Result<Self, KeyError> {
        let signer = TokenSigner::new(SigningKey::parse(signing_key)?, ISSUER);
        let places = TokenReader::new(KeySet::parse(&signer.jwks())?, ISSUER, PLACE);
        Ok(Self { signer, places, place_lifetime, web_url: web_url.trim_end_matches('/').to_owned() })
    }

    /// The turn of an entry, with its token.
    pub fn turn(&self, entry: &Entry, turn: Turn) -> Result<GrantedTurn, Error> {
        self.turn_of(entry.event_id, entry.entry_id, entry.customer_id, turn)
    }

    /// The same, of an entry of which no more is known.
    pub fn turn_of(
        &self,
        event_id: EventId,
        entry_id: EntryId,
        customer_id: CustomerId,
        turn: Turn,
    ) -> Result<GrantedTurn, Error> {
        let claims = TurnClaims { event_id, entry_id, fencing_number: turn.fencing_number };
        let subject = customer_id.to_string();
        let facts = TokenFields { audience: TURN, subject: &subject, expiry: turn.expire_time };
        let token = self.signer.sign(&facts, &claims)?;
        Ok(GrantedTurn { turn, token, checkout_url: self.checkout_url(event_id) })
    }

    /// The queue token of an entry.
    pub fn place(&self, entry: &Entry) -> Result<String, Error> {
        let claims = PlaceClaims {
            event_id: entry.event_id,
            entry_id: entry.entry_id,
            seq: entry.seq,
            join_time: Some(entry.join_time),
        };
        let subject = entry.customer_id.to_string();
        let expiry = entry.join_time.checked_add(self.place_lifetime).unwrap_or(entry.join_time);
        Ok(self.signer.sign(&TokenFields { audience: PLACE, subject: &subject, expiry }, &claims)?)
    }

    /// The place that a queue token says. Refuses one that is not this customer's for this event, or too old.
    pub fn check_place(
        &self,
        token: &str,
        event_id: EventId,
        customer_id: CustomerId,
        now: Timestamp,
    ) -> Result<Ticket, Refusal> {
        let read = self.places.read::<PlaceClaims>(token).map_err(|_fault| Refusal::QueueTokenInvalid)?;
        let is_theirs = read.subject == customer_id.to_string() && read.claims.event_id == event_id;
        if !is_theirs || read.expiry <= now {
            return Err(Refusal::QueueTokenInvalid);
        }
        let join_time = read.claims.join_time.or_else(|| read.expiry.checked_sub(self.place_lifetime));
        let join_time = join_time.unwrap_or(read.expiry);
        Ok(Ticket { event_id, customer_id, seq: read.claims.seq, join_time })
    }

    /// Where to choose and pay; empty: no web shop is configured.
    #[must_use]
    pub fn checkout_url(&self, event_id: EventId) -> String {
        if self.web_url.is_empty() {
            return String::new();
        }
        format!("{}/events/{event_id}/checkout", self.web_url)
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tokens").finish_non_exhaustive()
    }
}
