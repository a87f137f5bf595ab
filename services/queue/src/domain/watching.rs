//! What a watcher is told, given what it has heard and what is true now. A step that was missed is not told late: the
//! newest truth takes its place, so a slow reader costs no more than a quick one.

use onsale_types::Timestamp;

use super::{
    entry::{Entry, EntryState, ExpireReason, Turn},
    estimate::{Estimate, estimate},
    line::Line,
    pace::is_noticeable,
    queue::{Close, CloseReason, Queue, QueueState},
};

/// Where a watched entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In line.
    Waiting {
        /// How many stand before it, plus one.
        position: u64,
    },
    /// Not in line any more.
    Moved(Entry),
}

/// One message to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The caller waits.
    Position {
        /// Number in line.
        seq: u64,
        /// How many stand before, plus one.
        position: u64,
        /// How long it will probably take.
        estimate: Option<Estimate>,
        /// State of the queue.
        state: QueueState,
    },
    /// The caller's turn has come, or is still running.
    Turn(Turn),
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

/// What the watchers of a queue have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Going,
    Paused { joins_paused: bool, since: Timestamp },
    Closed { reason: CloseReason, since: Timestamp },
}

/// What one watcher has heard so far.
#[derive(Clone, Debug)]
pub struct Heard {
    seq: u64,
    position: Option<u64>,
    fencing_number: Option<u64>,
    mood: Mood,
    is_over: bool,
}

impl Heard {
    /// A watcher of the entry with this seq, who has heard nothing.
    #[must_use]
    pub fn nothing(seq: u64) -> Self {
        Self { seq, position: None, fencing_number: None, mood: Mood::Going, is_over: false }
    }

    /// Whether there is nothing more to come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What to tell, now that this is true.
    pub fn hear(&mut self, place: &Place, queue: &Queue, line: &Line) -> Vec<Update> {
        if self.is_over {
            return Vec::new();
        }
        let mut updates = Vec::new();
        match place {
            Place::Waiting { position } => {
                if self.position.is_none_or(|told| is_noticeable(told, *position)) {
                    updates.push(self.position_update(*position, queue, line));
                }
            }
            Place::Moved(entry) => updates.extend(self.moved(entry)),
        }
        if !self.is_over {
            updates.extend(self.mood_changed(queue));
            // Who has a turn goes on to hear of it: turns run on when a queue closes.
            let is_waiting = matches!(place, Place::Waiting { .. });
            self.is_over = is_waiting && queue.close_reason().is_some_and(CloseReason::is_final);
        }
        updates
    }

    /// What to tell when nothing has been told for a while.
    pub fn remind(&mut self, place: &Place, queue: &Queue, line: &Line) -> Option<Update> {
        match place {
            Place::Waiting { position } if !self.is_over => {
                Some(self.position_update(*position, queue, line))
            }
            Place::Waiting { .. } | Place::Moved(_) => None,
        }
    }

    fn position_update(&mut self, position: u64, queue: &Queue, line: &Line) -> Update {
        self.position = Some(position);
        let estimate = estimate(position, queue.state, &queue.policy, line.shown_service_time);
        Update::Position { seq: self.seq, position, estimate, state: queue.state }
    }

    fn moved(&mut self, entry: &Entry) -> Option<Update> {
        match (entry.state, entry.turn, entry.expire_reason) {
            (EntryState::Admitted, Some(turn), _) => {
                let is_news = self.fencing_number.replace(turn.fencing_number) != Some(turn.fencing_number);
                is_news.then_some(Update::Turn(turn))
            }
            (EntryState::Expired | EntryState::Left, _, Some(reason)) => {
                self.is_over = true;
                Some(Update::Expired { reason, time: entry.end_time.unwrap_or(entry.join_time) })
            }
            (EntryState::Completed, _, _) => {
                self.is_over = true;
                None
            }
            // Not in line, not ended, and without a turn: no such entry can be stored.
            (EntryState::Waiting | EntryState::Admitted | EntryState::Expired | EntryState::Left, _, _) => {
                None
            }
        }
    }

