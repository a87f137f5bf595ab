//! Refunds. A payment is refunded as a whole and at most once.

use onsale_types::Timestamp;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refund {
    /// Also the provider's idempotency key, so that repeated requests refund once.
    pub(crate) id: Uuid,
    pub(crate) reason: RefundReason,
    pub(crate) state: RefundState,
    pub(crate) create_time: Timestamp,
    /// Time at which the provider accepted the refund. `None` while it is PENDING.
    pub(crate) complete_time: Option<Timestamp>,
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
pub(crate) enum RefundReason {
    /// The claim could not be confirmed.
    ClaimRejected,
    /// Another payment paid for the claim.
    Duplicate,
    /// The event does not take place.
    EventCanceled,
    /// The organizer agreed to return the money.
    Goodwill,
}

impl RefundReason {
    /// Returns true if an organizer may give this reason; the others are for services.
    pub(crate) const fn is_for_organizers(self) -> bool {
        match self {
            Self::EventCanceled | Self::Goodwill => true,
            Self::ClaimRejected | Self::Duplicate => false,
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
pub(crate) enum RefundState {
    /// Stored; a worker requests it until the provider accepts.
    Pending,
    /// The provider accepted it. Final.
    Completed,
}
