//! A committed change of a queue, as it is published.

use onsale_types::{EntryId, EventId};

use super::{entry::Entry, line_change::LineChange, queue::QueueAndLine};

/// One committed change of a queue: its new revision and the entries that joined, were admitted or ended.
#[derive(Clone, Debug)]
pub(crate) struct QueueChange {
    pub(crate) event_id: EventId,
    pub(crate) line_change: LineChange,
    /// New entries with their numbers in line. Empty in a WINDOWED queue, which stores no entries.
    pub(crate) joined: Vec<(EntryId, u64)>,
    pub(crate) admitted: Vec<Entry>,
    pub(crate) ended: Vec<Entry>,
}

/// Change of the set of waiting entries in Redis.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingChange {
    /// New entries with their numbers in line.
    pub(crate) joined: Vec<(EntryId, u64)>,
    /// Entries that ended without having been admitted.
    pub(crate) gone: Vec<EntryId>,
    /// Highest number admitted so far; every entry up to it is removed.
    pub(crate) last_admitted_seq: u64,
}

impl QueueChange {
    /// Returns a change of the queue's state or policy that moves no entry.
    pub(crate) fn controlled(current: &QueueAndLine) -> Self {
        let mut change = Self::of(current);
        change.line_change.is_controlled = true;
        change
    }

    /// Returns the change by which these entries joined.
    pub(crate) fn joined(current: &QueueAndLine, joined: Vec<(EntryId, u64)>) -> Self {
        Self { joined, ..Self::of(current) }
    }

    /// Returns the change by which these entries got their turns.
    pub(crate) fn admitted(current: &QueueAndLine, admitted: Vec<Entry>) -> Self {
        Self { admitted, ..Self::of(current) }
    }

    /// Returns the change by which these entries ended.
    pub(crate) fn ended(current: &QueueAndLine, ended: Vec<Entry>) -> Self {
        let seqs = |had_turn: bool| {
            let of_kind = ended.iter().filter(move |entry| entry.turn.is_some() == had_turn);
            of_kind.map(|entry| entry.seq).collect()
        };
        let mut change = Self::of(current);
        (change.line_change.gone, change.line_change.ended) = (seqs(false), seqs(true));
        Self { ended, ..change }
    }

    /// Returns true if an open turn ended, so that another customer may be admitted.
    pub(crate) fn frees_slot(&self) -> bool {
        !self.line_change.ended.is_empty()
    }

    /// Takes the part that concerns the set of waiting entries.
    pub(crate) fn take_waiting_change(&mut self) -> WaitingChange {
        let waited = |entry: &&Entry| entry.turn.is_none();
        WaitingChange {
            joined: std::mem::take(&mut self.joined),
            gone: self.ended.iter().filter(waited).map(|entry| entry.entry_id).collect(),
            last_admitted_seq: self.line_change.last_admitted_seq,
        }
    }

    fn of(current: &QueueAndLine) -> Self {
        let line = &current.line;
        let line_change = LineChange {
            revision: line.revision,
            last_seq: line.last_seq,
            last_admitted_seq: line.last_admitted_seq,
            waiting_count: line.waiting_count,
            admitted_count: line.last_fencing_number,
            ..LineChange::default()
        };
        let event_id = current.queue.event_id;
        Self { event_id, line_change, joined: Vec::new(), admitted: Vec::new(), ended: Vec::new() }
    }
}
