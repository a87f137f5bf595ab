//! Money on its way back: the whole amount, once.

use onsale_types::Timestamp;
use uuid::Uuid;

/// A refund of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Its id; also what makes it once only at the provider.
    pub id: Uuid,
    /// Why.
    pub reason: RefundReason,
    /// Where it is in its life.
    pub state: RefundState,
    /// When it was asked for.
    pub create_time: Timestamp,
    /// When the provider accepted it.
    pub complete_time: Option<Timestamp>,
}

onsale_types::named! {
    /// Why money goes back.
    RefundReason {
        /// The claim could not be served.
        ClaimRejected = "CLAIM_REJECTED",
        /// The claim was paid twice.
        Duplicate = "DUPLICATE",
        /// The event does not take place.
        EventCanceled = "EVENT_CANCELED",
        /// The organizer agreed to give it back.
        Goodwill = "GOODWILL",
    }
}

impl RefundReason {
    /// Whether an organizer may give it; the others are what services find out.
    #[must_use]
    pub const fn is_for_organizers(self) -> bool {
        match self {
            Self::EventCanceled | Self::Goodwill => true,
            Self::ClaimRejected | Self::Duplicate => false,
        }
    }
}

onsale_types::named! {
    /// Life of a refund.
    RefundState {
        /// Stored; asked of the provider until it accepts.
        Pending = "PENDING",
        /// The provider accepted it. Final.
        Completed = "COMPLETED",
    }
}
