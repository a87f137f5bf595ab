//! Messages to one watcher: decides the next one from what the watcher already got and from the present state of its entry
//! and queue. A change that the watcher missed is never sent late; the newest state replaces it, so a slow reader costs no
//! more than a fast one.

use std::sync::Arc;

use onsale_types::Timestamp;

use super::{
    entry::{Entry, EntryState, ExpireReason},
    estimate::{Estimate, estimate},
    line::Line,
    queue::{Close, CloseReason, Queue, QueueState},
    snapshot::PublicSnapshot,
    turn::{GrantedTurn, Turn},
};

/// State of a watched entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedEntry {
    Waiting {
        /// Number of waiting entries before this one, plus one.
        position: u64,
    },
    /// The entry has an open turn.
    Turn(Turn),
    /// The entry ended without a purchase.
    Expired { reason: ExpireReason, time: Timestamp },
    /// The turn ended in a purchase.
    Completed,
}

impl WatchedEntry {
    /// Returns the state of an entry that does not wait; `None` for one that does.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        match (entry.state, entry.turn, entry.expire_reason) {
            (EntryState::Admitted, Some(turn), _) => Some(Self::Turn(turn)),
            (EntryState::Expired | EntryState::Left, _, Some(reason)) => {
                Some(Self::Expired { reason, time: entry.end_time.unwrap_or(entry.join_time) })
            }
            (EntryState::Completed, _, _) => Some(Self::Completed),
            // Besides WAITING these are impossible: a stored entry has a turn if it is ADMITTED, and a reason if it ended.
            (EntryState::Waiting | EntryState::Admitted | EntryState::Expired | EntryState::Left, _, _) => {
                None
            }
        }
    }
}

/// The present state of a queue, shared by all of its watchers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueView<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) line: &'a Line,
}

/// The content of one message to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The watcher's entry waits.
    Position {
        /// Number of waiting entries before it, plus one.
        position: u64,
        estimate: Option<Estimate>,
        state: QueueState,
    },
    /// The watcher's entry has an open turn.
    Turn(Turn),
    /// Other customers were admitted.
    Moved {
        /// Turns granted since the last message of this kind.
        admitted_count: u64,
        last_admitted_seq: u64,
        waiting_count: u64,
    },
    /// The public snapshot is due.
    Snapshot,
    /// Admission stopped.
    Paused {
        time: Timestamp,
        /// True if joins are refused as well.
        joins_paused: bool,
        /// Text of the organizer; may be empty.
        notice: String,
    },
    /// Admission resumed.
    Resumed { time: Timestamp },
    /// The queue closed.
    Closed {
        close: Close,
        /// Text of the organizer; may be empty.
        notice: String,
    },
    /// The watcher's entry ended without a purchase.
    Expired { reason: ExpireReason, time: Timestamp },
}

/// One `WatchQueue` message before `convert` encodes it.
#[derive(Clone, Debug)]
pub(crate) struct WatchMessage {
    /// Revision of the queue.
    pub(crate) revision: u64,
    /// The entry's number in line.
    pub(crate) seq: u64,
    pub(crate) update: Update,
    /// Set with [`Update::Turn`].
    pub(crate) turn: Option<GrantedTurn>,
    /// Set with [`Update::Snapshot`].
    pub(crate) snapshot: Option<Arc<PublicSnapshot>>,
}

/// Admission status of a queue. A change of it is sent to all watchers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionStatus {
    /// Also before the queue opens.
    Running,
    Paused {
        joins_paused: bool,
        since: Timestamp,
    },
    Closed {
        reason: CloseReason,
        since: Timestamp,
    },
}

impl AdmissionStatus {
    /// Returns the status of a queue.
    pub(crate) fn of(queue: &Queue) -> Self {
        match (queue.state, queue.pause_time, &queue.close) {
            (QueueState::Closed, _, Some(close)) => Self::Closed { reason: close.reason, since: close.time },
            (QueueState::Paused, Some(since), _) => Self::Paused { joins_paused: queue.joins_paused, since },
            (QueueState::Scheduled | QueueState::Open | QueueState::Paused | QueueState::Closed, _, _) => {
                Self::Running
            }
        }
    }
}

/// Delivery state of one open stream: the last state sent and the pending updates. There may be a million of them, so keep it
/// small.
#[derive(Clone, Debug)]
pub(crate) struct WatcherState {
    entry: WatchedEntry,
    /// Turns ever granted, as of the last [`Update::Moved`].
    admitted_count: u64,
    /// Status in the last message about it.
    status: AdmissionStatus,
    is_entry_pending: bool,
    is_move_due: bool,
    is_snapshot_due: bool,
    /// No further message will follow.
    is_over: bool,
}

