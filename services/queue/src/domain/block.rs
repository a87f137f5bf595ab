//! A customer whom the organizer keeps out of an event's queue.

use onsale_types::{CustomerId, EventId, Timestamp};

/// A customer whom the organizer keeps out of an event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// The organizer's reason, shown to organizers only; may be empty.
    pub(crate) note: String,
    pub(crate) block_time: Timestamp,
}

/// Outcome of `BlockCustomer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) block: Block,
    /// True if the block ended an open entry.
    pub(crate) entry_removed: bool,
}
