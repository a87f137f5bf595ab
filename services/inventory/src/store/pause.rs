//! A time during which something is not tried, because it failed a moment ago.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Begins with a failure, and ends by itself.
#[derive(Debug, Default)]
pub struct Pause {
    until: Mutex<Option<Instant>>,
}

impl Pause {
    /// From now on, for `length`.
    pub fn begin(&self, length: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(length);
    }

    /// Whether it lasts.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_by_itself_and_the_last_failure_counts() {
        let pause = Pause::default();
        assert!(!pause.is_on());
        pause.begin(Duration::from_secs(1));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(pause.is_on());
        pause.begin(Duration::from_secs(1));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(pause.is_on());
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!pause.is_on());
    }
}
