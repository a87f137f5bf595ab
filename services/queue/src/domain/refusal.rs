//! Every reason for which a queue refuses a request.

use onsale_types::{EventId, Named as _, SectorId, Timestamp};

use super::{
    entry::EntryState,
    policy::QueueMode,
    queue::{CloseReason, QueueState},
};

/// A request that the rules do not allow. `error.rs` maps it to a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// The event does not exist, or this caller may not know of it.
    #[error("there is no such event")]
    EventNotFound { event_id: EventId },
    #[error("the event belongs to another organizer")]
    EventNotOwned { event_id: EventId },
    #[error("the queue is not open yet")]
    QueueNotOpen {
        /// `None` if the opening time is unknown or not public.
        open_time: Option<Timestamp>,
        /// Time of the refused request.
        now: Timestamp,
    },
    #[error("joining is paused")]
    QueuePaused,
    /// The queue is closed for another reason than a sell-out.
    #[error("the queue is closed")]
    QueueClosed { reason: CloseReason },
    #[error("the event is sold out")]
    SoldOut {
        /// Sectors that the organizer named as still available.
        remaining: Vec<SectorId>,
    },
    #[error("the queue is full")]
    QueueFull {
        /// Largest number of waiting entries.
        waiting_max: u64,
    },
    #[error("the organizer has blocked the customer from this event")]
    CustomerBlocked,
    /// The customer never joined, or never had this turn.
    #[error("the customer has no such entry in this queue")]
    EntryNotFound { event_id: EventId },
    #[error("the entry is no longer in line")]
    EntryNotWaiting {
        /// Present state of the entry.
        state: EntryState,
    },
    #[error("a WINDOWED queue has no neighbors")]
    NeighborsNotTracked,
    /// The token belongs to another customer or event, is not genuine or has expired.
    #[error("the queue token is not valid for this customer and event")]
    QueueTokenInvalid,
    /// A WINDOWED queue identifies its entries by their tokens only.
    #[error("a WINDOWED queue requires a queue token")]
    QueueTokenRequired,
    #[error("the turn has expired")]
    TurnExpired { expire_time: Timestamp },
    #[error("the customer has a newer turn")]
    TurnStale,
    /// The turn was completed or abandoned.
    #[error("the turn has ended")]
    TurnEnded {
        /// Present state of the entry.
        state: EntryState,
    },
    #[error("a queue in state {} does not allow this transition", state.name())]
    TransitionInvalid {
        /// Present state of the queue.
        state: QueueState,
    },
    #[error("the mode of a queue that has entries stays {}", mode.name())]
    ModeFixed {
        /// Present mode of the queue.
        mode: QueueMode,
    },
}
