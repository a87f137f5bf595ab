//! Life cycle of a payment: INITIALIZING, PENDING, then CONFIRMED or FAILED; a CONFIRMED payment can become REFUNDED.
//!
//! Updates from a provider ([`ProviderUpdate`]) may arrive late, twice or out of order. A report that money was taken outranks
//! every earlier report: it turns a FAILED payment into a CONFIRMED one, and no later report reverts that.

use std::time::Duration;

use onsale_types::{ClaimId, CustomerId, EventId, Money, PaymentId, Timestamp};
use uuid::Uuid;

use super::{Claim, ClaimState, Refund, RefundReason, RefundState, Verdict};

/// An attempt to pay a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payment {
    pub(crate) id: PaymentId,
    pub(crate) claim_id: ClaimId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// The claim's total; once money was taken, the amount that the provider reported.
    pub(crate) amount: Money,
    pub(crate) provider: Provider,
    pub(crate) state: PaymentState,
    /// Page to which the provider sends the customer after paying.
    pub(crate) return_url: String,
    /// Page to which the provider sends a customer who cancels.
    pub(crate) cancel_url: String,
    pub(crate) create_time: Timestamp,
    /// Time at which the provider's page stops taking money.
    pub(crate) expire_time: Timestamp,
    /// The provider's id of its session. `None` until the provider has reported one.
    pub(crate) reference: Option<String>,
    /// The provider's page. `None` before a session is open; stored only while the payment is PENDING.
    pub(crate) checkout_url: Option<String>,
    /// The provider's id of the money that it took. `None` until it has taken any.
    pub(crate) charge: Option<String>,
    /// `None` unless the payment is FAILED.
    pub(crate) failure_reason: Option<FailureReason>,
    /// Time at which the report that money was taken was recorded.
    pub(crate) confirm_time: Option<Timestamp>,
    /// Time at which Claim confirmed the claim with this payment.
    pub(crate) settle_time: Option<Timestamp>,
    pub(crate) refund: Option<Refund>,
}

/// A payment to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewPayment {
    pub(crate) id: PaymentId,
    pub(crate) claim_id: ClaimId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// The claim's total.
    pub(crate) amount: Money,
    pub(crate) provider: Provider,
    pub(crate) return_url: String,
    pub(crate) cancel_url: String,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Provider {
    Stripe,
    Paystack,
    /// The local provider of development and tests.
    Sandbox,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum PaymentState {
    /// Stored; no provider session is known yet.
    Initializing,
    /// The customer can pay at `checkout_url`.
    Pending,
    /// The provider has taken the money.
    Confirmed,
    /// The provider took no money. A late report of money still confirms the payment.
    Failed,
    /// The provider accepted the refund. Final.
    Refunded,
}

impl PaymentState {
    /// Returns true if a watching customer needs no further change.
    pub(crate) const fn is_final(self) -> bool {
        match self {
            Self::Initializing | Self::Pending => false,
            Self::Confirmed | Self::Failed | Self::Refunded => true,
        }
    }
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum FailureReason {
    /// The customer's bank or card declined the payment.
    Declined,
    /// The customer canceled on the provider's page.
    Canceled,
    /// The customer did not pay in time.
    Expired,
    /// The provider could not be reached, or refused to open a session.
    Provider,
}

/// The next step of a payment. A worker runs it unless the call that caused it finishes it first.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum PaymentStep {
    /// Open a session at the provider.
    Initialize,
    /// Ask the provider for the outcome of its session.
    #[strum(serialize = "ASK")]
    PollProvider,
    /// Ask Claim to confirm the claim.
    Settle,
    /// Ask the provider to refund the money.
    Refund,
}

/// A provider's report about a payment, from an answer or a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProviderUpdate {
    /// The provider opened a session on whose page the customer can pay.
    Opened { reference: String, checkout_url: String },
    /// The money was taken.
    Paid {
        /// May be the first reference we learn: a webhook can overtake the answer that opened the session.
        reference: String,
        charge: String,
        amount: Money,
    },
    /// No money was taken, and none will be.
    Ended { reason: FailureReason },
}

