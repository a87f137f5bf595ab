//! Waits between attempts: exponential backoff with full jitter and a limited number of attempts.
//!
//! Full jitter: the wait before attempt n + 1 is uniformly random between zero and `initial × multiplier^(n−1)`, at most
//! `max`. Callers that failed together so retry at different times, which lets an overloaded server recover. This module
//! never decides *whether* an attempt may be repeated: only the caller knows that.

use std::{future::Future, ops::RangeInclusive, time::Duration};

use rand::{RngExt, rngs::SmallRng};
use serde::Deserialize;

use crate::deadline::Deadline;

/// Bounds of the waits and the number of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackoffConfig {
    /// Longest wait after the first failure.
    #[serde(with = "humantime_serde")]
    pub initial: Duration,
    /// Longest wait after any failure.
    #[serde(with = "humantime_serde")]
    pub max: Duration,
    /// Growth of the longest wait from failure to failure; 0 counts as 1.
    pub multiplier: u32,
    /// Attempts including the first; 0 counts as 1.
    pub attempts_max: u32,
}

impl BackoffConfig {
    /// Returns the sum of the longest waits.
    #[cfg(test)]
    fn total_max(&self) -> Duration {
        let mut total = Duration::ZERO;
        let mut ceiling = self.initial.min(self.max);
        for attempt in 1..self.attempts_max {
            if ceiling == self.max {
                // All further waits have the same bound. `attempts_max` may be huge, so multiply instead of looping.
                let left = self.attempts_max.saturating_sub(attempt);
                return total.saturating_add(ceiling.saturating_mul(left));
            }
            total = total.saturating_add(ceiling);
            ceiling = self.grown(ceiling);
        }
        total
    }

    fn grown(&self, ceiling: Duration) -> Duration {
        // Zero could never grow, so it counts as 1 µs, the smallest wait that is drawn.
        ceiling.max(Duration::from_micros(1)).saturating_mul(self.multiplier.max(1)).min(self.max)
    }
}

/// The waits of one piece of work. Create a new one for each.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// Upper bound of the next wait.
    ceiling: Duration,
    /// Number of waits that are left.
    waits_left: u32,
    random: SmallRng,
}

impl Backoff {
    /// Starts with all attempts left.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self::with_random(config, rand::make_rng())
    }

    /// Does the same as [`Backoff::new`], with the same waits in every run.
    #[cfg(test)]
    fn seeded(config: BackoffConfig, seed: u64) -> Self {
        use rand::SeedableRng;
        Self::with_random(config, SmallRng::seed_from_u64(seed))
    }

    fn with_random(config: BackoffConfig, random: SmallRng) -> Self {
        let ceiling = config.initial.min(config.max);
        Self { config, ceiling, waits_left: config.attempts_max.saturating_sub(1), random }
    }

    /// Returns the wait before the next attempt, `None` if no attempts are left.
    pub fn next_delay(&mut self) -> Option<Duration> {
        self.waits_left = self.waits_left.checked_sub(1)?;
        let ceiling_micros = u64::try_from(self.ceiling.as_micros()).unwrap_or(u64::MAX);
        let delay = Duration::from_micros(self.random.random_range(0..=ceiling_micros));
        self.ceiling = self.config.grown(self.ceiling);
        Some(delay)
    }

    /// Restores all attempts and the initial bound. For endless loops, after a success.
    pub fn reset(&mut self) {
        self.ceiling = self.config.initial.min(self.config.max);
        self.waits_left = self.config.attempts_max.saturating_sub(1);
    }
}

/// Returns a random duration between the two ends of `percent` of `span`, so that processes that started together do not
/// work in step. `100..=110` gives the span plus up to 10 %.
#[must_use]
pub fn jittered(span: Duration, percent: RangeInclusive<u32>) -> Duration {
    let share =
        |percent: u32| u64::try_from((span.saturating_mul(percent) / 100).as_micros()).unwrap_or(u64::MAX);
    let (low, high) = (share(*percent.start()), share(*percent.end()));
    Duration::from_micros(rand::rng().random_range(low..=high.max(low)))
}

/// A failure's classification for [`retry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Do not retry: the next attempt would fail alike, or a repeat is unsafe.
    Never,
    /// Retry after the backoff's wait.
    Later,
    /// Retry after the backoff's wait, but not before this time, which the callee named.
    After(Duration),
}

