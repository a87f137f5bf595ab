//! A customer's place in an event's queue.

use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Timestamp};

use super::turn::Turn;

/// Life of an entry: WAITING, then ADMITTED, then one of the final states; EXPIRED and LEFT also follow WAITING.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum EntryState {
    /// The entry is in line.
    Waiting,
    /// The customer has an open turn.
    Admitted,
    /// The turn ended in a purchase. Final.
    Completed,
    /// The place or the turn was lost. Final, except that a payment which was under way when the turn ran out still completes
    /// it.
    Expired,
    /// The customer left. Final.
    Left,
}

/// Cause of an end without a purchase.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ExpireReason {
    /// No heartbeat arrived within the idle timeout.
    NotSeen,
    /// The turn ran out, or its claim expired or was rejected.
    TurnExpired,
    /// The customer left.
    Left,
    /// The organizer blocked the customer.
    Blocked,
    /// The queue closed for good.
    QueueClosed,
}

impl EntryState {
    /// Returns true while the entry holds a place or a turn. A customer has at most one such entry per event.
    pub(crate) const fn is_open(self) -> bool {
        match self {
            Self::Waiting | Self::Admitted => true,
            Self::Completed | Self::Expired | Self::Left => false,
        }
    }
}

impl ExpireReason {
    /// Returns the state in which an entry ends for this reason.
    pub(crate) const fn state(self) -> EntryState {
        match self {
            Self::Left => EntryState::Left,
            Self::NotSeen | Self::TurnExpired | Self::Blocked | Self::QueueClosed => EntryState::Expired,
        }
    }
}

/// A customer's place in an event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) entry_id: EntryId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Number in line, from 1; never changes.
    pub(crate) seq: u64,
    pub(crate) state: EntryState,
    pub(crate) join_time: Timestamp,
    /// Name that neighbors in line see; may be empty.
    pub(crate) display_name: String,
    /// Picture that neighbors in line see; may be empty.
    pub(crate) avatar_url: String,
    /// `None` until the entry is admitted; kept after the turn ends.
    pub(crate) turn: Option<Turn>,
    /// `None` while the entry is open.
    pub(crate) end_time: Option<Timestamp>,
    /// `None` while the entry is open and after a purchase.
    pub(crate) expire_reason: Option<ExpireReason>,
    /// The claim whose purchase completed the turn.
    pub(crate) claim_id: Option<ClaimId>,
}

/// An entry as one statement read it.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    pub(crate) entry: Entry,
    /// Revision of the line when the entry was read.
    pub(crate) revision: u64,
    /// Database time when the entry was read.
    pub(crate) now: Timestamp,
}
