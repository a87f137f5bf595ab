//! Who lets claim after claim go by unpaid waits before the next one, so that nobody keeps stock from others.

use std::time::Duration;

use onsale_types::Timestamp;

/// When a customer has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CooldownRule {
    /// After so many claims given up, each soon after the one before. 0: never.
    pub claims: u32,
    /// What soon means.
    pub within: Duration,
    /// How long, from the last one given up.
    pub lasts: Duration,
}

/// The claims of an event that a customer gave up one soon after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abandonment {
    /// How many.
    pub count: u32,
    /// When the last one went.
    pub last: Option<Timestamp>,
}

impl Abandonment {
    /// One more was given up at `now`.
    #[must_use]
    pub fn and_one(self, now: Timestamp, rule: CooldownRule) -> Self {
        let is_soon = self.last.is_some_and(|last| now.saturating_since(last) <= rule.within);
        let before = if is_soon { self.count } else { 0 };
        Self { count: before.saturating_add(1), last: Some(now) }
    }

    /// Until when the customer has to wait at `now`. None: not at all.
    #[must_use]
    pub fn waits_until(self, now: Timestamp, rule: CooldownRule) -> Option<Timestamp> {
        if rule.claims == 0 || self.count < rule.claims {
            return None;
        }
        self.last.and_then(|last| last.checked_add(rule.lasts)).filter(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    fn rule(claims: u32) -> CooldownRule {
        CooldownRule { claims, within: Duration::from_secs(100), lasts: Duration::from_secs(30) }
    }

    proptest! {
        #[test]
        fn who_waits_gave_up_as_many_each_soon_after_the_one_before(
            pauses in prop::collection::vec(0_u64..200, 1..12),
            claims in 1_u32..6,
            later in 0_u64..60,
        ) {
            let (mut abandonment, mut time, mut in_a_row) = (Abandonment::default(), 0, 0_u32);
            for pause in pauses {
                time += pause;
                in_a_row = if in_a_row > 0 && pause <= 100 { in_a_row + 1 } else { 1 };
                abandonment = abandonment.and_one(after(time), rule(claims));
            }
            let expected = (in_a_row >= claims && later < 30).then(|| after(time + 30));
            prop_assert_eq!(abandonment.waits_until(after(time + later), rule(claims)), expected);
        }

        #[test]
        fn without_a_number_nobody_waits(count: u32, last in 0_u64..1_000, now in 0_u64..1_000) {
            let abandonment = Abandonment { count, last: Some(after(last)) };
            prop_assert_eq!(abandonment.waits_until(after(now), rule(0)), None);
        }
    }

    #[test]
    fn who_waited_and_gives_up_again_soon_waits_again() {
        let mut abandonment = Abandonment::default();
        for second in [0, 10, 20] {
            abandonment = abandonment.and_one(after(second), rule(3));
        }
        assert_eq!(abandonment.waits_until(after(49), rule(3)), Some(after(50)));
        assert_eq!(abandonment.waits_until(after(50), rule(3)), None);
        let again = abandonment.and_one(after(60), rule(3));
        assert_eq!(again.waits_until(after(60), rule(3)), Some(after(90)));
        let much_later = abandonment.and_one(after(200), rule(3));
        assert_eq!(much_later.waits_until(after(200), rule(3)), None);
    }
}