    fn mood_changed(&mut self, queue: &Queue) -> Option<Update> {
        let mood = match (queue.state, queue.pause_time, &queue.close) {
            (QueueState::Closed, _, Some(close)) => Mood::Closed { reason: close.reason, since: close.time },
            (QueueState::Paused, Some(since), _) => Mood::Paused { joins_paused: queue.joins_paused, since },
            (QueueState::Scheduled | QueueState::Open | QueueState::Paused | QueueState::Closed, _, _) => {
                Mood::Going
            }
        };
        if mood == std::mem::replace(&mut self.mood, mood) {
            return None;
        }
        let notice = queue.notice.clone();
        match (mood, &queue.close) {
            (Mood::Closed { .. }, Some(close)) => Some(Update::Closed { close: close.clone(), notice }),
            (Mood::Paused { joins_paused, since }, _) => {
                Some(Update::Paused { time: since, joins_paused, notice })
            }
            (Mood::Going | Mood::Closed { .. }, _) => Some(Update::Resumed { time: queue.update_time }),
        }
    }
}

#[cfg(test)]
mod tests {
    use onsale_types::{CustomerId, EntryId, EventId};

    use super::*;
    use crate::domain::{line::tests::empty, queue::tests::open};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn line() -> Line {
        Line { revision: 1, last_seq: 500, waiting_count: 500, ..empty() }
    }

    fn entry(state: EntryState) -> Entry {
        Entry {
            entry_id: EntryId::generate(),
            event_id: EventId::generate(),
            customer_id: CustomerId::generate(),
            seq: 300,
            state,
            join_time: NOW,
            display_name: String::new(),
            avatar_url: String::new(),
            turn: Some(Turn { fencing_number: 1, grant_time: NOW, expire_time: NOW }),
            end_time: None,
            expire_reason: None,
            claim_id: None,
        }
    }

    fn at(position: u64) -> Place {
        Place::Waiting { position }
    }

    #[test]
    fn only_noticeable_steps_are_told_and_a_reminder_always_is() {
        let (queue, line) = (open(), line());
        let mut heard = Heard::nothing(300);
        assert_eq!(heard.hear(&at(300), &queue, &line).len(), 1);
        assert_eq!(heard.hear(&at(299), &queue, &line).len(), 0);
        assert_eq!(heard.hear(&at(297), &queue, &line).len(), 1);
        assert!(matches!(
            heard.remind(&at(297), &queue, &line),
            Some(Update::Position { position: 297, .. })
        ));
    }

    #[test]
    fn a_turn_is_told_once_however_often_it_is_seen() {
        let (queue, line) = (open(), line());
        let mut heard = Heard::nothing(300);
        let turn = Place::Moved(entry(EntryState::Admitted));
        assert!(matches!(heard.hear(&turn, &queue, &line).as_slice(), [Update::Turn(_)]));
        assert!(heard.hear(&turn, &queue, &line).is_empty());
        assert_eq!(heard.remind(&turn, &queue, &line), None);
    }

    #[test]
    fn a_sell_out_and_its_end_are_told_and_the_stream_goes_on() {
        let line = line();
        let mut queue = open();
        let mut heard = Heard::nothing(300);
        heard.hear(&at(300), &queue, &line);
        queue.sold_out(5, NOW);
        assert!(matches!(heard.hear(&at(300), &queue, &line).as_slice(), [Update::Closed { .. }]));
        assert!(heard.hear(&at(300), &queue, &line).is_empty() && !heard.is_over());
        queue.available(6, NOW);
        assert!(matches!(heard.hear(&at(300), &queue, &line).as_slice(), [Update::Resumed { .. }]));
    }

    #[test]
    fn a_final_close_is_the_last_word_for_who_waits_and_not_for_who_has_a_turn() {
        let line = line();
        let mut queue = open();
        queue.ended(9, NOW);
        let mut waits = Heard::nothing(300);
        assert_eq!(waits.hear(&at(300), &queue, &line).len(), 2);
        assert!(waits.is_over() && waits.hear(&at(299), &queue, &line).is_empty());
        let mut has_turn = Heard::nothing(300);
        let turn = Place::Moved(entry(EntryState::Admitted));
        assert_eq!(has_turn.hear(&turn, &queue, &line).len(), 2);
        assert!(!has_turn.is_over());
        assert!(has_turn.hear(&Place::Moved(entry(EntryState::Completed)), &queue, &line).is_empty());
        assert!(has_turn.is_over());
    }
}
