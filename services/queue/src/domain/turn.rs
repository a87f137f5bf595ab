//! A turn, its validation for Claim, and its completion.

use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Timestamp};

use super::{
    entry::{Entry, EntryState, ExpireReason},
    refusal::Refusal,
};

/// An admitted customer's time window for a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Rises with every turn granted in the event.
    pub(crate) fencing_number: u64,
    pub(crate) grant_time: Timestamp,
    /// The turn ends at this time unless a purchase completes it earlier.
    pub(crate) expire_time: Timestamp,
}

/// A turn with the token and the page that its customer needs to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantedTurn {
    pub(crate) turn: Turn,
    pub(crate) token: String,
    /// Page on which to choose and pay. Empty if no web shop is configured.
    pub(crate) checkout_url: String,
}

/// Identifies a turn, by the fields of its token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnKey {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    pub(crate) fencing_number: u64,
}

/// A turn that may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidTurn {
    pub(crate) entry_id: EntryId,
    pub(crate) turn: Turn,
}

/// Cause for which Claim released a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimReleaseReason {
    /// Unknown to this version of the contract.
    Unspecified,
    /// The customer gave the claim up.
    Customer,
    /// The claim was not paid in time.
    Expired,
    /// The payment failed.
    PaymentFailed,
    /// The claim could not be confirmed.
    Rejected,
}

impl ClaimReleaseReason {
    /// Returns true if the release also ends the turn. Otherwise the customer may make another claim.
    pub(crate) const fn ends_turn(self) -> bool {
        match self {
            Self::Expired | Self::Rejected => true,
            Self::Unspecified | Self::Customer | Self::PaymentFailed => false,
        }
    }
}

/// Stored facts that decide whether a turn is valid.
#[derive(Clone, Debug)]
pub(crate) struct TurnCheck {
    pub(crate) event_id: EventId,
    /// Fencing number of the turn under test.
    pub(crate) fencing_number: u64,
    /// The customer's entry whose turn has that number.
    pub(crate) entry: Option<Entry>,
    /// Highest fencing number of the customer in the event, if it is at least the one under test.
    pub(crate) newest_fencing_number: Option<u64>,
    /// True if the organizer blocked the customer.
    pub(crate) is_blocked: bool,
}

/// Effect of completing a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The turn was completed for this claim earlier.
    Done(Entry),
    /// The entry is to be completed.
    Complete {
        /// The entry before its completion.
        entry: Entry,
        /// True if the turn still counts as open.
        was_open: bool,
    },
}

impl TurnCheck {
    /// Returns the entry if its turn is the customer's newest.
    fn newest(self) -> Result<Entry, Refusal> {
        if self.newest_fencing_number.is_some_and(|newest| newest > self.fencing_number) {
            return Err(Refusal::TurnStale);
        }
        self.entry.ok_or(Refusal::EntryNotFound { event_id: self.event_id })
    }

    /// Returns the turn if it may be used for a purchase at `now`.
    pub(crate) fn validate(self, now: Timestamp) -> Result<ValidTurn, Refusal> {
        if self.is_blocked {
            return Err(Refusal::CustomerBlocked);
        }
        let entry = self.newest()?;
        let Some(turn) = entry.turn else {
            return Err(Refusal::EntryNotFound { event_id: entry.event_id });
        };
        match (entry.state, entry.expire_reason) {
            (EntryState::Admitted, _) if turn.expire_time > now => {
                Ok(ValidTurn { entry_id: entry.entry_id, turn })
            }
            (EntryState::Admitted, _) | (EntryState::Expired, Some(ExpireReason::TurnExpired)) => {
                Err(Refusal::TurnExpired { expire_time: turn.expire_time })
            }
            (state, _) => Err(Refusal::TurnEnded { state }),
        }
    }

    /// Decides the effect of completing the turn for `claim_id`.
    pub(crate) fn complete(self, claim_id: ClaimId) -> Result<Completion, Refusal> {
        // A repeat succeeds even if the customer has a newer turn by now: this claim bought with this one.
        if let Some(entry) = self.entry.as_ref().filter(|entry| entry.claim_id == Some(claim_id)) {
            return Ok(Completion::Done(entry.clone()));
        }
        let entry = self.newest()?;
        match (entry.state, entry.expire_reason) {
            (EntryState::Admitted, _) => Ok(Completion::Complete { entry, was_open: true }),
            // The payment was under way when the turn ran out or the customer was blocked: a paid order is served.
            (EntryState::Expired, Some(ExpireReason::TurnExpired | ExpireReason::Blocked)) => {
                Ok(Completion::Complete { entry, was_open: false })
            }
            (state, _) => Err(Refusal::TurnEnded { state }),
        }
    }
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
    fn turn_is_valid_before_its_expiry_and_not_at_it() {
        assert!(check(entry(EntryState::Admitted, None, 1_001)).validate(NOW).is_ok());
        let expired = check(entry(EntryState::Admitted, None, 1_000)).validate(NOW);
        assert_eq!(expired.err(), Some(Refusal::TurnExpired { expire_time: NOW }));
    }

    #[test]
    fn turn_is_stale_in_any_state_once_there_is_a_newer_one() {
        for state in [EntryState::Admitted, EntryState::Expired, EntryState::Left] {
            let mut check = check(entry(state, Some(ExpireReason::TurnExpired), 2_000));
            check.newest_fencing_number = Some(8);
            assert_eq!(check.clone().validate(NOW).err(), Some(Refusal::TurnStale));
            assert_eq!(check.complete(ClaimId::generate()).err(), Some(Refusal::TurnStale));
        }
    }

    #[test]
    fn unused_number_is_stale_below_the_newest_and_unknown_above() {
        let event_id = EventId::generate();
        let mut check = TurnCheck {
            event_id,
            fencing_number: 7,
            entry: None,
            newest_fencing_number: Some(8),
            is_blocked: false,
        };
        assert_eq!(check.clone().validate(NOW).err(), Some(Refusal::TurnStale));
        check.newest_fencing_number = Some(6);
        assert_eq!(check.validate(NOW).err(), Some(Refusal::EntryNotFound { event_id }));
    }

    #[test]
    fn expired_turn_completes_and_abandoned_turn_does_not() {
        let claim = ClaimId::generate();
        let late = check(entry(EntryState::Expired, Some(ExpireReason::TurnExpired), 900));
        assert!(matches!(late.complete(claim), Ok(Completion::Complete { was_open: false, .. })));
        let left = check(entry(EntryState::Left, Some(ExpireReason::Left), 2_000));
        assert_eq!(left.complete(claim).err(), Some(Refusal::TurnEnded { state: EntryState::Left }));
    }

    #[test]
    fn blocked_turn_is_refused_and_still_completes_a_paid_order() {
        let ended = entry(EntryState::Expired, Some(ExpireReason::Blocked), 2_000);
        let check = TurnCheck { is_blocked: true, ..check(ended) };
        assert_eq!(check.clone().validate(NOW).err(), Some(Refusal::CustomerBlocked));
        let completed = check.complete(ClaimId::generate());
        assert!(matches!(completed, Ok(Completion::Complete { was_open: false, .. })));
    }

    #[test]
    fn turn_completes_for_one_claim_only() {
        let claim = ClaimId::generate();
        let mut done = entry(EntryState::Completed, None, 2_000);
        done.claim_id = Some(claim);
        assert!(matches!(check(done.clone()).complete(claim), Ok(Completion::Done(_))));
        let another = check(done).complete(ClaimId::generate());
        assert_eq!(another.err(), Some(Refusal::TurnEnded { state: EntryState::Completed }));
    }
}
