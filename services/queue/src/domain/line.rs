//! The counters of an event's line, and how each move changes them.

use std::time::Duration;

use onsale_types::Timestamp;

use super::{
    bucket::Bucket,
    entry::{EntryState, Turn},
};

/// The shown average follows the true one when they are further apart than one part in this many.
const SHOWN_PART: u32 = 8;

/// The counters of a line. Changed only by whoever holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Rises with every change.
    pub(crate) revision: u64,
    /// The last number given out.
    pub(crate) last_seq: u64,
    /// The highest number admitted. Everybody up to it has been admitted or has gone.
    pub(crate) last_admitted_seq: u64,
    /// The last fencing number given out.
    pub(crate) last_fencing_number: u64,
    /// Entries WAITING.
    pub(crate) waiting_count: u64,
    /// Entries ADMITTED.
    pub(crate) open_turn_count: u64,
    /// The admission rate's bucket.
    pub(crate) bucket: Bucket,
    /// Rolling average of the time from a turn's grant to its end.
    pub(crate) service_time: Option<Duration>,
    /// The average that estimates are made with: it follows `service_time` in steps, so that nobody sees a number tremble.
    pub(crate) shown_service_time: Option<Duration>,
    /// Entries that ended in a purchase.
    pub(crate) completed_count: u64,
    /// Entries that expired, waiting or in their turn.
    pub(crate) expired_count: u64,
    /// Entries that left.
    pub(crate) left_count: u64,
    /// When the window of a WINDOWED queue last slid.
    pub(crate) slide_time: Option<Timestamp>,
}

impl Line {
    /// The queue changed.
    pub(crate) fn touch(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// `count` joined.
    pub(crate) fn joined(&mut self, count: u64) {
        self.touch();
        self.last_seq = self.last_seq.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_add(count);
    }

    /// `count` were admitted, the last of them with this seq.
    pub(crate) fn admitted(&mut self, count: u64, last_seq: u64) {
        self.touch();
        self.last_admitted_seq = self.last_admitted_seq.max(last_seq);
        self.last_fencing_number = self.last_fencing_number.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_sub(count);
        self.open_turn_count = self.open_turn_count.saturating_add(count);
        self.bucket = self.bucket.spent(count);
    }

    /// Somebody went who waited.
    pub(crate) fn waiting_ended(&mut self) {
        self.waiting_count = self.waiting_count.saturating_sub(1);
    }

    /// An entry went over from one state to its last one. A late payment completes what had expired.
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

    /// An open turn ended.
    pub(crate) fn turn_ended(&mut self, turn: &Turn, now: Timestamp) {
        self.open_turn_count = self.open_turn_count.saturating_sub(1);
        let span = now.saturating_since(turn.grant_time);
        // Nine parts of what was, one part of what is new.
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

    /// A line in which nothing has happened.
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
        fn the_shown_average_stays_near_the_true_one_and_moves_only_when_it_must(
            spans in proptest::collection::vec(1_u64..2_000, 1..200),
        ) {
            let mut line = empty();
            for span in spans {
                let before = line.shown_service_time;
                let now = Timestamp::EPOCH.checked_add(Duration::from_secs(span)).unwrap();
                let turn = Turn { fencing_number: 1, grant_time: Timestamp::EPOCH, expire_time: now };
                line.turn_ended(&turn, now);
                let (shown, average) = (line.shown_service_time.unwrap(), line.service_time.unwrap());
                prop_assert!(shown.abs_diff(average) <= shown / SHOWN_PART);
                prop_assert!(before.is_none_or(|before| before == shown || before.abs_diff(average) > before / SHOWN_PART));
            }
        }
    }

    #[test]
    fn a_late_payment_turns_an_expired_entry_into_a_completed_one() {
        let mut line = empty();
        line.count_end(EntryState::Admitted, EntryState::Expired);
        line.count_end(EntryState::Waiting, EntryState::Left);
        assert_eq!((line.completed_count, line.expired_count, line.left_count), (0, 1, 1));
        line.count_end(EntryState::Expired, EntryState::Completed);
        assert_eq!((line.completed_count, line.expired_count, line.left_count), (1, 0, 1));
    }
}
