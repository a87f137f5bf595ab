//! A time during which something is not tried, because it failed a moment ago.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Begins with a failure. Once its time is over one tries, on trial, and it lasts for all others until that is known.
#[derive(Debug, Default)]
pub struct Pause {
    until: Mutex<Option<Instant>>,
}

/// Who may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing failed: everybody.
    Everybody,
    /// The first one after a failure.
    Trial,
}

impl Pause {
    /// From now on, for `length`.
    pub fn begin(&self, length: Duration) {
        *self.lock() = Instant::now().checked_add(length);
    }

    /// A trial went well.
    pub fn end(&self) {
        *self.lock() = None;
    }

    /// Whether it lasts.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Whether to try now; none while it lasts. A trial that is not heard of for `trial_max` is forgotten.
    #[must_use]
    pub fn turn(&self, trial_max: Duration) -> Option<Turn> {
        let mut until = self.lock();
        let now = Instant::now();
        match *until {
            None => Some(Turn::Everybody),
            Some(end) if now < end => None,
            Some(_over) => {
                *until = now.checked_add(trial_max);
                Some(Turn::Trial)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_last_failure_counts() {
        let pause = Pause::default();
        assert!(!pause.is_on());
        pause.begin(SECOND);
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(pause.is_on());
        pause.begin(SECOND);
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(pause.is_on());
        assert_eq!(pause.turn(SECOND), None);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!pause.is_on());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_one_tries_and_the_others_wait_for_no_one() {
        let pause = Pause::default();
        assert_eq!(pause.turn(SECOND), Some(Turn::Everybody));
        assert_eq!(pause.turn(SECOND), Some(Turn::Everybody));
        pause.begin(SECOND);
        tokio::time::advance(SECOND).await;
        assert_eq!(pause.turn(SECOND), Some(Turn::Trial));
        assert_eq!(pause.turn(SECOND), None);
        assert!(pause.is_on());
        // Nobody heard of the first trial.
        tokio::time::advance(SECOND).await;
        assert_eq!(pause.turn(SECOND), Some(Turn::Trial));
        pause.end();
        assert_eq!(pause.turn(SECOND), Some(Turn::Everybody));
    }
}
