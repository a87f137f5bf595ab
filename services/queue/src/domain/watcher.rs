//! What a watcher is told, given what it has heard and what is true now. A step that was missed is not told late: the
//! newest truth takes its place, so a slow reader costs no more than a quick one.
//!
//! There is one [`Heard`] per open stream, and there may be a million of them: every byte counts.

use onsale_types::Timestamp;

use super::{
    entry::{Entry, EntryState, ExpireReason, Turn},
    estimate::{Estimate, estimate},
    line::Line,
    queue::{Close, CloseReason, Queue, QueueState},
};

/// Where a watched entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedEntry {
    /// In line.
    Waiting {
        /// How many stand before it, plus one.
        position: u64,
    },
    /// Has a turn.
    Turn(Turn),
    /// Ended without a purchase.
    Expired {
        /// Why.
        reason: ExpireReason,
        /// When.
        time: Timestamp,
    },
    /// Bought.
    Completed,
}

impl WatchedEntry {
    /// Where an entry is that does not wait; none when it does.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        match (entry.state, entry.turn, entry.expire_reason) {
            (EntryState::Admitted, Some(turn), _) => Some(Self::Turn(turn)),
            (EntryState::Expired | EntryState::Left, _, Some(reason)) => {
                Some(Self::Expired { reason, time: entry.end_time.unwrap_or(entry.join_time) })
            }
            (EntryState::Completed, _, _) => Some(Self::Completed),
            // Waiting; or not in line, not ended, and without a turn, which no stored entry can be.
            (EntryState::Waiting | EntryState::Admitted | EntryState::Expired | EntryState::Left, _, _) => {
                None
            }
        }
    }
}

/// What is true of a queue, for all who watch it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueView<'a> {
    /// How it is set.
    pub(crate) queue: &'a Queue,
    /// Its counters.
    pub(crate) line: &'a Line,
}

/// One message to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The caller waits.
    Position {
        /// How many stand before, plus one.
        position: u64,
        /// How long it will probably take.
        estimate: Option<Estimate>,
        /// State of the queue.
        state: QueueState,
    },
    /// The caller's turn has come, or is still running.
    Turn(Turn),
    /// Others were admitted.
    Moved {
        /// How many since the caller last heard of it.
        admitted_count: u64,
        /// Highest seq admitted.
        last_admitted_seq: u64,
        /// Entries that wait.
        waiting_count: u64,
    },
    /// It is time for the public facts.
    Snapshot,
    /// Admission stopped.
    Paused {
        /// When.
        time: Timestamp,
        /// Whether joining is refused as well.
        joins_paused: bool,
        /// Words of the organizer.
        notice: String,
    },
    /// Admission goes on.
    Resumed {
        /// When.
        time: Timestamp,
    },
    /// The queue closed.
    Closed {
        /// How.
        close: Close,
        /// Words of the organizer.
        notice: String,
    },
    /// The entry ended without a purchase.
    Expired {
        /// Why.
        reason: ExpireReason,
        /// When.
        time: Timestamp,
    },
}

/// Whether a queue goes on: what all its watchers are told of at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionStatus {
    /// It does.
    Going,
    /// It is paused.
    Paused {
        /// For joins, too.
        joins_paused: bool,
        /// Since when.
        since: Timestamp,
    },
    /// It is closed.
    Closed {
        /// Why.
        reason: CloseReason,
        /// Since when.
        since: Timestamp,
    },
}

impl AdmissionStatus {
    /// Of this queue.
    pub(crate) fn of(queue: &Queue) -> Self {
        match (queue.state, queue.pause_time, &queue.close) {
            (QueueState::Closed, _, Some(close)) => Self::Closed { reason: close.reason, since: close.time },
            (QueueState::Paused, Some(since), _) => Self::Paused { joins_paused: queue.joins_paused, since },
            (QueueState::Scheduled | QueueState::Open | QueueState::Paused | QueueState::Closed, _, _) => {
                Self::Going
            }
        }
    }
}

