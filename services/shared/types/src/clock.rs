//! Clocks. Code that needs the time of day takes a [`Clock`], so that a test can set it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::Timestamp;

/// Source of the time of day. It may jump, also backwards: use the runtime's monotonic clock for spans and timeouts.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time of day.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// Clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the Clock that everything else takes")]
        let now = SystemTime::now();
        // Out of range only if the machine's clock is wrong by hundreds of thousands of years.
        Timestamp::from_system_time(now).unwrap_or(Timestamp::EPOCH)
    }
}

/// Test clock that keeps its time until it is set or advanced. Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicI64>,
}

impl ManualClock {
    /// Creates a clock set to `time`.
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicI64::new(time.as_micros())) }
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, time: Timestamp) {
        self.micros.store(time.as_micros(), Ordering::SeqCst);
    }

    /// Moves the time forward by `span`, at most to the largest [`Timestamp`].
    pub fn advance(&self, span: Duration) {
        let span_micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        // Cannot fail: the closure never returns `None`.
        let _ = self.micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |micros| {
            Some(micros.saturating_add(span_micros))
        });
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_its_time() {
        let clock = ManualClock::new(Timestamp::from_secs(100));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        assert_eq!(shared.now(), Timestamp::from_secs(100));
        clock.advance(Duration::from_secs(5));
        assert_eq!(shared.now(), Timestamp::from_secs(105));
        clock.set(Timestamp::from_secs(1));
        assert_eq!(shared.now(), Timestamp::from_secs(1));
        clock.advance(Duration::MAX);
        assert_eq!(shared.now(), Timestamp::from_micros(i64::MAX));
    }

    #[test]
    fn system_clock_is_in_this_century() {
        let now = SystemClock.now();
        assert!(now > Timestamp::from_secs(1_700_000_000), "{now}");
        assert!(now < Timestamp::from_secs(4_102_444_800), "{now}");
    }
}
