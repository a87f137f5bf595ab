//! Events that Payment publishes to the other services.

use onsale_types::{ClaimId, Timestamp};

use super::{Claim, Payment, PaymentState};

#[derive(Clone, Debug)]
pub(crate) enum PaymentEvent {
    /// `payment.confirmed`: the provider has taken the money.
    Confirmed(Payment),
    /// `payment.failed`: the payment ended without money.
    Failed { payment: Payment, fail_time: Timestamp },
    /// `payment.refunded`: the provider accepted the refund. The claim names the buyer to notify.
    Refunded { payment: Payment, claim: Box<Claim> },
}

impl PaymentEvent {
    /// Returns the event to publish after a provider's update changed `payment` to its current state. `None` for a state that no
    /// other service waits for.
    pub(crate) fn of_update(payment: &Payment, now: Timestamp) -> Option<Self> {
        match payment.state {
            PaymentState::Confirmed => Some(Self::Confirmed(payment.clone())),
            PaymentState::Failed => Some(Self::Failed { payment: payment.clone(), fail_time: now }),
            PaymentState::Initializing | PaymentState::Pending | PaymentState::Refunded => None,
        }
    }

    pub(crate) fn payment(&self) -> &Payment {
        match self {
            Self::Confirmed(payment) | Self::Failed { payment, .. } | Self::Refunded { payment, .. } => {
                payment
            }
        }
    }

    /// Returns the key by which events are ordered: those of one claim stay in order.
    pub(crate) fn claim_id(&self) -> ClaimId {
        self.payment().claim_id
    }
}