/// What one watcher has heard, and what it is still to be told.
#[derive(Clone, Debug)]
pub(crate) struct WatcherState {
    place: WatchedEntry,
    /// Turns granted when it last heard of a move.
    admitted_count: u64,
    mood: AdmissionStatus,
    is_place_new: bool,
    is_move_due: bool,
    is_snapshot_due: bool,
    /// There is nothing more to come.
    is_over: bool,
}

impl WatcherState {
    /// A watcher who has heard nothing; its place is the first thing it is told.
    pub(crate) fn nothing(place: WatchedEntry, line: &Line) -> Self {
        Self {
            place,
            admitted_count: line.last_fencing_number,
            mood: AdmissionStatus::Going,
            is_place_new: true,
            is_move_due: false,
            is_snapshot_due: false,
            is_over: false,
        }
    }

    /// Where it is, as far as is known.
    pub(crate) fn place(&self) -> WatchedEntry {
        self.place
    }

    /// Whether there is nothing more to come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// It is here now, and is to be told so. One who had a turn never waits again.
    pub(crate) fn stand(&mut self, place: WatchedEntry) {
        let is_news = match (self.place, place) {
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
            self.place = place;
            self.is_place_new = true;
        }
    }

    /// It is time to say how many others were admitted, if any were.
    pub(crate) fn move_due(&mut self, admitted_count: u64) {
        self.is_move_due = admitted_count > self.admitted_count;
    }

    /// It is time for the public facts.
    pub(crate) fn snapshot_due(&mut self) {
        self.is_snapshot_due = true;
    }

    /// Whether there is something to tell.
    pub(crate) fn has_news(&self, queue: &Queue) -> bool {
        !self.is_over
            && (self.is_place_new
                || self.is_move_due
                || self.is_snapshot_due
                || self.mood != AdmissionStatus::of(queue)
                || self.is_last_word(queue))
    }

