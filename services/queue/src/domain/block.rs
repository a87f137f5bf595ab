//! A customer kept out of an event's queue.

use onsale_types::{CustomerId, EventId, Timestamp};

/// A customer kept out of an event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of which event.
    pub event_id: EventId,
    /// Who.
    pub customer_id: CustomerId,
    /// Why, for organizers only; empty: not said.
    pub note: String,
    /// Since when.
    pub block_time: Timestamp,
}
