//! Remembers that a batch of reservations met a conflict. For the next second batches are written with the statements that
//! tolerate conflicts: conflicts come together, and each batch that meets one in the optimistic mode is written twice.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after the last conflict during which batches are written tolerantly.
const TOLERANT_FOR: Duration = Duration::from_secs(1);

/// The time until which batches are written tolerantly.
#[derive(Debug, Default)]
pub(crate) struct TolerantWrites {
    until: Mutex<Option<Instant>>,
}

impl TolerantWrites {
    /// Starts the second, or starts it again.
    pub(crate) fn conflict_met(&self) {
        *self.until.lock() = Instant::now().checked_add(TOLERANT_FOR);
    }

    /// Returns true within a second of the last conflict.
    pub(crate) fn are_needed(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_second_begins_again_with_each_conflict() {
        let writes = TolerantWrites::default();
        assert!(!writes.are_needed());
        for _ in 0..2 {
            writes.conflict_met();
            tokio::time::advance(Duration::from_millis(900)).await;
            assert!(writes.are_needed());
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!writes.are_needed());
    }
}
