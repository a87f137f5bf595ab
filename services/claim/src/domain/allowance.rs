//! How many units one customer may have of one event, over all claims, and how they went so far.

use onsale_types::Timestamp;

use super::{Abandonment, CooldownRule, Life, ReleaseReason, Stage};

/// What a customer may have of an event, and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The event's limit.
    pub units_max: u32,
    /// Units of all claims that count.
    pub units_taken: u32,
    /// Claims given up one soon after the other.
    pub abandonment: Abandonment,
}

/// With these units the customer would have more than the event allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// The event's limit.
    pub units_max: u32,
    /// How many the customer may still have.
    pub units_left: u32,
}

impl Allowance {
    /// Of a customer who has never claimed anything.
    #[must_use]
    pub fn of_new_customer(units_max: u32) -> Self {
        Self { units_max, units_taken: 0, abandonment: Abandonment::default() }
    }

    /// With `units` more.
    #[must_use]
    pub fn with(self, units: u32) -> Self {
        Self { units_taken: self.units_taken.saturating_add(units), ..self }
    }

    /// After a claim of `units` went from `before` to `after` at `now`. Who lets a claim go by is counted; whose payment
    /// failed, or who found the units gone, is not; and a purchase makes up for all before.
    #[must_use]
    pub fn after(self, before: Life, after: Life, units: u32, now: Timestamp, rule: CooldownRule) -> Self {
        let units_taken = match (before.is_counted(), after.is_counted()) {
            (false, true) => self.units_taken.saturating_add(units),
            (true, false) => self.units_taken.saturating_sub(units),
            (true, true) | (false, false) => self.units_taken,
        };
        let abandonment = match (before.stage(), after.stage()) {
            (Stage::Claimed, Stage::Released(ReleaseReason::Customer | ReleaseReason::Expired)) => {
                self.abandonment.and_one(now, rule)
            }
            (Stage::Claimed | Stage::Released(_), Stage::Confirmed) => Abandonment::default(),
            (_, Stage::Claimed | Stage::Confirmed | Stage::Released(_) | Stage::Rejected) => self.abandonment,
        };
        Self { units_taken, abandonment, ..self }
    }

    /// Whether there is room for `units` more.
    pub fn check(self, units: u32) -> Result<(), LimitExceeded> {
        let units_left = self.units_max.saturating_sub(self.units_taken);
        if units <= units_left {
            Ok(())
        } else {
            Err(LimitExceeded { units_max: self.units_max, units_left })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onsale_types::PaymentId;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_passes_keeps_the_limit_and_what_does_not_would_break_it(max: u32, taken: u32, units: u32) {
            let sum = u64::from(taken) + u64::from(units);
            let allowance = Allowance { units_taken: taken, ..Allowance::of_new_customer(max) };
            match allowance.check(units) {
                Ok(()) => prop_assert!(units == 0 || sum <= u64::from(max)),
                Err(exceeded) => {
                    prop_assert!(sum > u64::from(max));
                    prop_assert_eq!(exceeded.units_max, max);
                    prop_assert!(exceeded.units_left < units);
                }
            }
        }
    }

    const RULE: CooldownRule =
        CooldownRule { claims: 2, within: Duration::from_secs(60), lasts: Duration::from_secs(60) };

    #[test]
    fn only_who_lets_a_claim_go_by_is_counted_and_a_purchase_makes_up_for_it() {
        let (now, allowance) = (Timestamp::from_secs(100), Allowance::of_new_customer(4).with(2));
        let released = |reason| Life::BEGIN.release(reason).unwrap();
        for (reason, count) in
            [(ReleaseReason::Customer, 1), (ReleaseReason::Expired, 1), (ReleaseReason::PaymentFailed, 0)]
        {
            let after = allowance.after(Life::BEGIN, released(reason), 2, now, RULE);
            assert_eq!((after.units_taken, after.abandonment.count), (0, count), "{reason:?}");
        }
        let given_up = allowance.after(Life::BEGIN, released(ReleaseReason::Expired), 2, now, RULE);
        let rejected = released(ReleaseReason::Expired).pay(PaymentId::generate(), false).unwrap();
        assert_eq!(given_up.after(released(ReleaseReason::Expired), rejected, 2, now, RULE), given_up);
        let paid = Life::BEGIN.pay(PaymentId::generate(), true).unwrap();
        let bought = given_up.with(2).after(paid, paid.complete().unwrap(), 2, now, RULE);
        assert_eq!((bought.units_taken, bought.abandonment), (2, Abandonment::default()));
    }

    #[test]
    fn a_claim_paid_after_it_was_given_up_counts_again_and_once() {
        let (now, allowance) = (Timestamp::from_secs(100), Allowance::of_new_customer(4));
        let released = Life::BEGIN.release(ReleaseReason::Expired).unwrap();
        let paid = released.pay(PaymentId::generate(), true).unwrap();
        let counted = allowance.after(released, paid, 3, now, RULE);
        assert_eq!(counted.units_taken, 3);
        assert_eq!(counted.after(paid, paid, 3, now, RULE), counted);
    }
}
