//! Payment's view of a claim: whether it can be paid, and what becomes of money that was taken for it.

use std::time::Duration;

use onsale_types::{ClaimId, CustomerId, EventId, Money, PaymentId, Timestamp};

use super::RefundReason;

/// A claim as Claim reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    pub(crate) customer_id: CustomerId,
    /// The event as it was when the claim was made.
    pub(crate) event: EventSummary,
    pub(crate) state: ClaimState,
    /// Amount to be paid.
    pub(crate) total: Money,
    /// Time at which an unpaid claim is released. `None` once it is confirmed or released.
    pub(crate) expire_time: Option<Timestamp>,
    /// The payment that paid for the claim. `None` until it is confirmed.
    pub(crate) payment_id: Option<PaymentId>,
    /// Verified address of the buyer.
    pub(crate) buyer_email: String,
    /// BCP 47 language tag of the buyer. Empty if unknown.
    pub(crate) buyer_locale: String,
}

/// Description of an event for mails and provider pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSummary {
    pub(crate) id: EventId,
    pub(crate) name: String,
    pub(crate) venue_name: String,
    /// Street address. Empty if not given.
    pub(crate) venue_address: String,
    /// IANA name of the venue's time zone.
    pub(crate) time_zone: String,
    pub(crate) start_time: Option<Timestamp>,
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
pub(crate) enum ClaimState {
    /// Units are held and wait to be paid.
    Claimed,
    /// Paid.
    Confirmed,
    /// Expired, canceled or rejected; its units are free again.
    Released,
}

/// Claim's decision about a confirmed payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The claim is confirmed with this payment.
    Served,
    /// The money must be refunded.
    Refund(RefundReason),
}

impl Claim {
    /// Returns true if its customer may start paying it: it is CLAIMED and lasts longer than `margin` from `now`.
    pub(crate) fn is_payable(&self, now: Timestamp, margin: Duration) -> bool {
        let lasts = |expiry: Timestamp| expiry.saturating_since(now) > margin;
        self.state == ClaimState::Claimed && self.expire_time.is_none_or(lasts)
    }

    /// Returns the verdict on `payment_id` after Claim was asked to confirm the claim with it. `None`: nothing is decided, and a
    /// refund now might give the customer both the tickets and the money.
    pub(crate) fn verdict(&self, payment_id: PaymentId) -> Option<Verdict> {
        match (self.state, self.payment_id) {
            (ClaimState::Confirmed, Some(paid_by)) if paid_by == payment_id => Some(Verdict::Served),
            (ClaimState::Confirmed, Some(_)) => Some(Verdict::Refund(RefundReason::Duplicate)),
            (ClaimState::Released, _) => Some(Verdict::Refund(RefundReason::ClaimRejected)),
            (ClaimState::Claimed, _) | (ClaimState::Confirmed, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use onsale_types::Currency;

    use super::*;

    fn claim(state: ClaimState, payment_id: Option<PaymentId>) -> Claim {
        let event = EventSummary {
            id: EventId::generate(),
            name: "Match".to_owned(),
            venue_name: String::new(),
            venue_address: String::new(),
            time_zone: "Europe/Zagreb".to_owned(),
            start_time: None,
        };
        Claim {
            id: ClaimId::generate(),
            customer_id: CustomerId::generate(),
            event,
            state,
            total: Money::new(100, Currency::parse("EUR").unwrap()),
            expire_time: Some(Timestamp::from_secs(100)),
            payment_id,
            buyer_email: String::new(),
            buyer_locale: String::new(),
        }
    }

    #[test]
    fn claim_is_payable_until_the_margin_before_its_expiry() {
        let margin = Duration::from_secs(10);
        let claimed = claim(ClaimState::Claimed, None);
        assert!(claimed.is_payable(Timestamp::from_secs(89), margin));
        assert!(!claimed.is_payable(Timestamp::from_secs(90), margin));
        assert!(!claim(ClaimState::Confirmed, None).is_payable(Timestamp::from_secs(1), margin));
        assert!(!claim(ClaimState::Released, None).is_payable(Timestamp::from_secs(1), margin));
    }

    #[test]
    fn verdict_is_a_refund_unless_this_payment_confirmed_the_claim() {
        let (this, other) = (PaymentId::generate(), PaymentId::generate());
        assert_eq!(claim(ClaimState::Confirmed, Some(this)).verdict(this), Some(Verdict::Served));
        let duplicate = Some(Verdict::Refund(RefundReason::Duplicate));
        assert_eq!(claim(ClaimState::Confirmed, Some(other)).verdict(this), duplicate);
        let rejected = Some(Verdict::Refund(RefundReason::ClaimRejected));
        assert_eq!(claim(ClaimState::Released, None).verdict(this), rejected);
        assert_eq!(claim(ClaimState::Claimed, None).verdict(this), None, "it can still be confirmed");
        assert_eq!(claim(ClaimState::Claimed, Some(this)).verdict(this), None);
        assert_eq!(claim(ClaimState::Confirmed, None).verdict(this), None, "the paying payment is unknown");
    }
}