/// Runs `attempt` until it succeeds. Returns the last error if `classify` says never, no attempts are left, or the next one
/// would begin after `deadline`. A running attempt is not interrupted: it has the deadline itself.
pub async fn retry<T, E, F>(
    deadline: Deadline,
    mut backoff: Backoff,
    classify: impl Fn(&E) -> Retry,
    mut attempt: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let wait_min = match classify(&error) {
            Retry::Never => return Err(error),
            Retry::Later => Duration::ZERO,
            Retry::After(wait_min) => wait_min,
        };
        let Some(delay) = backoff.next_delay() else { return Err(error) };
        let delay = delay.max(wait_min);
        if delay >= deadline.remaining() {
            return Err(error);
        }
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const CONFIG: BackoffConfig = BackoffConfig {
        initial: Duration::from_millis(10),
        max: Duration::from_millis(100),
        multiplier: 2,
        attempts_max: 5,
    };

    fn configs() -> impl Strategy<Value = BackoffConfig> {
        (0_u64..5_000_000, 0_u64..60_000_000, 0_u32..20, 0_u32..50).prop_map(
            |(initial, max, multiplier, attempts_max)| BackoffConfig {
                initial: Duration::from_micros(initial),
                max: Duration::from_micros(max),
                multiplier,
                attempts_max,
            },
        )
    }

    proptest! {
        #[test]
        fn waits_are_bounded_in_length_and_number(config in configs(), seed: u64) {
            let mut backoff = Backoff::seeded(config, seed);
            let mut waits = 0;
            let mut total = Duration::ZERO;
            while let Some(delay) = backoff.next_delay() {
                prop_assert!(delay <= config.max);
                waits += 1;
                total += delay;
                prop_assert!(waits < config.attempts_max);
            }
            prop_assert_eq!(waits, config.attempts_max.saturating_sub(1));
            prop_assert!(total <= config.total_max());
            prop_assert_eq!(backoff.next_delay(), None);
        }

        #[test]
        fn each_wait_is_within_its_own_bound(seed: u64) {
            let mut backoff = Backoff::seeded(CONFIG, seed);
            for ceiling_millis in [10, 20, 40, 80] {
                prop_assert!(backoff.next_delay().unwrap() <= Duration::from_millis(ceiling_millis));
            }
        }
    }

    #[test]
    fn waits_are_spread_evenly() {
        let config = BackoffConfig { multiplier: 1, attempts_max: 2_001, ..CONFIG };
        let mut backoff = Backoff::seeded(config, 7);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next_delay()).collect();
        let low = waits.iter().filter(|wait| **wait < Duration::from_millis(5)).count();
        assert!((900..1_100).contains(&low), "{low} of 2000 waits in the lower half");
    }

    #[test]
    fn total_max_is_the_sum_of_the_bounds() {
        assert_eq!(CONFIG.total_max(), Duration::from_millis(10 + 20 + 40 + 80));
        let endless = BackoffConfig { attempts_max: u32::MAX, ..CONFIG };
        assert!(endless.total_max() > Duration::from_secs(1_000_000));
    }

    #[test]
    fn jitter_covers_its_range_and_stays_inside() {
        let span = Duration::from_secs(10);
        let drawn: Vec<_> = (0..1_000).map(|_| jittered(span, 75..=125)).collect();
        assert!(drawn.iter().all(|it| (span * 3 / 4..=span * 5 / 4).contains(it)));
        assert!(drawn.iter().any(|it| *it < span * 8 / 10) && drawn.iter().any(|it| *it > span * 12 / 10));
        assert_eq!(jittered(Duration::ZERO, 100..=110), Duration::ZERO);
        assert!(jittered(Duration::MAX, 90..=100) > Duration::from_secs(1_000_000));
    }

    #[test]
    fn reset_restores_all_attempts() {
        let mut backoff = Backoff::seeded(CONFIG, 1);
        while backoff.next_delay().is_some() {}
        backoff.reset();
        assert!(backoff.next_delay().unwrap() <= CONFIG.initial);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_returns_the_first_success() {
        let attempts = Cell::new(0);
        let result = retry(
            Deadline::after(Duration::from_secs(9)),
            Backoff::new(CONFIG),
            |_| Retry::Later,
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(if attempts.get() < 3 { Err("not yet") } else { Ok(attempts.get()) })
            },
        );
        assert_eq!(result.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_stops_after_attempts_max() {
        let attempts = Cell::new(0);
        let result: Result<(), _> = retry(
            Deadline::after(Duration::from_secs(9)),
            Backoff::new(CONFIG),
            |_| Retry::Later,
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(Err("down"))
            },
        )
        .await;
        assert_eq!((result, attempts.get()), (Err("down"), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_stops_at_a_permanent_failure() {
        let attempts = Cell::new(0);
        let result: Result<(), _> = retry(
            Deadline::after(Duration::from_secs(9)),
            Backoff::new(CONFIG),
            |_| Retry::Never,
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(Err("refused"))
            },
        )
        .await;
        assert_eq!((result, attempts.get()), (Err("refused"), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_returns_immediately_if_the_next_attempt_would_be_late() {
        let begin = tokio::time::Instant::now();
        let attempts = Cell::new(0);
        let wait = Duration::from_secs(2);
        let result: Result<(), _> = retry(
            Deadline::after(Duration::from_secs(1)),
            Backoff::new(CONFIG),
            |_| Retry::After(wait),
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(Err("down"))
            },
        )
        .await;
        assert_eq!((result, attempts.get()), (Err("down"), 1));
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_waits_at_least_as_long_as_the_callee_asked() {
        let begin = tokio::time::Instant::now();
        let attempts = Cell::new(0);
        let wait = Duration::from_secs(1);
        let config = BackoffConfig { attempts_max: 2, ..CONFIG };
        let result: Result<(), _> = retry(
            Deadline::after(Duration::from_secs(9)),
            Backoff::new(config),
            |_| Retry::After(wait),
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(Err("busy"))
            },
        )
        .await;
        assert_eq!((result, attempts.get()), (Err("busy"), 2));
        assert!(begin.elapsed() >= wait);
    }
}
