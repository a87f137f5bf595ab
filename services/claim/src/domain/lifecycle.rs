//! The life of a claim: what may happen to it and in which order. The heart of *paid means served*.
//!
//! A payment is noted before its hold is committed, and from then on nothing but that payment's settlement moves the
//! claim; it ends confirmed with committed units, or rejected with none. What is unpaid may be released at any time: first
//! here, then at Inventory.

use onsale_types::PaymentId;

/// Where a claim is, who paid it, and what became of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The claim's state.
    pub state: State,
    /// The state of the hold it stands on.
    pub hold: HoldState,
}

/// The states of a claim, with the payment as far as there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// To be paid; with a payment: paid, and being settled.
    Claimed {
        /// Who paid.
        payment: Option<PaymentId>,
    },
    /// Paid, the units are the customer's. Final.
    Confirmed {
        /// Who paid.
        payment: PaymentId,
    },
    /// Given up; with a payment: paid too late, and being settled.
    Released {
        /// Why.
        reason: ReleaseReason,
        /// Who paid.
        payment: Option<PaymentId>,
    },
    /// Paid, but no units could be had: the money goes back. Final.
    Rejected {
        /// Who paid.
        payment: PaymentId,
    },
}

/// Why an unpaid claim was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The customer wanted it.
    Customer,
    /// It was not paid in time.
    Expired,
    /// Its payment failed.
    PaymentFailed,
}

/// A state without its payment: what a claim's history tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Units are held, to be paid.
    Claimed,
    /// Paid.
    Confirmed,
    /// Given up.
    Released(ReleaseReason),
    /// Paid, without units to be had.
    Rejected,
}

/// The states of the hold a claim stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// Units are set aside.
    Held,
    /// Units are sold.
    Committed,
    /// To be given back: Inventory may or may not have heard of it.
    Releasing,
    /// Units went back.
    Released,
}

/// What the settlement of a payment needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is settled, or nothing was paid.
    Done,
    /// Commit the hold.
    Commit,
    /// Give the old hold back first: its units may be the ones to be had.
    FinishRelease,
    /// Reserve units anew.
    Reserve,
}

/// The claim is paid and cannot be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid;

/// Another payment was first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaidByAnother(pub PaymentId);

impl Life {
    /// A new claim on a hold.
    pub const BEGIN: Self = Self { state: State::Claimed { payment: None }, hold: HoldState::Held };

    /// What the history says of it.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.state {
            State::Claimed { .. } => Stage::Claimed,
            State::Confirmed { .. } => Stage::Confirmed,
            State::Released { reason, .. } => Stage::Released(reason),
            State::Rejected { .. } => Stage::Rejected,
        }
    }

    /// Who paid.
    #[must_use]
    pub fn payment(&self) -> Option<PaymentId> {
        match self.state {
            State::Claimed { payment } | State::Released { payment, .. } => payment,
            State::Confirmed { payment } | State::Rejected { payment } => Some(payment),
        }
    }

    /// Whether its units count against the customer's limit. A claim that was paid after its release counts while it is
    /// being settled: its units are about to be the customer's again.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        match self.state {
            State::Claimed { .. } | State::Confirmed { .. } => true,
            State::Released { payment, .. } => payment.is_some(),
            State::Rejected { .. } => false,
        }
    }

    /// Whether nothing can happen to it any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.state, State::Confirmed { .. } | State::Rejected { .. })
    }

    /// Gives it up. One that is given up already stays as it is.
    pub fn release(self, reason: ReleaseReason) -> Result<Self, Paid> {
        match self.state {
            State::Claimed { payment: None } => {
                Ok(Self { state: State::Released { reason, payment: None }, hold: HoldState::Releasing })
            }
            State::Released { .. } | State::Rejected { .. } => Ok(self),
            State::Claimed { payment: Some(_) } | State::Confirmed { .. } => Err(Paid),
        }
    }

    /// Notes who paid. `has_room`: the customer may have the units again, if they were given up.
    pub fn pay(self, payment: PaymentId, has_room: bool) -> Result<Self, PaidByAnother> {
        if let Some(first) = self.payment() {
            return if first == payment { Ok(self) } else { Err(PaidByAnother(first)) };
        }
        let state = match self.state {
            State::Claimed { .. } => State::Claimed { payment: Some(payment) },
            State::Released { reason, .. } if has_room => State::Released { reason, payment: Some(payment) },
            State::Released { .. } => State::Rejected { payment },
            State::Confirmed { .. } | State::Rejected { .. } => self.state,
        };
        Ok(Self { state, ..self })
    }

    /// What its settlement needs next.
    #[must_use]
    pub fn next_step(&self) -> Step {
        if self.is_final() || self.payment().is_none() {
            return Step::Done;
        }
        match self.hold {
            // Committed and not confirmed cannot be stored; committing again is harmless.
            HoldState::Held | HoldState::Committed => Step::Commit,
            HoldState::Releasing => Step::FinishRelease,
            HoldState::Released => Step::Reserve,
        }
    }

    /// Inventory says that the hold's units went back. None: that is no news, or not about this claim any more.
    #[must_use]
    pub fn lose_hold(self) -> Option<Self> {
        (self.next_step() == Step::Commit).then_some(Self { hold: HoldState::Released, ..self })
    }

    /// Puts it on a new hold. None: it needs none.
    #[must_use]
    pub fn replace_hold(self) -> Option<Self> {
        (self.next_step() == Step::Reserve).then_some(Self { hold: HoldState::Held, ..self })
    }

    /// Its hold is committed: it is the customer's. None: it is settled already.
    #[must_use]
    pub fn complete(self) -> Option<Self> {
        match (self.next_step(), self.payment()) {
            (Step::Commit, Some(payment)) => {
                Some(Self { state: State::Confirmed { payment }, hold: HoldState::Committed })
            }
            (Step::Done | Step::Commit | Step::FinishRelease | Step::Reserve, _) => None,
        }
    }

    /// No units can be had. None: it is settled already, or has some.
    #[must_use]
    pub fn reject(self) -> Option<Self> {
        match (self.next_step(), self.payment()) {
            (Step::Reserve, Some(payment)) => Some(Self { state: State::Rejected { payment }, ..self }),
            (Step::Done | Step::Commit | Step::FinishRelease | Step::Reserve, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
