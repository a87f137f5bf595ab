//! Events that Queue publishes, and the updates of Inventory that it consumes.

use onsale_types::Timestamp;

use super::{
    entry::Entry,
    milestone::PassedMilestone,
    queue::{EventDetails, Queue, QueueAndLine},
    turn::Turn,
};

/// An event for the outbox. `convert::events` encodes it.
#[derive(Clone, Debug)]
pub(crate) enum OutgoingQueueEvent<'a> {
    /// An entry was admitted.
    TurnGranted {
        queue: &'a Queue,
        entry: &'a Entry,
        turn: Turn,
        /// Empty if no web shop is configured.
        checkout_url: &'a str,
    },
    /// An entry ended without a purchase.
    Expired { queue: &'a Queue, entry: &'a Entry },
    /// Customers without an open stream passed a milestone.
    PositionUpdate { current: &'a QueueAndLine, milestone: u64, passed: &'a [PassedMilestone] },
}

/// A message for systems outside the mesh, on the Redis channel `queue_events`. `convert::external` encodes it.
#[derive(Clone, Debug)]
pub(crate) enum ExternalMessage<'a> {
    /// An entry was admitted.
    TurnGranted { entry: &'a Entry, token: &'a str },
    /// An entry ended without a purchase.
    Expired { entry: &'a Entry },
}

/// A report of Inventory about an event. Each kind has revisions of its own; an older revision changes nothing.
#[derive(Clone, Debug)]
pub(crate) enum InventoryUpdate {
    /// The event was created, or its draft changed.
    Created(EventDetails),
    /// The event was made public.
    Activated {
        revision: u64,
        /// Opening time of the queue; `None`: now.
        on_sale_time: Option<Timestamp>,
    },
    /// The sale ended for good.
    Ended { revision: u64 },
    /// No unit is free or held.
    SoldOut { revision: u64 },
    /// Units became free again.
    Available { revision: u64 },
}

impl Queue {
    /// Applies an update of Inventory; returns true if it was newer than the known state.
    pub(crate) fn apply_inventory_update(&mut self, update: InventoryUpdate, now: Timestamp) -> bool {
        match update {
            InventoryUpdate::Created(details) => self.created(details, now),
            InventoryUpdate::Activated { revision, on_sale_time } => {
                self.activated(revision, on_sale_time, now)
            }
            InventoryUpdate::Ended { revision } => self.ended(revision, now),
            InventoryUpdate::SoldOut { revision } => self.sold_out(revision, now),
            InventoryUpdate::Available { revision } => self.available(revision, now),
        }
    }
}