impl WatcherState {
    /// Returns the state of a new stream: its first message is the state of the entry.
    pub(crate) fn new(entry: WatchedEntry, line: &Line) -> Self {
        Self {
            entry,
            admitted_count: line.last_fencing_number,
            status: AdmissionStatus::Running,
            is_entry_pending: true,
            is_move_due: false,
            is_snapshot_due: false,
            is_over: false,
        }
    }

    /// Returns the last known state of the entry.
    pub(crate) fn entry(&self) -> WatchedEntry {
        self.entry
    }

    /// Returns true if no further message will follow.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sets the state of the entry, which the next message reports. An entry that had a turn never waits again.
    pub(crate) fn set_entry(&mut self, entry: WatchedEntry) {
        let is_news = match (self.entry, entry) {
            (WatchedEntry::Turn(known), WatchedEntry::Turn(turn)) => {
                known.fencing_number != turn.fencing_number
            }
            (
                WatchedEntry::Turn(_) | WatchedEntry::Expired { .. } | WatchedEntry::Completed,
                WatchedEntry::Waiting { .. },
            ) => false,
            (WatchedEntry::Expired { .. } | WatchedEntry::Completed, _) => false,
            (WatchedEntry::Waiting { .. } | WatchedEntry::Turn(_), _) => true,
        };
        if is_news {
            self.entry = entry;
            self.is_entry_pending = true;
        }
    }

    /// Makes a message about other customers' admissions due if there were any since the last one.
    pub(crate) fn set_move_due(&mut self, admitted_count: u64) {
        self.is_move_due = admitted_count > self.admitted_count;
    }

    /// Makes the public snapshot due.
    pub(crate) fn set_snapshot_due(&mut self) {
        self.is_snapshot_due = true;
    }

    /// Returns true if there is a message to send, or if the stream is to end.
    pub(crate) fn has_pending(&self, queue: &Queue) -> bool {
        !self.is_over
            && (self.is_entry_pending
                || self.is_move_due
                || self.is_snapshot_due
                || self.status != AdmissionStatus::of(queue)
                || self.ends_with(queue))
    }

    /// Returns the next message, the state of the watcher's own entry first. `None`: none is pending, or the stream is over.
    pub(crate) fn next(&mut self, view: QueueView<'_>) -> Option<Update> {
        if self.is_over {
            return None;
        }
        if std::mem::take(&mut self.is_entry_pending) {
            match self.entry {
                WatchedEntry::Waiting { position } => return Some(position_update(position, view)),
                WatchedEntry::Turn(turn) => return Some(Update::Turn(turn)),
                WatchedEntry::Expired { reason, time } => {
                    self.is_over = true;
                    return Some(Update::Expired { reason, time });
                }
                WatchedEntry::Completed => {
                    self.is_over = true;
                    return None;
                }
            }
        }
        let update = self
            .next_status(view.queue)
            .or_else(|| self.next_move(view.line))
            .or_else(|| std::mem::take(&mut self.is_snapshot_due).then_some(Update::Snapshot));
        // The stream of an entry with a turn goes on: turns outlive a close.
        self.is_over = update.is_none() && self.ends_with(view.queue);
        update
    }

    /// Returns true if the entry waits in a queue that closed for good.
    fn ends_with(&self, queue: &Queue) -> bool {
        matches!(self.entry, WatchedEntry::Waiting { .. })
            && queue.close_reason().is_some_and(CloseReason::is_final)
    }

    fn next_move(&mut self, line: &Line) -> Option<Update> {
        let before = self.admitted_count;
        if !std::mem::take(&mut self.is_move_due) || line.last_fencing_number <= before {
            return None;
        }
        self.admitted_count = line.last_fencing_number;
        Some(Update::Moved {
            admitted_count: line.last_fencing_number.saturating_sub(before),
            last_admitted_seq: line.last_admitted_seq,
            waiting_count: line.waiting_count,
        })
    }

    fn next_status(&mut self, queue: &Queue) -> Option<Update> {
        let status = AdmissionStatus::of(queue);
        if status == std::mem::replace(&mut self.status, status) {
            return None;
        }
        let notice = queue.notice.clone();
        match (status, &queue.close) {
            (AdmissionStatus::Closed { .. }, Some(close)) => {
                Some(Update::Closed { close: close.clone(), notice })
            }
            (AdmissionStatus::Paused { joins_paused, since }, _) => {
                Some(Update::Paused { time: since, joins_paused, notice })
            }
            (AdmissionStatus::Running | AdmissionStatus::Closed { .. }, _) => {
                Some(Update::Resumed { time: queue.update_time })
            }
        }
    }
}

