//! Check-ins: scans at a gate and their outcomes.

use std::time::Duration;

use onsale_types::{EventId, OrganizerId, Timestamp};

use super::{code::Code, ticket::Ticket};

/// Largest accepted lead of a scanner's clock over ours.
const CLOCK_LEAD_MAX: Duration = Duration::from_secs(60);

/// Caller of `CheckInTicket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanner {
    /// May check in at every event.
    Staff,
    /// May check in at their own events only.
    Organizer(OrganizerId),
}

/// One scanned code.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// Event whose visitors the gate admits.
    pub(crate) event_id: EventId,
    pub(crate) code: Code,
    /// Name of the gate, as the scanner sent it.
    pub(crate) gate: String,
    /// Time of a scan that was made offline. `None`: now.
    pub(crate) scan_time: Option<Timestamp>,
}

/// The one use of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckIn {
    pub(crate) time: Timestamp,
    pub(crate) gate: String,
}

/// Names are metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CheckInOutcome {
    Admitted,
    AlreadyCheckedIn,
    /// The ticket is void, because its payment was refunded.
    Void,
    /// The code is an earlier one of a transferred ticket.
    CodeReplaced,
    /// The ticket is for another event.
    WrongEvent,
    /// The ticket has no buyer.
    NotIssued,
}

/// Answer to a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckInResult {
    pub(crate) outcome: CheckInOutcome,
    /// The ticket after the scan. `None` if it is for another event or was never issued.
    pub(crate) ticket: Option<Ticket>,
}

impl CheckInResult {
    /// Returns this check-in if the ticket was admitted, the earlier one if it had been used, and `None` for other outcomes.
    pub(crate) fn first_check_in(&self) -> Option<&CheckIn> {
        match self.outcome {
            CheckInOutcome::Admitted | CheckInOutcome::AlreadyCheckedIn => {
                self.ticket.as_ref().and_then(|ticket| ticket.check_in.as_ref())
            }
            CheckInOutcome::Void
            | CheckInOutcome::CodeReplaced
            | CheckInOutcome::WrongEvent
            | CheckInOutcome::NotIssued => None,
        }
    }
}

/// The scan's time is more than 60 s ahead of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must not be in the future")]
pub(crate) struct ScanTimeInFuture;

/// Checks the time that a scanner sent. A time at most 60 s ahead of `now` is accepted as `now`.
pub(crate) fn check_scan_time(scan_time: Timestamp, now: Timestamp) -> Result<Timestamp, ScanTimeInFuture> {
    if scan_time.saturating_since(now) > CLOCK_LEAD_MAX {
        return Err(ScanTimeInFuture);
    }
    Ok(scan_time.min(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_time_may_be_at_most_60_s_ahead_and_counts_as_now() {
        let now = Timestamp::from_secs(1_000);
        assert_eq!(check_scan_time(Timestamp::from_secs(900), now), Ok(Timestamp::from_secs(900)));
        assert_eq!(check_scan_time(Timestamp::from_secs(1_060), now), Ok(now));
        assert_eq!(check_scan_time(Timestamp::from_secs(1_061), now), Err(ScanTimeInFuture));
    }
}
