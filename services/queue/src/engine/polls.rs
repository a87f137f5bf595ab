//! Counts the polls of this pod, so that customers poll less often under load.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Polls of this pod.
#[derive(Debug)]
pub(crate) struct Polls {
    count: AtomicU64,
    /// Begin of the present count, and the polls per second of the span before.
    last: Mutex<(Instant, u64)>,
}

impl Default for Polls {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new((Instant::now(), 0)) }
    }
}

impl Polls {
    /// Counts one poll.
    pub(crate) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the polls per second of the last full span of at least 1 s.
    pub(crate) fn per_second(&self) -> u64 {
        let mut last = self.last.lock();
        let millis = u64::try_from(last.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        if millis >= 1_000 {
            let counted = self.count.swap(0, Ordering::Relaxed);
            *last = (Instant::now(), counted.saturating_mul(1_000) / millis);
        }
        last.1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn polls_are_counted_per_second() {
        let polls = Polls::default();
        for _ in 0..3_000 {
            polls.count();
        }
        assert_eq!(polls.per_second(), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(polls.per_second(), 1_500);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(polls.per_second(), 0);
    }
}
