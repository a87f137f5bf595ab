//! Commands with which an organizer controls a queue.

use std::time::Duration;

use onsale_types::{EventId, SectorId, Timestamp};

use super::queue::CloseReason;

/// Longest time between the request and the opening time.
const OPEN_AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// `OpenQueue` of one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenQueue {
    pub(crate) event_id: EventId,
    /// `None`, or a time in the past: now.
    pub(crate) open_time: Option<Timestamp>,
}

/// `PauseQueue` of one event.
#[derive(Clone, Debug)]
pub(crate) struct PauseQueue {
    pub(crate) event_id: EventId,
    /// Refuses joins as well as admission.
    pub(crate) joins_paused: bool,
    /// Text shown to waiting customers; may be empty.
    pub(crate) notice: String,
}

/// `CloseQueue` of one event.
#[derive(Clone, Debug)]
pub(crate) struct CloseQueue {
    pub(crate) event_id: EventId,
    pub(crate) reason: CloseReason,
    /// Sectors to name as still available.
    pub(crate) remaining: Vec<SectorId>,
    /// Text shown to waiting customers; may be empty.
    pub(crate) notice: String,
}

/// An opening time that lies more than 366 days ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be at most one year ahead")]
pub(crate) struct OpenTimeTooFar;

/// Returns `open_time` if it is at most 366 days after `now`.
pub(crate) fn check_open_time(open_time: Timestamp, now: Timestamp) -> Result<Timestamp, OpenTimeTooFar> {
    if open_time.saturating_since(now) <= OPEN_AHEAD_MAX { Ok(open_time) } else { Err(OpenTimeTooFar) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_time_is_at_most_366_days_ahead() {
        let now = Timestamp::from_secs(1_000);
        let last = now.checked_add(OPEN_AHEAD_MAX).unwrap();
        assert_eq!(check_open_time(Timestamp::EPOCH, now), Ok(Timestamp::EPOCH));
        assert_eq!(check_open_time(last, now), Ok(last));
        let beyond = last.checked_add(Duration::from_secs(1)).unwrap();
        assert_eq!(check_open_time(beyond, now), Err(OpenTimeTooFar));
    }
}
