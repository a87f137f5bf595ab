//! The counters of an event's line, and how each change moves them.

use std::time::Duration;

use onsale_types::Timestamp;

use super::{bucket::Bucket, entry::EntryState, turn::Turn};

/// The shown average service time is updated once it differs from the true one by more than 1/8 of itself.
const SHOWN_PART: u32 = 8;

/// The counters of a line. Only the holder of the line's lock changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Rises by 1 with every committed change.
    pub(crate) revision: u64,
    /// Last number given out; 0 before the first.
    pub(crate) last_seq: u64,
    /// Highest number admitted. Every entry up to it was admitted or has ended.
    pub(crate) last_admitted_seq: u64,
    /// Last fencing number given out, which is also the number of turns ever granted.
    pub(crate) last_fencing_number: u64,
    /// Number of WAITING entries.
    pub(crate) waiting_count: u64,
    /// Number of ADMITTED entries.
    pub(crate) open_turn_count: u64,
    /// Admissions saved up at the admission rate.
    pub(crate) bucket: Bucket,
    /// Rolling average of the time from a turn's grant to its end. `None` until a turn has ended.
    pub(crate) service_time: Option<Duration>,
    /// Average that estimates use. It follows `service_time` in steps, so that shown estimates do not flicker.
    pub(crate) shown_service_time: Option<Duration>,
    /// Number of entries that ended in a purchase.
    pub(crate) completed_count: u64,
    /// Number of EXPIRED entries, whether they waited or had a turn.
    pub(crate) expired_count: u64,
    /// Number of LEFT entries.
    pub(crate) left_count: u64,
    /// Time of the last slide of a WINDOWED queue; `None` before the first.
    pub(crate) slide_time: Option<Timestamp>,
}

impl Line {
    /// Counts a change that moves no other counter.
    pub(crate) fn bump_revision(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// Admits `count` waiting entries, the last of which has number `last_seq`.
    pub(crate) fn admit(&mut self, count: u64, last_seq: u64) {
        self.bump_revision();
        self.last_admitted_seq = self.last_admitted_seq.max(last_seq);
        self.last_fencing_number = self.last_fencing_number.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_sub(count);
        self.open_turn_count = self.open_turn_count.saturating_add(count);
        self.bucket = self.bucket.spent(count);
    }

    /// Removes one waiting entry.
    pub(crate) fn remove_waiting(&mut self) {
        self.waiting_count = self.waiting_count.saturating_sub(1);
    }

    /// Counts an entry that moved from state `from` to its final state `to`. A late payment completes an EXPIRED entry.
    pub(crate) fn count_end(&mut self, from: EntryState, to: EntryState) {
        if from == EntryState::Expired {
            self.expired_count = self.expired_count.saturating_sub(1);
        }
        let count = match to {
            EntryState::Completed => &mut self.completed_count,
            EntryState::Expired => &mut self.expired_count,
            EntryState::Left => &mut self.left_count,
            EntryState::Waiting | EntryState::Admitted => return,
        };
        *count = count.saturating_add(1);
    }

    /// Ends an open turn and adds its length to the average service time.
    pub(crate) fn end_turn(&mut self, turn: &Turn, now: Timestamp) {
        self.open_turn_count = self.open_turn_count.saturating_sub(1);
        let span = now.saturating_since(turn.grant_time);
        // Nine parts of the old average, one part of the new value.
        let average = match self.service_time {
            Some(average) => average.saturating_mul(9).saturating_add(span) / 10,
            None => span,
        };
        self.service_time = Some(average);
        let is_near = |shown: Duration| shown.abs_diff(average) <= shown / SHOWN_PART;
        if !self.shown_service_time.is_some_and(is_near) {
            self.shown_service_time = Some(average);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a line without entries or changes.
    pub(in crate::domain) fn empty() -> Line {
        Line {
            revision: 0,
            last_seq: 0,
            last_admitted_seq: 0,
            last_fencing_number: 0,
            waiting_count: 0,
            open_turn_count: 0,
            bucket: Bucket { level: 0, time: Timestamp::EPOCH },
            service_time: None,
            shown_service_time: None,
            completed_count: 0,
            expired_count: 0,
            left_count: 0,
            slide_time: None,
        }
    }

    proptest! {
        #[test]
        fn shown_average_changes_only_when_it_is_off_by_an_eighth(
            spans in proptest::collection::vec(1_u64..2_000, 1..200),
        ) {
            let mut line = empty();
            for span in spans {
                let before = line.shown_service_time;
                let now = Timestamp::EPOCH.checked_add(Duration::from_secs(span)).unwrap();
                let turn = Turn { fencing_number: 1, grant_time: Timestamp::EPOCH, expire_time: now };
                line.end_turn(&turn, now);
                let (shown, average) = (line.shown_service_time.unwrap(), line.service_time.unwrap());
                prop_assert!(shown.abs_diff(average) <= shown / SHOWN_PART);
                prop_assert!(before.is_none_or(|before| before == shown || before.abs_diff(average) > before / SHOWN_PART));
            }
        }
    }

    #[test]
    fn late_payment_moves_an_entry_from_expired_to_completed() {
        let mut line = empty();
        line.count_end(EntryState::Admitted, EntryState::Expired);
        line.count_end(EntryState::Waiting, EntryState::Left);
        assert_eq!((line.completed_count, line.expired_count, line.left_count), (0, 1, 1));
        line.count_end(EntryState::Expired, EntryState::Completed);
        assert_eq!((line.completed_count, line.expired_count, line.left_count), (1, 0, 1));
    }
}
