//! A customer's place in line and the turn it leads to.

use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Timestamp};

use super::refusal::Refusal;

onsale_types::named! {
    /// Life of an entry: WAITING, then ADMITTED, then one of the others; EXPIRED and LEFT also follow WAITING.
    EntryState {
        /// In line.
        Waiting = "WAITING",
        /// Has a turn.
        Admitted = "ADMITTED",
        /// Bought. Final.
        Completed = "COMPLETED",
        /// Lost the place or the turn. Final, but for a payment that was under way when the turn ran out.
        Expired = "EXPIRED",
        /// The customer left. Final.
        Left = "LEFT",
    }
}

onsale_types::named! {
    /// Why an entry ended without a purchase.
    ExpireReason {
        /// No sign of life for too long.
        NotSeen = "NOT_SEEN",
        /// The turn ran out.
        TurnExpired = "TURN_EXPIRED",
        /// The customer left.
        Left = "LEFT",
        /// The organizer blocked the customer.
        Blocked = "BLOCKED",
        /// The queue closed for good.
        QueueClosed = "QUEUE_CLOSED",
    }
}

impl EntryState {
    /// Whether the entry still stands for something: a customer has at most one such per event.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Waiting | Self::Admitted => true,
            Self::Completed | Self::Expired | Self::Left => false,
        }
    }
}

impl ExpireReason {
    /// The state that an entry ends in for this reason.
    #[must_use]
    pub const fn state(self) -> EntryState {
        match self {
            Self::Left => EntryState::Left,
            Self::NotSeen | Self::TurnExpired | Self::Blocked | Self::QueueClosed => EntryState::Expired,
        }
    }
}

/// A customer's place in an event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub entry_id: EntryId,
    /// Of which event.
    pub event_id: EventId,
    /// Whose.
    pub customer_id: CustomerId,
    /// Number in line; never changes.
    pub seq: u64,
    /// Where it is in its life.
    pub state: EntryState,
    /// When the customer joined.
    pub join_time: Timestamp,
    /// What neighbors see as name; empty: nothing.
    pub display_name: String,
    /// What neighbors see as picture; empty: nothing.
    pub avatar_url: String,
    /// The turn, once there was one.
    pub turn: Option<Turn>,
    /// When it ended.
    pub end_time: Option<Timestamp>,
    /// Why it ended without a purchase.
    pub expire_reason: Option<ExpireReason>,
    /// The claim it ended with.
    pub claim_id: Option<ClaimId>,
}

/// An admitted customer's purchase window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Rises with every turn granted in the event.
    pub fencing_number: u64,
    /// When it began.
    pub grant_time: Timestamp,
    /// When it ends unless it is completed before.
    pub expire_time: Timestamp,
}

/// A turn, named as its token does.
#[derive(Clone, Copy, Debug)]
pub struct TurnName {
    /// Of which event.
    pub event_id: EventId,
    /// Whose.
    pub customer_id: CustomerId,
    /// Its fencing number.
    pub fencing_number: u64,
}

/// What a check of a turn sees: the entry that has the fencing number, and the customer's newest.
#[derive(Clone, Debug)]
pub struct TurnCheck {
    /// The event.
    pub event_id: EventId,
    /// The number asked for.
    pub fencing_number: u64,
    /// The customer's entry whose turn has the number asked for.
    pub entry: Option<Entry>,
    /// The highest fencing number of the customer in the event.
    pub newest_fencing_number: Option<u64>,
    /// Whether the organizer keeps the customer out.
    pub is_blocked: bool,
}

impl TurnCheck {
    /// The entry, if its turn is the customer's newest.
    fn newest(self) -> Result<Entry, Refusal> {
        if self.newest_fencing_number.is_some_and(|newest| newest > self.fencing_number) {
            return Err(Refusal::TurnStale);
        }
        self.entry.ok_or(Refusal::EntryNotFound { event_id: self.event_id })
    }

    /// Whether the turn may still buy something at `now`.
    pub fn holds(self, now: Timestamp) -> Result<(Entry, Turn), Refusal> {
        if self.is_blocked {
            return Err(Refusal::CustomerBlocked);
        }
        let entry = self.newest()?;
        let Some(turn) = entry.turn else {
            return Err(Refusal::EntryNotFound { event_id: entry.event_id });
        };
        match (entry.state, entry.expire_reason) {
            (EntryState::Admitted, _) if turn.expire_time > now => Ok((entry, turn)),
            (EntryState::Admitted, _) | (EntryState::Expired, Some(ExpireReason::TurnExpired)) => {
                Err(Refusal::TurnExpired { expire_time: turn.expire_time })
            }
            (state, _) => Err(Refusal::TurnEnded { state }),
        }
    }

