//! The admission rate as a token bucket in whole numbers, so that every leader computes the same admissions.

use std::time::Duration;

use onsale_types::Timestamp;

/// Cost of one admission. The level grows by the rate per minute with every microsecond, so one minute at rate r yields
/// exactly r admissions.
const COST: u64 = 60_000_000;

/// Microseconds of admissions that may be saved up: more than the 1 s between two rounds, so that a late round loses nothing,
/// and little enough that an idle queue does not burst.
const BURST_MICROS: u64 = 2_000_000;

/// The admissions saved up at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Saved admissions, in units of 1/60,000,000 of an admission.
    pub(crate) level: u64,
    /// Time at which `level` was computed.
    pub(crate) time: Timestamp,
}

impl Bucket {
    /// Returns the bucket at `now`, filled at this rate. A clock that moved back adds nothing.
    pub(crate) fn filled(self, rate_per_minute: u32, now: Timestamp) -> Self {
        self.filled_over(rate_per_minute, Duration::ZERO, now)
    }

    /// Like [`Self::filled`] for rounds that are `interval` apart, which adds that much to the burst.
    pub(crate) fn filled_over(self, rate_per_minute: u32, interval: Duration, now: Timestamp) -> Self {
        let burst_micros =
            u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).saturating_add(BURST_MICROS);
        let elapsed = u64::try_from(now.saturating_since(self.time).as_micros()).unwrap_or(u64::MAX);
        let rate = u64::from(rate_per_minute);
        // One admission of headroom: without it a slow rate would never reach a whole one.
        let level_max = rate.saturating_mul(burst_micros).saturating_add(COST);
        let level = self.level.saturating_add(elapsed.saturating_mul(rate)).min(level_max);
        Self { level, time: now.max(self.time) }
    }

    /// Returns the number of whole admissions saved up.
    pub(crate) fn whole(self) -> u64 {
        self.level / COST
    }

    /// Returns the bucket after `count` admissions, of which there must be no more than [`Self::whole`].
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
    fn slow_rate_reaches_a_whole_admission() {
        let bucket = Bucket { level: 0, time: at(0) }.filled(1, at(59_999_999));
        assert_eq!(bucket.whole(), 0);
        assert_eq!(bucket.filled(1, at(60_000_000)).whole(), 1);
    }

    #[test]
    fn rate_of_zero_saves_nothing_up() {
        assert_eq!(Bucket { level: 0, time: at(0) }.filled(0, at(i64::MAX)).whole(), 0);
    }

    #[test]
    fn idle_queue_saves_up_two_seconds() {
        let bucket = Bucket { level: 0, time: at(0) }.filled(3_000, at(3_600_000_000));
        assert_eq!(bucket.whole(), 101);
    }

    /// Returns the admissions if the bucket is emptied after each step, and the microseconds that the steps take.
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
        fn admissions_never_exceed_the_rate(
            rate in 0_u32..1_000_000,
            steps in proptest::collection::vec(0_i64..5_000_000, 1..50),
        ) {
            let (granted, micros) = admitted(rate, &steps);
            prop_assert!(granted * 60_000_000 <= u128::from(rate) * micros);
        }

        #[test]
        fn rounds_in_time_lose_no_admission(
            rate in 1_u32..1_000_000,
            steps in proptest::collection::vec(1_i64..1_900_000, 1..50),
        ) {
            let (granted, micros) = admitted(rate, &steps);
            prop_assert_eq!(granted, u128::from(rate) * micros / 60_000_000);
        }
    }
}
