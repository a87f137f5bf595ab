//! The life of a payment: INITIALIZING, PENDING, then CONFIRMED or FAILED; CONFIRMED may become REFUNDED.
//!
//! What a provider says ([`Fact`]) may come late, twice or out of order. That money was taken outweighs everything said
//! before: a payment that had FAILED is CONFIRMED then, and never the other way round.

use onsale_types::{ClaimId, CustomerId, EventId, Money, PaymentId, Timestamp};
use uuid::Uuid;

use super::{Refund, RefundReason, RefundState, Verdict};

/// An attempt to pay a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Its id.
    pub id: PaymentId,
    /// The claim it pays.
    pub claim_id: ClaimId,
    /// The event.
    pub event_id: EventId,
    /// The customer.
    pub customer_id: CustomerId,
    /// What is paid.
    pub amount: Money,
    /// Who takes the money.
    pub provider: Provider,
    /// Where it is in its life.
    pub state: State,
    /// Where the provider sends the customer afterwards.
    pub return_url: String,
    /// Where it sends a customer who turns back.
    pub cancel_url: String,
    /// When it was created.
    pub create_time: Timestamp,
    /// When the provider's page is to stop taking money.
    pub expire_time: Timestamp,
    /// The provider's name for it.
    pub reference: Option<String>,
    /// The page to pay on.
    pub checkout_url: Option<String>,
    /// The provider's name for the money it took.
    pub charge: Option<String>,
    /// Why it failed.
    pub failure_reason: Option<FailureReason>,
    /// When the provider confirmed it.
    pub confirm_time: Option<Timestamp>,
    /// When Claim served it.
    pub settle_time: Option<Timestamp>,
    /// The refund.
    pub refund: Option<Refund>,
}

/// A payment to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPayment {
    /// Its id.
    pub id: PaymentId,
    /// The claim it pays.
    pub claim_id: ClaimId,
    /// The event.
    pub event_id: EventId,
    /// The customer.
    pub customer_id: CustomerId,
    /// What is paid.
    pub amount: Money,
    /// Who takes the money.
    pub provider: Provider,
    /// Where the provider sends the customer afterwards.
    pub return_url: String,
    /// Where it sends a customer who turns back.
    pub cancel_url: String,
}

onsale_types::named! {
    /// Who takes the money.
    Provider {
        /// Stripe.
        Stripe = "STRIPE",
        /// Paystack.
        Paystack = "PAYSTACK",
        /// The local provider of development and tests.
        Sandbox = "SANDBOX",
    }
}

onsale_types::named! {
    /// Life of a payment.
    State {
        /// Stored; the provider has not answered yet.
        Initializing = "INITIALIZING",
        /// The customer may pay.
        Pending = "PENDING",
        /// The provider has the money.
        Confirmed = "CONFIRMED",
        /// No money was taken.
        Failed = "FAILED",
        /// The money went back. Final.
        Refunded = "REFUNDED",
    }
}

impl State {
    /// Whether there is nothing more to watch for a customer.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Initializing | Self::Pending => false,
            Self::Confirmed | Self::Failed | Self::Refunded => true,
        }
    }
}

onsale_types::named! {
    /// Why a payment failed.
    FailureReason {
        /// The customer's bank or card refused.
        Declined = "DECLINED",
        /// The customer turned back.
        Canceled = "CANCELED",
        /// The customer did not pay in time.
        Expired = "EXPIRED",
        /// The provider could not be reached or refused the payment as such.
        Provider = "PROVIDER",
    }
}

onsale_types::named! {
    /// What is to be done next for a payment, by a worker if nobody else does.
    Step {
        /// Ask the provider for a page to pay on.
        Initialize = "INITIALIZE",
        /// Ask the provider what became of it.
        Ask = "ASK",
        /// Have the claim confirmed.
        Settle = "SETTLE",
        /// Have the provider give the money back.
        Refund = "REFUND",
    }
}

/// What a provider said about a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// There is a page to pay on.
    Opened {
        /// The provider's name for the payment.
        reference: String,
        /// The page.
        checkout_url: String,
    },
    /// The money was taken.
    Paid {
        /// The provider's name for the payment; it may be the first we hear of it.
        reference: String,
        /// The provider's name for the money.
        charge: String,
        /// How much it was.
        amount: Money,
    },
    /// No money was taken, and none will be.
    Ended {
        /// Why.
        reason: FailureReason,
    },
}

