//! An organizer's live numbers of a queue.

use std::time::Duration;

use super::queue::QueueAndLine;

/// Span over which [`RecentActivity::joined`] counts. The statement in `store/stats.rs` spells it out.
const JOINED_SPAN: Duration = Duration::from_secs(10);

/// The live numbers of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueStats {
    pub(crate) current: QueueAndLine,
    pub(crate) recent: RecentActivity,
    pub(crate) viewers: ViewerReport,
}

/// Counts of the last seconds and minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentActivity {
    /// Entries that joined within the last 10 s.
    pub(crate) joined: u64,
    /// Turns granted within the last minute.
    pub(crate) admitted: u64,
    /// Median wait of the customers admitted within the last 10 min. `None` if there are none.
    pub(crate) wait_p50: Option<Duration>,
    /// 95th percentile of the same waits.
    pub(crate) wait_p95: Option<Duration>,
}

/// Viewers of an event on one pod, or on several pods together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewerReport {
    pub(crate) viewers: u64,
    /// Time by which the pod's replica of the line lags; of several pods, the longest.
    pub(crate) lag: Duration,
}

impl RecentActivity {
    /// Returns the joins per second, rounded to the nearest whole number.
    pub(crate) fn joined_per_second(&self) -> u64 {
        let seconds = JOINED_SPAN.as_secs().max(1);
        self.joined.saturating_add(seconds / 2) / seconds
    }
}

impl ViewerReport {
    /// Combines two reports: the sum of the viewers and the longer lag.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { viewers: self.viewers.saturating_add(other.viewers), lag: self.lag.max(other.lag) }
    }
}