    /// What completing the turn for `claim_id` means.
    pub fn completes(self, claim_id: ClaimId) -> Result<Completion, Refusal> {
        // Also when the customer has a newer turn by now: it was bought, and asking again changes nothing.
        if let Some(entry) = self.entry.as_ref().filter(|entry| entry.claim_id == Some(claim_id)) {
            return Ok(Completion::Done(entry.clone()));
        }
        let entry = self.newest()?;
        match (entry.state, entry.expire_reason) {
            (EntryState::Admitted, _) => Ok(Completion::Complete { entry, was_open: true }),
            // The payment was under way when the turn ran out, or the customer was blocked: paid means served.
            (EntryState::Expired, Some(ExpireReason::TurnExpired | ExpireReason::Blocked)) => {
                Ok(Completion::Complete { entry, was_open: false })
            }
            (state, _) => Err(Refusal::TurnEnded { state }),
        }
    }
}

/// What completing a turn means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is completed for this claim already.
    Done(Entry),
    /// It is to be completed.
    Complete {
        /// The entry as it is.
        entry: Entry,
        /// Whether its turn still counted as open.
        was_open: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn entry(state: EntryState, expire_reason: Option<ExpireReason>, expires: i64) -> Entry {
        Entry {
            entry_id: EntryId::generate(),
            event_id: EventId::generate(),
            customer_id: CustomerId::generate(),
            seq: 1,
            state,
            join_time: Timestamp::EPOCH,
            display_name: String::new(),
            avatar_url: String::new(),
            turn: Some(Turn {
                fencing_number: 7,
                grant_time: Timestamp::EPOCH,
                expire_time: Timestamp::from_secs(expires),
            }),
            end_time: (!state.is_open()).then_some(NOW),
            expire_reason,
            claim_id: None,
        }
    }

    fn check(entry: Entry) -> TurnCheck {
        let event_id = entry.event_id;
        TurnCheck {
            event_id,
            fencing_number: 7,
            entry: Some(entry),
            newest_fencing_number: Some(7),
            is_blocked: false,
        }
    }

    #[test]
    fn a_turn_holds_until_its_expiry_and_not_at_it() {
        assert!(check(entry(EntryState::Admitted, None, 1_001)).holds(NOW).is_ok());
        let expired = check(entry(EntryState::Admitted, None, 1_000)).holds(NOW);
        assert_eq!(expired.err(), Some(Refusal::TurnExpired { expire_time: NOW }));
    }

    #[test]
    fn a_turn_with_a_newer_one_is_stale_whatever_its_state() {
        for state in [EntryState::Admitted, EntryState::Expired, EntryState::Left] {
            let mut check = check(entry(state, Some(ExpireReason::TurnExpired), 2_000));
            check.newest_fencing_number = Some(8);
            assert_eq!(check.clone().holds(NOW).err(), Some(Refusal::TurnStale));
            assert_eq!(check.completes(ClaimId::generate()).err(), Some(Refusal::TurnStale));
        }
    }

    #[test]
    fn a_number_nobody_has_is_stale_or_unknown() {
        let event_id = EventId::generate();
        let mut check = TurnCheck {
            event_id,
            fencing_number: 7,
            entry: None,
            newest_fencing_number: Some(8),
            is_blocked: false,
        };
        assert_eq!(check.clone().holds(NOW).err(), Some(Refusal::TurnStale));
        check.newest_fencing_number = Some(6);
        assert_eq!(check.holds(NOW).err(), Some(Refusal::EntryNotFound { event_id }));
    }

    #[test]
    fn a_turn_that_ran_out_completes_and_one_given_up_does_not() {
        let claim = ClaimId::generate();
        let late = check(entry(EntryState::Expired, Some(ExpireReason::TurnExpired), 900));
        assert!(matches!(late.completes(claim), Ok(Completion::Complete { was_open: false, .. })));
        let left = check(entry(EntryState::Left, Some(ExpireReason::Left), 2_000));
        assert_eq!(left.completes(claim).err(), Some(Refusal::TurnEnded { state: EntryState::Left }));
    }

    #[test]
    fn a_blocked_customers_turn_buys_nothing_new_and_completes_what_was_paid() {
        let ended = entry(EntryState::Expired, Some(ExpireReason::Blocked), 2_000);
        let check = TurnCheck { is_blocked: true, ..check(ended) };
        assert_eq!(check.clone().holds(NOW).err(), Some(Refusal::CustomerBlocked));
        let completes = check.completes(ClaimId::generate());
        assert!(matches!(completes, Ok(Completion::Complete { was_open: false, .. })));
    }

    #[test]
    fn a_turn_completes_once_and_for_one_claim() {
        let claim = ClaimId::generate();
        let mut done = entry(EntryState::Completed, None, 2_000);
        done.claim_id = Some(claim);
        assert!(matches!(check(done.clone()).completes(claim), Ok(Completion::Done(_))));
        let another = check(done).completes(ClaimId::generate());
        assert_eq!(another.err(), Some(Refusal::TurnEnded { state: EntryState::Completed }));
    }
}
