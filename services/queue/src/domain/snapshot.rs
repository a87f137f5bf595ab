//! The public state of a queue, which anybody may read.

use std::time::Duration;

use super::queue::QueueAndLine;

/// The public state of a queue.
#[derive(Clone, Debug)]
pub(crate) struct PublicSnapshot {
    pub(crate) current: QueueAndLine,
    /// Customers who watch or poll the queue, summed over all pods.
    pub(crate) viewer_count: u64,
    /// Turns granted within the last minute.
    pub(crate) admitted_last_minute: u64,
    /// Time to wait before the next poll.
    pub(crate) next_poll_after: Duration,
}
