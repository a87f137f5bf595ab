//! Lifecycle of a claim: its states and the transitions between them, which ensure that a paid claim is served or refunded.
//!
//! A payment is recorded before its hold is committed, and from then on only the settlement of that payment changes the claim.
//! The claim ends confirmed with committed units, or rejected without units. An unpaid claim may be released at any time, first
//! in Claim, then at Inventory.

use onsale_types::PaymentId;

/// State of a claim and of the hold that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimLifecycle {
    pub(crate) state: State,
    pub(crate) hold: HoldState,
}

/// State of a claim, with its payment if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for a payment; with a `payment_id`, that payment is being settled.
    Claimed { payment_id: Option<PaymentId> },
    /// Paid, and its hold is committed. Final.
    Confirmed { payment_id: PaymentId },
    /// Released; with a `payment_id`, it was paid too late and that payment is being settled.
    Released { reason: ReleaseReason, payment_id: Option<PaymentId> },
    /// Paid, but its units are gone and no others can be reserved, so Payment refunds the buyer. Final.
    Rejected { payment_id: PaymentId },
}

/// Reason for the release of an unpaid claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReason {
    Customer,
    Expired,
    PaymentFailed,
}

/// State without its payment, as recorded in a claim's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Claimed,
    Confirmed,
    Released(ReleaseReason),
    Rejected,
}

impl Stage {
    /// Returns the name of the stage in metrics. It is not derived, because it joins the stage and its reason.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Confirmed => "confirmed",
            Self::Released(ReleaseReason::Customer) => "released_customer",
            Self::Released(ReleaseReason::Expired) => "released_expired",
            Self::Released(ReleaseReason::PaymentFailed) => "released_payment_failed",
            Self::Rejected => "rejected",
        }
    }
}

/// State of the hold that a claim uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum HoldState {
    Held,
    Committed,
    /// Due for release: Inventory may or may not have released it.
    Releasing,
    Released,
}

/// Next step of a payment's settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlementStep {
    /// The payment is settled, or there is none.
    Done,
    CommitHold,
    /// Release the old hold before reserving: its units may be the only free ones.
    ReleaseHold,
    ReserveUnits,
}

/// Refusal to release a claim that has a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlreadyPaid;

/// Refusal of a second payment; holds the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaidByAnother(pub(crate) PaymentId);

impl ClaimLifecycle {
    /// Lifecycle of a new claim, whose units are held.
    pub(crate) const NEW: Self = Self { state: State::Claimed { payment_id: None }, hold: HoldState::Held };

    /// Returns the stage that the history records for this state.
    pub(crate) fn stage(&self) -> Stage {
        match self.state {
            State::Claimed { .. } => Stage::Claimed,
            State::Confirmed { .. } => Stage::Confirmed,
            State::Released { reason, .. } => Stage::Released(reason),
            State::Rejected { .. } => Stage::Rejected,
        }
    }

    /// Returns the payment that is being settled or has been settled.
    pub(crate) fn payment_id(&self) -> Option<PaymentId> {
        match self.state {
            State::Claimed { payment_id } | State::Released { payment_id, .. } => payment_id,
            State::Confirmed { payment_id } | State::Rejected { payment_id } => Some(payment_id),
        }
    }

    /// Returns true if the claim's units count against the customer's limit. A claim that was paid after its release counts
    /// while it is being settled, because the settlement may reserve its units again.
    pub(crate) fn counts_against_limit(&self) -> bool {
        match self.state {
            State::Claimed { .. } | State::Confirmed { .. } => true,
            State::Released { payment_id, .. } => payment_id.is_some(),
            State::Rejected { .. } => false,
        }
    }

    /// Returns true if no further transition is possible.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.state, State::Confirmed { .. } | State::Rejected { .. })
    }

    /// Releases an unpaid claim. A claim that is released or rejected already stays unchanged.
    pub(crate) fn release(self, reason: ReleaseReason) -> Result<Self, AlreadyPaid> {
        match self.state {
            State::Claimed { payment_id: None } => {
                Ok(Self { state: State::Released { reason, payment_id: None }, hold: HoldState::Releasing })
            }
            State::Released { .. } | State::Rejected { .. } => Ok(self),
            State::Claimed { payment_id: Some(_) } | State::Confirmed { .. } => Err(AlreadyPaid),
        }
    }

    /// Records the payment of a claim. `has_room` says whether the customer's limit admits the units of a released claim again;
    /// without room, such a claim is rejected.
    pub(crate) fn record_payment(self, payment_id: PaymentId, has_room: bool) -> Result<Self, PaidByAnother> {
        if let Some(first) = self.payment_id() {
            return if first == payment_id { Ok(self) } else { Err(PaidByAnother(first)) };
        }
        let state = match self.state {
            State::Claimed { .. } => State::Claimed { payment_id: Some(payment_id) },
            State::Released { reason, .. } if has_room => {
                State::Released { reason, payment_id: Some(payment_id) }
            }
            State::Released { .. } => State::Rejected { payment_id },
            State::Confirmed { .. } | State::Rejected { .. } => self.state,
        };
        Ok(Self { state, ..self })
    }

    /// Decides the next step of the settlement.
    pub(crate) fn next_step(&self) -> SettlementStep {
        if self.is_final() || self.payment_id().is_none() {
            return SettlementStep::Done;
        }
        match self.hold {
            // An unconfirmed claim with a committed hold cannot be stored. If it were, a second commit would be harmless.
            HoldState::Held | HoldState::Committed => SettlementStep::CommitHold,
            HoldState::Releasing => SettlementStep::ReleaseHold,
            HoldState::Released => SettlementStep::ReserveUnits,
        }
    }

    /// Records that Inventory had already released the hold. Returns `None` if the settlement no longer waits for its commit.
    pub(crate) fn lose_hold(self) -> Option<Self> {
        (self.next_step() == SettlementStep::CommitHold).then_some(Self { hold: HoldState::Released, ..self })
    }

    /// Moves the claim to a new hold. Returns `None` if the settlement does not need one.
    pub(crate) fn replace_hold(self) -> Option<Self> {
        (self.next_step() == SettlementStep::ReserveUnits).then_some(Self { hold: HoldState::Held, ..self })
    }

    /// Confirms the claim after the commit of its hold. Returns `None` if the claim is settled already.
    pub(crate) fn confirm(self) -> Option<Self> {
        match (self.next_step(), self.payment_id()) {
            (SettlementStep::CommitHold, Some(payment_id)) => {
                Some(Self { state: State::Confirmed { payment_id }, hold: HoldState::Committed })
            }
            (
                SettlementStep::Done
                | SettlementStep::CommitHold
                | SettlementStep::ReleaseHold
                | SettlementStep::ReserveUnits,
                _,
            ) => None,
        }
    }

    /// Rejects a paid claim for which no units can be reserved. Returns `None` if it is settled already or has a hold.
    pub(crate) fn reject(self) -> Option<Self> {
        match (self.next_step(), self.payment_id()) {
            (SettlementStep::ReserveUnits, Some(payment_id)) => {
                Some(Self { state: State::Rejected { payment_id }, ..self })
            }
            (
                SettlementStep::Done
                | SettlementStep::CommitHold
                | SettlementStep::ReleaseHold
                | SettlementStep::ReserveUnits,
                _,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests;
