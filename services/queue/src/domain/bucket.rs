//! The admission rate as a token bucket, in whole numbers: exact, and the same whoever leads.

use std::time::Duration;

use onsale_types::Timestamp;

/// What one admission costs. A level grows by the rate (per minute) with every microsecond, so a minute at rate r makes
/// exactly r admissions.
const COST: u64 = 60_000_000;

/// How many microseconds of admissions may come at once: a little more than the time between two rounds, so that a late
/// round loses nothing, and little enough that a queue that was idle does not burst.
const BURST_MICROS: u64 = 2_000_000;

/// What has been saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// How much, in shares of an admission.
    pub(crate) level: u64,
    /// As of when.
    pub(crate) time: Timestamp,
}

impl Bucket {
    /// As it is at `now`, at this rate. A clock that went back adds nothing.
    pub(crate) fn filled(self, rate_per_minute: u32, now: Timestamp) -> Self {
        self.filled_over(rate_per_minute, Duration::ZERO, now)
    }

    /// The same where rounds are `interval` apart: as much more may come at once.
    pub(crate) fn filled_over(self, rate_per_minute: u32, interval: Duration, now: Timestamp) -> Self {
        let burst_micros =
            u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).saturating_add(BURST_MICROS);
        let elapsed = u64::try_from(now.saturating_since(self.time).as_micros()).unwrap_or(u64::MAX);
        let rate = u64::from(rate_per_minute);
        // Room for one more, or a slow rate would never get there.
        let level_max = rate.saturating_mul(burst_micros).saturating_add(COST);
        let level = self.level.saturating_add(elapsed.saturating_mul(rate)).min(level_max);
        Self { level, time: now.max(self.time) }
    }

    /// How many admissions are saved up.
    pub(crate) fn whole(self) -> u64 {
        self.level / COST
    }

    /// After `count` admissions, which must not be more than are saved up.
    pub(crate) fn spent(self, count: u64) -> Self {
        Self { level: self.level.saturating_sub(count.saturating_mul(COST)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_slow_rate_gets_there() {
        let bucket = Bucket { level: 0, time: at(0) }.filled(1, at(59_999_999));
        assert_eq!(bucket.whole(), 0);
        assert_eq!(bucket.filled(1, at(60_000_000)).whole(), 1);
    }

    #[test]
    fn a_rate_of_zero_admits_nobody_but_what_was_saved_up() {
        assert_eq!(Bucket { level: 0, time: at(0) }.filled(0, at(i64::MAX)).whole(), 0);
    }

    #[test]
    fn an_idle_queue_does_not_burst() {
        let bucket = Bucket { level: 0, time: at(0) }.filled(3_000, at(3_600_000_000));
        assert_eq!(bucket.whole(), 101);
    }

    /// How many are admitted when everything that is saved up is spent after each of these steps, and how long that takes.
    fn admitted(rate: u32, steps: &[i64]) -> (u128, u128) {
        let (mut bucket, mut now, mut granted) = (Bucket { level: 0, time: at(0) }, 0_i64, 0_u128);
        for step in steps {
            now += step;
            bucket = bucket.filled(rate, at(now));
            granted += u128::from(bucket.whole());
            bucket = bucket.spent(bucket.whole());
        }
        (granted, u128::from(now.unsigned_abs()))
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate(
            rate in 0_u32..1_000_000,
            steps in proptest::collection::vec(0_i64..5_000_000, 1..50),
        ) {
            let (granted, micros) = admitted(rate, &steps);
            prop_assert!(granted * 60_000_000 <= u128::from(rate) * micros);
        }

        #[test]
        fn rounds_that_come_in_time_lose_nothing(
            rate in 1_u32..1_000_000,
            steps in proptest::collection::vec(1_i64..1_900_000, 1..50),
        ) {
            let (granted, micros) = admitted(rate, &steps);
            prop_assert_eq!(granted, u128::from(rate) * micros / 60_000_000);
        }
    }
}
