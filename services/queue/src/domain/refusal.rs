//! Everything a queue can say no with.

use onsale_types::{EventId, SectorId, Timestamp};

use super::{
    entry::EntryState,
    policy::QueueMode,
    queue::{CloseReason, QueueState},
};

/// Why something may not happen. `error.rs` says how a caller hears of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No such event, as far as this caller may know.
    #[error("there is no such event")]
    EventNotFound {
        /// The event asked for.
        event_id: EventId,
    },
    /// The event is another organizer's.
    #[error("the event belongs to another organizer")]
    EventNotOwned {
        /// The event.
        event_id: EventId,
    },
    /// The queue is not open yet.
    #[error("the queue is not open yet")]
    QueueNotOpen {
        /// When it opens, if that is known.
        open_time: Option<Timestamp>,
        /// The time of the question.
        now: Timestamp,
    },
    /// Joining is paused.
    #[error("joining is paused")]
    QueuePaused,
    /// The queue is closed, and not because of a sell-out.
    #[error("the queue is closed")]
    QueueClosed {
        /// Why.
        reason: CloseReason,
    },
    /// Nothing is left to wait for.
    #[error("the event is sold out")]
    SoldOut {
        /// Sectors named as still available.
        remaining: Vec<SectorId>,
    },
    /// As many wait as may.
    #[error("the queue is full")]
    QueueFull {
        /// How many may.
        waiting_max: u64,
    },
    /// The organizer keeps the customer out.
    #[error("the organizer keeps the customer out of this event")]
    CustomerBlocked,
    /// The customer never joined, or never had such a turn.
    #[error("the customer has no such entry in this queue")]
    EntryNotFound {
        /// The event.
        event_id: EventId,
    },
    /// The entry is no longer in line.
    #[error("the entry is no longer in line")]
    EntryNotWaiting {
        /// What it is now.
        state: EntryState,
    },
    /// The queue does not know who is next to whom.
    #[error("the queue does not know who is next to whom")]
    NeighborsNotTracked,
    /// The queue token is not this customer's for this event.
    #[error("the queue token is not valid here")]
    QueueTokenInvalid,
    /// The queue knows its customers by their token only.
    #[error("a queue token is required here")]
    QueueTokenRequired,
    /// The turn ran out.
    #[error("the turn ran out")]
    TurnExpired {
        /// When.
        expire_time: Timestamp,
    },
    /// The customer has a newer turn.
    #[error("the customer has a newer turn")]
    TurnStale,
    /// The turn was completed or given up.
    #[error("the turn has ended")]
    TurnEnded {
        /// What the entry is now.
        state: EntryState,
    },
    /// The queue's state does not allow the move.
    #[error("a queue that is {} does not allow this", state.name())]
    TransitionInvalid {
        /// The state.
        state: QueueState,
    },
    /// Somebody joined, so the mode stays.
    #[error("the mode of a queue that somebody joined stays {}", mode.name())]
    ModeFixed {
        /// The mode it has.
        mode: QueueMode,
    },
}