impl Payment {
    /// Returns the payment after `update`, or `None` if the update changes nothing.
    pub(crate) fn after_update(&self, update: &ProviderUpdate, now: Timestamp) -> Option<Self> {
        use PaymentState::{Confirmed, Failed, Initializing, Pending, Refunded};
        match (self.state, update) {
            (Initializing, ProviderUpdate::Opened { reference, checkout_url }) => Some(Self {
                state: Pending,
                reference: Some(reference.clone()),
                checkout_url: Some(checkout_url.clone()),
                ..self.clone()
            }),
            // Also after a failure: the provider has the money, so the payment cannot stay failed.
            (Initializing | Pending | Failed, ProviderUpdate::Paid { reference, charge, amount }) => {
                Some(Self {
                    state: Confirmed,
                    // Claim compares the paid amount with the claim's total; if they differ, the money is refunded.
                    amount: *amount,
                    reference: self.reference.clone().or_else(|| Some(reference.clone())),
                    charge: Some(charge.clone()),
                    failure_reason: None,
                    confirm_time: Some(now),
                    ..self.clone()
                })
            }
            (Initializing | Pending, ProviderUpdate::Ended { reason }) => {
                Some(Self { state: Failed, failure_reason: Some(*reason), ..self.clone() })
            }
            (Pending | Confirmed | Failed | Refunded, ProviderUpdate::Opened { .. })
            | (Confirmed | Refunded, ProviderUpdate::Paid { .. })
            | (Confirmed | Failed | Refunded, ProviderUpdate::Ended { .. }) => None,
        }
    }

    /// Decides whether to try again to open a session: returns the claim to pay for, or the reason to fail the payment. `claim`
    /// is `None` if Claim does not know it; `initializing_max` is the age at which a payment without a session is given up.
    pub(crate) fn retry_initialize(
        &self,
        claim: Option<Claim>,
        now: Timestamp,
        initializing_max: Duration,
    ) -> Result<Claim, FailureReason> {
        let is_late = now.saturating_since(self.create_time) > initializing_max;
        match claim {
            None => Err(FailureReason::Provider),
            Some(claim) if claim.state != ClaimState::Claimed => Err(FailureReason::Expired),
            Some(_) if is_late => Err(FailureReason::Provider),
            Some(claim) => Ok(claim),
        }
    }

    /// Returns the payment after Claim's verdict, or `None` if it does not wait for one. `refund_id` is used if the verdict is
    /// a refund.
    pub(crate) fn settled(&self, verdict: Verdict, refund_id: Uuid, now: Timestamp) -> Option<Self> {
        if self.next_step() != Some(PaymentStep::Settle) {
            return None;
        }
        match verdict {
            Verdict::Served => Some(Self { settle_time: Some(now), ..self.clone() }),
            Verdict::Refund(reason) => self.with_refund(reason, refund_id, now),
        }
    }

    /// Returns the payment with a pending refund, or `None` if it is not CONFIRMED or has a refund already.
    pub(crate) fn with_refund(&self, reason: RefundReason, refund_id: Uuid, now: Timestamp) -> Option<Self> {
        if self.state != PaymentState::Confirmed || self.refund.is_some() {
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

    /// Returns the payment after the provider accepted its refund, or `None` if no refund is pending.
    pub(crate) fn refunded(&self, now: Timestamp) -> Option<Self> {
        let refund = self.refund.as_ref().filter(|refund| refund.state == RefundState::Pending)?;
        let refund = Refund { state: RefundState::Completed, complete_time: Some(now), ..refund.clone() };
        Some(Self { state: PaymentState::Refunded, refund: Some(refund), ..self.clone() })
    }

    /// Returns the payment without its pending refund, or `None` if it has none or bought no tickets.
    pub(crate) fn without_refund(&self) -> Option<Self> {
        let is_pending = |refund: &Refund| refund.state == RefundState::Pending;
        // Without tickets, a refund is the only end that the money can have.
        let is_withdrawable = self.has_tickets() && self.refund.as_ref().is_some_and(is_pending);
        is_withdrawable.then(|| Self { refund: None, ..self.clone() })
    }

    /// Returns true if Claim confirmed the claim with this payment, so that it paid for the claim's tickets.
    pub(crate) const fn has_tickets(&self) -> bool {
        self.settle_time.is_some()
    }

    /// Returns the next step, or `None` if nothing is left to do.
    pub(crate) fn next_step(&self) -> Option<PaymentStep> {
        match (self.state, &self.refund, self.settle_time) {
            (PaymentState::Initializing, _, _) => Some(PaymentStep::Initialize),
            (PaymentState::Pending, _, _) => Some(PaymentStep::PollProvider),
            (PaymentState::Confirmed, Some(_), _) => Some(PaymentStep::Refund),
            (PaymentState::Confirmed, None, None) => Some(PaymentStep::Settle),
            (PaymentState::Confirmed, None, Some(_))
            | (PaymentState::Failed | PaymentState::Refunded, _, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