impl Payment {
    /// The payment after `fact` was heard at `now`; `None` when that changes nothing.
    #[must_use]
    pub fn after(&self, fact: &Fact, now: Timestamp) -> Option<Self> {
        match (self.state, fact) {
            (State::Initializing, Fact::Opened { reference, checkout_url }) => Some(Self {
                state: State::Pending,
                reference: Some(reference.clone()),
                checkout_url: Some(checkout_url.clone()),
                ..self.clone()
            }),
            // Also after a failure: the money is there, whatever we believed.
            (
                State::Initializing | State::Pending | State::Failed,
                Fact::Paid { reference, charge, amount },
            ) => {
                Some(Self {
                    state: State::Confirmed,
                    // What was paid counts; Claim compares it with its total, and it goes back if it differs.
                    amount: *amount,
                    reference: self.reference.clone().or_else(|| Some(reference.clone())),
                    charge: Some(charge.clone()),
                    failure_reason: None,
                    confirm_time: Some(now),
                    ..self.clone()
                })
            }
            (State::Initializing | State::Pending, Fact::Ended { reason }) => {
                Some(Self { state: State::Failed, failure_reason: Some(*reason), ..self.clone() })
            }
            (State::Pending | State::Confirmed | State::Failed | State::Refunded, Fact::Opened { .. })
            | (State::Confirmed | State::Refunded, Fact::Paid { .. })
            | (State::Confirmed | State::Failed | State::Refunded, Fact::Ended { .. }) => None,
        }
    }

    /// The payment after Claim's verdict; `None` when that changes nothing. A refund gets `refund_id`.
    #[must_use]
    pub fn settled(&self, verdict: Verdict, refund_id: Uuid, now: Timestamp) -> Option<Self> {
        if self.next_step() != Some(Step::Settle) {
            return None;
        }
        match verdict {
            Verdict::Served => Some(Self { settle_time: Some(now), ..self.clone() }),
            Verdict::Refund(reason) => self.with_refund(reason, refund_id, now),
        }
    }

    /// The payment with a refund asked for; `None` when there is nothing to give back, or it is on its way already.
    #[must_use]
    pub fn with_refund(&self, reason: RefundReason, refund_id: Uuid, now: Timestamp) -> Option<Self> {
        if self.state != State::Confirmed || self.refund.is_some() {
            return None;
        }
        let refund = Refund {
            id: refund_id,
            reason,
            state: RefundState::Pending,
            create_time: now,
            complete_time: None,
        };
        Some(Self { refund: Some(refund), ..self.clone() })
    }

    /// The payment after the provider accepted the refund; `None` when none was asked for, or it is known already.
    #[must_use]
    pub fn refunded(&self, now: Timestamp) -> Option<Self> {
        let refund = self.refund.as_ref().filter(|refund| refund.state == RefundState::Pending)?;
        let refund = Refund { state: RefundState::Completed, complete_time: Some(now), ..refund.clone() };
        Some(Self { state: State::Refunded, refund: Some(refund), ..self.clone() })
    }

    /// The payment without its refund, which cannot be made; `None` when none is on its way.
    #[must_use]
    pub fn without_refund(&self) -> Option<Self> {
        let is_pending = |refund: &Refund| refund.state == RefundState::Pending;
        // What was never served has nothing else to end in.
        let is_withdrawable = self.has_tickets() && self.refund.as_ref().is_some_and(is_pending);
        is_withdrawable.then(|| Self { refund: None, ..self.clone() })
    }

    /// Whether it was served: the tickets of its claim are what it paid for.
    #[must_use]
    pub const fn has_tickets(&self) -> bool {
        self.settle_time.is_some()
    }

    /// What is to be done next; `None` when nothing is.
    #[must_use]
    pub fn next_step(&self) -> Option<Step> {
        match (self.state, &self.refund, self.settle_time) {
            (State::Initializing, _, _) => Some(Step::Initialize),
            (State::Pending, _, _) => Some(Step::Ask),
            (State::Confirmed, Some(_), _) => Some(Step::Refund),
            (State::Confirmed, None, None) => Some(Step::Settle),
            (State::Confirmed, None, Some(_)) | (State::Failed | State::Refunded, _, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
