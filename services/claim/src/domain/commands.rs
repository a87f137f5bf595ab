//! Commands and queries of callers and events, apart from `CreateClaim`, and Claim's own command to Inventory.

use std::time::Duration;

use onsale_kit::config::Secret;
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Money, PaymentId, Timestamp};

use super::{ReleaseReason, Selection};

/// A confirmed payment of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfirmClaim {
    pub(crate) claim_id: ClaimId,
    pub(crate) payment_id: PaymentId,
    /// Paid amount, which must equal the claim's total.
    pub(crate) amount: Money,
}

/// A payment that has begun, so its claim needs more time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtendClaim {
    pub(crate) claim_id: ClaimId,
    pub(crate) payment_id: PaymentId,
}

/// Selection of claims of one customer, newest first.
#[derive(Clone, Debug)]
pub(crate) struct ClaimFilter {
    pub(crate) customer_id: CustomerId,
    /// `None`: claims of all events.
    pub(crate) event_id: Option<EventId>,
    /// Empty: claims in all states.
    pub(crate) states: Vec<ClaimState>,
    /// Creation time and id of the last claim on the previous page.
    pub(crate) after: Option<(Timestamp, ClaimId)>,
    pub(crate) count_max: u32,
}

/// State of a claim as the contract and the database name it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ClaimState {
    Claimed,
    Confirmed,
    Released,
}

/// A turn that ended before its time, and whose open claim is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTurn {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    pub(crate) fencing_number: u64,
    pub(crate) reason: ReleaseReason,
}

/// Reason for which Queue ended a customer's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryEnd {
    Left,
    Blocked,
    /// The turn or the queue ended, or the customer went idle.
    Other,
}

impl EntryEnd {
    /// Decides whether the open claim of the ended turn is released, and for which reason. An entry with fencing number 0 never
    /// had a turn.
    ///
    /// Customers who left or were blocked lose the claim. A claim outlives its turn in the other cases: it expires by its own
    /// time, which is at most the turn's unless a payment extended it, and an idle customer may be paying right now.
    pub(crate) fn releases_claim(self, fencing_number: u64) -> Option<ReleaseReason> {
        match self {
            Self::Left | Self::Blocked if fencing_number == 0 => None,
            Self::Left => Some(ReleaseReason::Customer),
            Self::Blocked => Some(ReleaseReason::Expired),
            Self::Other => None,
        }
    }
}

/// A call of Inventory's `ReserveUnits`.
#[derive(Clone, Debug)]
pub(crate) struct ReserveUnits<'a> {
    pub(crate) hold_id: HoldId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    pub(crate) selections: &'a [Selection],
    /// Token of the invitation whose quota the units come from. `None`: the public sale.
    pub(crate) invitation: Option<&'a Secret>,
    /// Age at which Inventory releases the hold by itself.
    pub(crate) release_after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abandoned_turn_releases_its_claim() {
        for (end, fencing_number, expected) in [
            (EntryEnd::Left, 1, Some(ReleaseReason::Customer)),
            (EntryEnd::Blocked, 1, Some(ReleaseReason::Expired)),
            (EntryEnd::Other, 1, None),
            (EntryEnd::Left, 0, None),
            (EntryEnd::Blocked, 0, None),
        ] {
            assert_eq!(end.releases_claim(fencing_number), expected, "{end:?} {fencing_number}");
        }
    }
}
