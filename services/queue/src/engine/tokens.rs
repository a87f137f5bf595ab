//! Turn tokens and queue tokens. Signing is deterministic: equal fields make equal tokens, so every device of a customer gets
//! the same token.

use std::time::Duration;

use onsale_kit::auth::{KeyError, KeySet, SigningKey, TokenFields, TokenReader, TokenSigner};
use onsale_types::{CustomerId, EntryId, EventId, Timestamp};
use serde::Serialize;

use crate::{
    domain::{
        entry::Entry,
        queue_token::{self, QueueTokenFields},
        refusal::Refusal,
        turn::{GrantedTurn, Turn},
        windowed_entry::WindowedEntry,
    },
    error::Error,
};

const ISSUER: &str = "queue";
/// Audience of turn tokens, which Claim accepts.
const TURN_AUDIENCE: &str = "onsale-turn";
/// Audience of queue tokens, which only Queue accepts.
const QUEUE_AUDIENCE: &str = "onsale-place";

/// Fields of a turn token besides its customer and expiry.
#[derive(Serialize)]
struct TurnTokenFields {
    event_id: EventId,
    entry_id: EntryId,
    fencing_number: u64,
}

/// Signs and verifies the tokens of Queue.
pub(crate) struct Tokens {
    signer: TokenSigner,
    queue_tokens: TokenReader,
    /// Time from joining to the expiry of a queue token.
    queue_token_lifetime: Duration,
    /// Has no slash at the end. Empty if no web shop is configured.
    web_url: String,
}

impl Tokens {
    /// Returns a signer with `signing_key`, which also verifies queue tokens.
    pub(crate) fn new(
        signing_key: &str,
        queue_token_lifetime: Duration,
        web_url: &str,
    ) -> Result<Self, KeyError> {
        let signer = TokenSigner::new(SigningKey::parse(signing_key)?, ISSUER);
        let queue_tokens = TokenReader::new(KeySet::parse(&signer.jwks())?, ISSUER, QUEUE_AUDIENCE);
        let web_url = web_url.trim_end_matches('/').to_owned();
        Ok(Self { signer, queue_tokens, queue_token_lifetime, web_url })
    }

    /// Signs the turn of an entry.
    pub(crate) fn entry_turn(&self, entry: &Entry, turn: Turn) -> Result<GrantedTurn, Error> {
        self.turn(entry.event_id, entry.entry_id, entry.customer_id, turn)
    }

    /// Signs a turn.
    pub(crate) fn turn(
        &self,
        event_id: EventId,
        entry_id: EntryId,
        customer_id: CustomerId,
        turn: Turn,
    ) -> Result<GrantedTurn, Error> {
        let fields = TurnTokenFields { event_id, entry_id, fencing_number: turn.fencing_number };
        let subject = customer_id.to_string();
        let facts = TokenFields { audience: TURN_AUDIENCE, subject: &subject, expiry: turn.expire_time };
        let token = self.signer.sign(&facts, &fields)?;
        Ok(GrantedTurn { turn, token, checkout_url: self.checkout_url(event_id) })
    }

    /// Signs the queue token of an entry.
    pub(crate) fn queue_token(&self, entry: &Entry) -> Result<String, Error> {
        let subject = entry.customer_id.to_string();
        let expiry = queue_token::expiry(entry, self.queue_token_lifetime);
        let facts = TokenFields { audience: QUEUE_AUDIENCE, subject: &subject, expiry };
        Ok(self.signer.sign(&facts, &QueueTokenFields::of(entry))?)
    }

    /// Returns the entry that a queue token names. Refuses one that is not genuine, not this customer's for this event, or
    /// expired.
    pub(crate) fn verify_queue_token(
        &self,
        token: &str,
        event_id: EventId,
        customer_id: CustomerId,
        now: Timestamp,
    ) -> Result<WindowedEntry, Refusal> {
        let read = self.queue_tokens.read::<QueueTokenFields>(token);
        let read = read.map_err(|_fault| Refusal::QueueTokenInvalid)?;
        let is_customers = read.subject == customer_id.to_string();
        let lifetime = self.queue_token_lifetime;
        read.claims.verify(is_customers, event_id, customer_id, read.expiry, lifetime, now)
    }

    /// Returns the page on which to choose and pay, or an empty text if no web shop is configured.
    pub(crate) fn checkout_url(&self, event_id: EventId) -> String {
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