    /// The next thing to tell, the caller's own place first. None: nothing now, or nothing ever again.
    pub(crate) fn next(&mut self, scene: QueueView<'_>) -> Option<Update> {
        if self.is_over {
            return None;
        }
        if std::mem::take(&mut self.is_place_new) {
            match self.place {
                WatchedEntry::Waiting { position } => return Some(position_update(position, scene)),
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
            .mood_changed(scene.queue)
            .or_else(|| self.moved(scene.line))
            .or_else(|| std::mem::take(&mut self.is_snapshot_due).then_some(Update::Snapshot));
        // Who has a turn goes on to hear of it: turns run on when a queue closes.
        self.is_over = update.is_none() && self.is_last_word(scene.queue);
        update
    }

    fn is_last_word(&self, queue: &Queue) -> bool {
        matches!(self.place, WatchedEntry::Waiting { .. })
            && queue.close_reason().is_some_and(CloseReason::is_final)
    }

    fn moved(&mut self, line: &Line) -> Option<Update> {
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

    fn mood_changed(&mut self, queue: &Queue) -> Option<Update> {
        let mood = AdmissionStatus::of(queue);
        if mood == std::mem::replace(&mut self.mood, mood) {
            return None;
        }
        let notice = queue.notice.clone();
        match (mood, &queue.close) {
            (AdmissionStatus::Closed { .. }, Some(close)) => {
                Some(Update::Closed { close: close.clone(), notice })
            }
            (AdmissionStatus::Paused { joins_paused, since }, _) => {
                Some(Update::Paused { time: since, joins_paused, notice })
            }
            (AdmissionStatus::Going | AdmissionStatus::Closed { .. }, _) => {
                Some(Update::Resumed { time: queue.update_time })
            }
        }
    }
}

fn position_update(position: u64, scene: QueueView<'_>) -> Update {
    let QueueView { queue, line } = scene;
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

    /// Everything there is to tell.
    fn all(heard: &mut WatcherState, queue: &Queue, line: &Line) -> Vec<Update> {
        std::iter::from_fn(|| heard.next(QueueView { queue, line })).collect()
    }

    #[test]
    fn the_first_word_is_the_place_and_of_several_the_newest_is_told() {
        let (queue, line) = (open(), line());
        let mut heard = WatcherState::nothing(at(300), &line);
        heard.stand(at(250));
        heard.stand(at(200));
        assert!(heard.has_news(&queue));
        assert!(matches!(
            all(&mut heard, &queue, &line).as_slice(),
            [Update::Position { position: 200, .. }]
        ));
        assert!(!heard.has_news(&queue));
    }

    #[test]
    fn a_turn_is_told_once_however_often_it_is_seen_and_nobody_goes_back_in_line() {
        let (queue, line) = (open(), line());
        let mut heard = WatcherState::nothing(at(1), &line);
        heard.stand(TURN);
        assert!(matches!(all(&mut heard, &queue, &line).as_slice(), [Update::Turn(_)]));
        heard.stand(TURN);
        heard.stand(at(1));
        assert!(all(&mut heard, &queue, &line).is_empty() && heard.place() == TURN);
    }

    #[test]
    fn a_sell_out_and_its_end_are_told_and_the_stream_goes_on() {
        let line = line();
        let mut queue = open();
        let mut heard = WatcherState::nothing(at(300), &line);
        all(&mut heard, &queue, &line);
        queue.sold_out(5, NOW);
        assert!(matches!(all(&mut heard, &queue, &line).as_slice(), [Update::Closed { .. }]));
        assert!(all(&mut heard, &queue, &line).is_empty() && !heard.is_over());
        queue.available(6, NOW);
        assert!(matches!(all(&mut heard, &queue, &line).as_slice(), [Update::Resumed { .. }]));
    }

    #[test]
    fn a_final_close_is_the_last_word_for_who_waits_and_not_for_who_has_a_turn() {
        let line = line();
        let mut queue = open();
        queue.ended(9, NOW);
        let mut waits = WatcherState::nothing(at(300), &line);
        assert_eq!(all(&mut waits, &queue, &line).len(), 2);
        assert!(waits.is_over());
        let mut has_turn = WatcherState::nothing(TURN, &line);
        assert_eq!(all(&mut has_turn, &queue, &line).len(), 2);
        assert!(!has_turn.is_over());
        has_turn.stand(WatchedEntry::Completed);
        assert!(all(&mut has_turn, &queue, &line).is_empty() && has_turn.is_over());
    }

    #[test]
    fn who_hears_of_moves_hears_of_each_admission_once() {
        let (queue, mut line) = (open(), line());
        let mut heard = WatcherState::nothing(at(300), &line);
        all(&mut heard, &queue, &line);
        heard.move_due(line.last_fencing_number);
        assert!(!heard.has_news(&queue));
        for granted in [3, 5] {
            line.admitted(granted, 10);
            heard.move_due(line.last_fencing_number);
            let told = all(&mut heard, &queue, &line);
            assert!(
                matches!(told.as_slice(), [Update::Moved { admitted_count, .. }] if *admitted_count == granted)
            );
        }
    }

    proptest! {
        #[test]
        fn however_seldom_it_reads_a_watcher_ends_up_with_the_truth_in_a_few_messages(
            steps in proptest::collection::vec((1_u64..1_000, any::<bool>()), 1..50),
        ) {
            let (queue, line) = (open(), line());
            let mut heard = WatcherState::nothing(at(1_000), &line);
            let mut last = None;
            for (position, reads) in &steps {
                heard.stand(at(*position));
                heard.snapshot_due();
                if *reads {
                    let told = all(&mut heard, &queue, &line);
                    prop_assert!(told.len() <= 2);
                    last = told.first().cloned();
                }
            }
            let told = all(&mut heard, &queue, &line);
            prop_assert!(told.len() <= 2);
            let truth = steps.last().map(|(position, _)| *position);
            let Some(Update::Position { position, .. }) = told.first().cloned().or(last) else {
                return Err(TestCaseError::fail("a position is told"));
            };
            prop_assert_eq!(Some(position), truth);
        }
    }
}
