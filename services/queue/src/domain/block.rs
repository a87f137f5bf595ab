//! A customer kept out of an event's queue.

use onsale_types::{CustomerId, EventId, Timestamp};

/// A customer kept out of an event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Of which event.
    pub(crate) event_id: EventId,
    /// Who.
    pub(crate) customer_id: CustomerId,
    /// Why, for organizers only; empty: not said.
    pub(crate) note: String,
    /// Since when.
    pub(crate) block_time: Timestamp,
}