fn position_update(position: u64, view: QueueView<'_>) -> Update {
    let QueueView { queue, line } = view;
    let estimate = estimate(position, queue.state, &queue.policy, line.shown_service_time);
    Update::Position { position, estimate, state: queue.state }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::{line::tests::empty, queue::tests::open};

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const TURN: WatchedEntry =
        WatchedEntry::Turn(Turn { fencing_number: 7, grant_time: NOW, expire_time: NOW });

    fn line() -> Line {
        Line { revision: 1, last_seq: 500, waiting_count: 500, ..empty() }
    }

    fn at(position: u64) -> WatchedEntry {
        WatchedEntry::Waiting { position }
    }

    /// Returns all pending messages.
    fn all(state: &mut WatcherState, queue: &Queue, line: &Line) -> Vec<Update> {
        std::iter::from_fn(|| state.next(QueueView { queue, line })).collect()
    }

    #[test]
    fn first_message_is_the_newest_position() {
        let (queue, line) = (open(), line());
        let mut state = WatcherState::new(at(300), &line);
        state.set_entry(at(250));
        state.set_entry(at(200));
        assert!(state.has_pending(&queue));
        assert!(matches!(
            all(&mut state, &queue, &line).as_slice(),
            [Update::Position { position: 200, .. }]
        ));
        assert!(!state.has_pending(&queue));
    }

    #[test]
    fn turn_is_sent_once_and_the_entry_never_waits_again() {
        let (queue, line) = (open(), line());
        let mut state = WatcherState::new(at(1), &line);
        state.set_entry(TURN);
        assert!(matches!(all(&mut state, &queue, &line).as_slice(), [Update::Turn(_)]));
        state.set_entry(TURN);
        state.set_entry(at(1));
        assert!(all(&mut state, &queue, &line).is_empty() && state.entry() == TURN);
    }

    #[test]
    fn sell_out_and_its_end_are_sent_and_the_stream_goes_on() {
        let line = line();
        let mut queue = open();
        let mut state = WatcherState::new(at(300), &line);
        all(&mut state, &queue, &line);
        queue.sold_out(5, NOW);
        assert!(matches!(all(&mut state, &queue, &line).as_slice(), [Update::Closed { .. }]));
        assert!(all(&mut state, &queue, &line).is_empty() && !state.is_over());
        queue.available(6, NOW);
        assert!(matches!(all(&mut state, &queue, &line).as_slice(), [Update::Resumed { .. }]));
    }

    #[test]
    fn final_close_ends_the_stream_of_a_waiting_entry_only() {
        let line = line();
        let mut queue = open();
        queue.ended(9, NOW);
        let mut waits = WatcherState::new(at(300), &line);
        assert_eq!(all(&mut waits, &queue, &line).len(), 2);
        assert!(waits.is_over());
        let mut has_turn = WatcherState::new(TURN, &line);
        assert_eq!(all(&mut has_turn, &queue, &line).len(), 2);
        assert!(!has_turn.is_over());
        has_turn.set_entry(WatchedEntry::Completed);
        assert!(all(&mut has_turn, &queue, &line).is_empty() && has_turn.is_over());
    }

    #[test]
    fn each_admission_is_counted_in_one_message() {
        let (queue, mut line) = (open(), line());
        let mut state = WatcherState::new(at(300), &line);
        all(&mut state, &queue, &line);
        state.set_move_due(line.last_fencing_number);
        assert!(!state.has_pending(&queue));
        for granted in [3, 5] {
            line.admit(granted, 10);
            state.set_move_due(line.last_fencing_number);
            let sent = all(&mut state, &queue, &line);
            assert!(
                matches!(sent.as_slice(), [Update::Moved { admitted_count, .. }] if *admitted_count == granted)
            );
        }
    }

    proptest! {
        #[test]
        fn slow_watcher_gets_the_latest_position_in_at_most_two_messages(
            steps in proptest::collection::vec((1_u64..1_000, any::<bool>()), 1..50),
        ) {
            let (queue, line) = (open(), line());
            let mut state = WatcherState::new(at(1_000), &line);
            let mut last = None;
            for (position, reads) in &steps {
                state.set_entry(at(*position));
                state.set_snapshot_due();
                if *reads {
                    let sent = all(&mut state, &queue, &line);
                    prop_assert!(sent.len() <= 2);
                    last = sent.first().cloned();
                }
            }
            let sent = all(&mut state, &queue, &line);
            prop_assert!(sent.len() <= 2);
            let truth = steps.last().map(|(position, _)| *position);
            let Some(Update::Position { position, .. }) = sent.first().cloned().or(last) else {
                return Err(TestCaseError::fail("a position is sent"));
            };
            prop_assert_eq!(Some(position), truth);
        }
    }
}
