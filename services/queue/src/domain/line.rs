//! The counters of an event's line, and how each move changes them.

use std::time::Duration;

use onsale_types::Timestamp;

use super::{bucket::Bucket, entry::Turn};

/// The counters of a line. Changed only by whoever holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Rises with every change.
    pub revision: u64,
    /// The last number given out.
    pub last_seq: u64,
    /// The highest number admitted. Everybody up to it has been admitted or has gone.
    pub last_admitted_seq: u64,
    /// The last fencing number given out.
    pub last_fencing_number: u64,
    /// Entries WAITING.
    pub waiting_count: u64,
    /// Entries ADMITTED.
    pub open_turn_count: u64,
    /// The admission rate's bucket.
    pub bucket: Bucket,
    /// Rolling average of the time from a turn's grant to its end.
    pub service_time: Option<Duration>,
}

impl Line {
    /// The queue changed.
    pub fn touch(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// `count` joined.
    pub fn joined(&mut self, count: u64) {
        self.touch();
        self.last_seq = self.last_seq.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_add(count);
    }

    /// `count` were admitted, the last of them with this seq.
    pub fn admitted(&mut self, count: u64, last_seq: u64) {
        self.touch();
        self.last_admitted_seq = self.last_admitted_seq.max(last_seq);
        self.last_fencing_number = self.last_fencing_number.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_sub(count);
        self.open_turn_count = self.open_turn_count.saturating_add(count);
        self.bucket = self.bucket.spent(count);
    }

    /// Somebody went who waited.
    pub fn waiting_ended(&mut self) {
        self.waiting_count = self.waiting_count.saturating_sub(1);
    }

    /// An open turn ended.
    pub fn turn_ended(&mut self, turn: &Turn, now: Timestamp) {
        self.open_turn_count = self.open_turn_count.saturating_sub(1);
        let span = now.saturating_since(turn.grant_time);
        // Nine parts of what was, one part of what is new.
        self.service_time = Some(match self.service_time {
            Some(average) => average.saturating_mul(9).saturating_add(span) / 10,
            None => span,
        });
    }
}
