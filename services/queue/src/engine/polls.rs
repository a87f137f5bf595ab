//! How many poll this pod, so that they can be asked to come back later when it is many.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

use super::lock;

/// Counts polls.
#[derive(Debug)]
pub(crate) struct Polls {
    count: AtomicU64,
    /// When the count last began, and what it came to in the second before.
    last: Mutex<(Instant, u64)>,
}

impl Default for Polls {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new((Instant::now(), 0)) }
    }
}

impl Polls {
    /// One more.
    pub(crate) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many came in the last full second, about.
    pub(crate) fn per_second(&self) -> u64 {
        let mut last = lock(&self.last);
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
    async fn polls_are_counted_by_the_second_and_forgotten_after_it() {
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
