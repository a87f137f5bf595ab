//! The queue token: proof of a customer's entry, and in a WINDOWED queue its only record.

use std::time::Duration;

use onsale_types::{CustomerId, EntryId, EventId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{entry::Entry, refusal::Refusal, windowed_entry::WindowedEntry};

/// Fields of a queue token besides its customer and expiry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct QueueTokenFields {
    event_id: EventId,
    entry_id: EntryId,
    seq: u64,
    /// `None` in tokens of versions that did not have the field.
    #[serde(default)]
    join_time: Option<Timestamp>,
}

impl QueueTokenFields {
    /// Returns the fields for an entry.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            event_id: entry.event_id,
            entry_id: entry.entry_id,
            seq: entry.seq,
            join_time: Some(entry.join_time),
        }
    }

    /// Returns the entry that a genuine token names. Refuses the token of another customer or event, and one that expired at
    /// `now` or earlier. `lifetime` is the time from joining to expiry.
    pub(crate) fn verify(
        &self,
        is_customers: bool,
        event_id: EventId,
        customer_id: CustomerId,
        expiry: Timestamp,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<WindowedEntry, Refusal> {
        if !is_customers || self.event_id != event_id || expiry <= now {
            return Err(Refusal::QueueTokenInvalid);
        }
        let join_time = self.join_time.or_else(|| expiry.checked_sub(lifetime)).unwrap_or(expiry);
        Ok(WindowedEntry { event_id, customer_id, seq: self.seq, join_time })
    }
}

/// Returns the time at which the queue token of an entry expires.
pub(crate) fn expiry(entry: &Entry, lifetime: Duration) -> Timestamp {
    entry.join_time.checked_add(lifetime).unwrap_or(entry.join_time)
}
