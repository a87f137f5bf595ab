//! What Payment knows of a claim: whether it may be paid, and what became of it once it was.

use std::time::Duration;

use onsale_types::{ClaimId, CustomerId, EventId, Money, PaymentId, Timestamp};

use super::RefundReason;

/// A claim as Claim tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// Whose it is.
    pub customer_id: CustomerId,
    /// The event, as it was when the claim was made.
    pub event: EventSummary,
    /// Where it is in its life.
    pub state: ClaimState,
    /// What is to be paid.
    pub total: Money,
    /// When it is released unless it is paid before.
    pub expire_time: Option<Timestamp>,
    /// The payment that paid it.
    pub payment_id: Option<PaymentId>,
    /// Verified address of the buyer.
    pub buyer_email: String,
    /// Language of the buyer; empty when not known.
    pub buyer_locale: String,
}

/// What mails and provider pages say about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSummary {
    /// The event.
    pub id: EventId,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub venue_name: String,
    /// Its street address; empty when not given.
    pub venue_address: String,
    /// IANA name of the venue's time zone.
    pub time_zone: String,
    /// When it starts.
    pub start_time: Option<Timestamp>,
}

onsale_types::named! {
    /// Life of a claim.
    ClaimState {
        /// Units are held, to be paid.
        Claimed = "CLAIMED",
        /// Paid.
        Confirmed = "CONFIRMED",
        /// Given up.
        Released = "RELEASED",
    }
}

/// What is to become of the money, by what Claim said to a confirmed payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim is the customer's.
    Served,
    /// It goes back.
    Refund(RefundReason),
}

impl Claim {
    /// Whether `customer` may start paying it at `now`, with `margin` left before it expires.
    #[must_use]
    pub fn is_payable(&self, now: Timestamp, margin: Duration) -> bool {
        let lasts = |expiry: Timestamp| expiry.saturating_since(now) > margin;
        self.state == ClaimState::Claimed && self.expire_time.is_none_or(lasts)
    }

    /// What is to become of the money of `payment`, after the claim was to be confirmed with it. None: nothing is decided,
    /// and giving the money back now might give both.
    #[must_use]
    pub fn verdict(&self, payment: PaymentId) -> Option<Verdict> {
        match (self.state, self.payment_id) {
            (ClaimState::Confirmed, Some(paid_by)) if paid_by == payment => Some(Verdict::Served),
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
    fn a_claim_is_payable_until_its_margin_before_the_end() {
        let margin = Duration::from_secs(10);
        let claimed = claim(ClaimState::Claimed, None);
        assert!(claimed.is_payable(Timestamp::from_secs(89), margin));
        assert!(!claimed.is_payable(Timestamp::from_secs(90), margin));
        assert!(!claim(ClaimState::Confirmed, None).is_payable(Timestamp::from_secs(1), margin));
        assert!(!claim(ClaimState::Released, None).is_payable(Timestamp::from_secs(1), margin));
    }

    #[test]
    fn money_goes_back_unless_the_claim_was_confirmed_with_it() {
        let (ours, theirs) = (PaymentId::generate(), PaymentId::generate());
        assert_eq!(claim(ClaimState::Confirmed, Some(ours)).verdict(ours), Some(Verdict::Served));
        let duplicate = Some(Verdict::Refund(RefundReason::Duplicate));
        assert_eq!(claim(ClaimState::Confirmed, Some(theirs)).verdict(ours), duplicate);
        let rejected = Some(Verdict::Refund(RefundReason::ClaimRejected));
        assert_eq!(claim(ClaimState::Released, None).verdict(ours), rejected);
        assert_eq!(claim(ClaimState::Claimed, None).verdict(ours), None, "it may still be served");
        assert_eq!(claim(ClaimState::Claimed, Some(ours)).verdict(ours), None);
        assert_eq!(claim(ClaimState::Confirmed, None).verdict(ours), None, "by whom, it does not say");
    }
}
