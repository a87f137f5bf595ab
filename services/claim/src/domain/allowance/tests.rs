//! Limit, cooldown, and their changes with a claim's lifecycle.

use onsale_types::PaymentId;
use proptest::prelude::*;

use super::*;

const RULE: CooldownRule =
    CooldownRule { claims: 2, max_gap: Duration::from_secs(60), duration: Duration::from_secs(60) };

fn at(seconds: u64) -> Timestamp {
    Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap()
}

fn rule(claims: u32) -> CooldownRule {
    CooldownRule { claims, max_gap: Duration::from_secs(100), duration: Duration::from_secs(30) }
}

proptest! {
    #[test]
    fn limit_admits_units_exactly_up_to_the_maximum(max: u32, taken: u32, units: u32) {
        let sum = u64::from(taken) + u64::from(units);
        let allowance = Allowance { units_taken: taken, ..Allowance::of_new_customer(max) };
        match allowance.check_limit(units) {
            Ok(()) => prop_assert!(units == 0 || sum <= u64::from(max)),
            Err(exceeded) => {
                prop_assert!(sum > u64::from(max));
                prop_assert_eq!(exceeded.units_max, max);
                prop_assert!(exceeded.units_left < units);
            }
        }
    }

    #[test]
    fn cooldown_runs_after_enough_consecutive_abandoned_claims(
        pauses in prop::collection::vec(0_u64..200, 1..12),
        claims in 1_u32..6,
        later in 0_u64..60,
    ) {
        let (mut streak, mut time, mut in_a_row) = (AbandonedStreak::default(), 0, 0_u32);
        for pause in pauses {
            time += pause;
            in_a_row = if in_a_row > 0 && pause <= 100 { in_a_row + 1 } else { 1 };
            streak = streak.increment(at(time), rule(claims));
        }
        let expected = (in_a_row >= claims && later < 30).then(|| at(time + 30));
        prop_assert_eq!(streak.cooldown_until(at(time + later), rule(claims)), expected);
    }

    #[test]
    fn zero_claims_disables_the_cooldown(count: u32, last in 0_u64..1_000, now in 0_u64..1_000) {
        let streak = AbandonedStreak { count, last: Some(at(last)) };
        prop_assert_eq!(streak.cooldown_until(at(now), rule(0)), None);
    }
}

#[test]
fn claim_abandoned_soon_after_a_cooldown_starts_the_next_one() {
    let mut streak = AbandonedStreak::default();
    for second in [0, 10, 20] {
        streak = streak.increment(at(second), rule(3));
    }
    assert_eq!(streak.cooldown_until(at(49), rule(3)), Some(at(50)));
    assert_eq!(streak.cooldown_until(at(50), rule(3)), None);
    let again = streak.increment(at(60), rule(3));
    assert_eq!(again.cooldown_until(at(60), rule(3)), Some(at(90)));
    let much_later = streak.increment(at(200), rule(3));
    assert_eq!(much_later.cooldown_until(at(200), rule(3)), None);
}

#[test]
fn only_abandoned_claims_extend_the_streak_and_a_purchase_resets_it() {
    let (now, allowance) = (Timestamp::from_secs(100), Allowance::of_new_customer(4).with(2));
    let released = |reason| ClaimLifecycle::NEW.release(reason).unwrap();
    for (reason, count) in
        [(ReleaseReason::Customer, 1), (ReleaseReason::Expired, 1), (ReleaseReason::PaymentFailed, 0)]
    {
        let after = allowance.after(ClaimLifecycle::NEW, released(reason), 2, now, RULE);
        assert_eq!((after.units_taken, after.abandoned.count), (0, count), "{reason:?}");
    }
    let abandoned = allowance.after(ClaimLifecycle::NEW, released(ReleaseReason::Expired), 2, now, RULE);
    let rejected = released(ReleaseReason::Expired).record_payment(PaymentId::generate(), false).unwrap();
    assert_eq!(abandoned.after(released(ReleaseReason::Expired), rejected, 2, now, RULE), abandoned);
    let paid = ClaimLifecycle::NEW.record_payment(PaymentId::generate(), true).unwrap();
    let bought = abandoned.with(2).after(paid, paid.confirm().unwrap(), 2, now, RULE);
    assert_eq!((bought.units_taken, bought.abandoned), (2, AbandonedStreak::default()));
}

#[test]
fn released_claim_counts_once_again_after_a_late_payment() {
    let (now, allowance) = (Timestamp::from_secs(100), Allowance::of_new_customer(4));
    let released = ClaimLifecycle::NEW.release(ReleaseReason::Expired).unwrap();
    let paid = released.record_payment(PaymentId::generate(), true).unwrap();
    let counted = allowance.after(released, paid, 3, now, RULE);
    assert_eq!(counted.units_taken, 3);
    assert_eq!(counted.after(paid, paid, 3, now, RULE), counted);
}
