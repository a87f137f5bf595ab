//! The sliding window of a WINDOWED queue: what a ticket is worth follows from the last active number, the size of a window
//! and how many are active. Nothing is known of a ticket but what it says itself.

use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Timestamp};
use uuid::Uuid;

use super::{
    entry::{Entry, EntryState, ExpireReason, Turn},
    line::Line,
    policy::{Policy, QueueMode},
    queue::{Queue, QueueState},
    refusal::Refusal,
};

/// Which tickets are active now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The last active number.
    pub(crate) last_active_seq: u64,
    /// Numbers per window.
    pub(crate) window_size: u32,
    /// How many of the newest windows are active.
    pub(crate) active_windows: u32,
}

/// What a ticket is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowedEntryState {
    /// Its number has not come.
    Waiting {
        /// How many stand before it, plus one.
        position: u64,
    },
    /// It may buy.
    Active,
    /// Its window is over.
    Expired,
}

/// A customer's place in a WINDOWED queue, as the queue token says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowedEntry {
    /// In which queue.
    pub(crate) event_id: EventId,
    /// Whose.
    pub(crate) customer_id: CustomerId,
    /// Its number, and its fencing number: they rise alike.
    pub(crate) seq: u64,
    /// When the customer joined.
    pub(crate) join_time: Timestamp,
}

/// What completing a ticket's turn means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowedCompletion {
    /// It was used for this claim already.
    Done,
    /// It is to be used now.
    Use,
}

impl Window {
    /// The window of a line.
    pub(crate) fn of(policy: &Policy, line: &Line) -> Self {
        Self {
            last_active_seq: line.last_admitted_seq,
            window_size: policy.window_size,
            active_windows: policy.active_windows,
        }
    }

    /// What the ticket with this number is worth.
    pub(crate) fn state(&self, seq: u64) -> WindowedEntryState {
        if seq > self.last_active_seq {
            WindowedEntryState::Waiting { position: seq.saturating_sub(self.last_active_seq) }
        } else if seq > self.last_active_seq.saturating_sub(self.span()) {
            WindowedEntryState::Active
        } else {
            WindowedEntryState::Expired
        }
    }

    /// How many slides an active ticket lives for at least: each goes on by a window at most.
    pub(crate) fn slides_left(&self, seq: u64) -> u64 {
        let numbers_left = seq.saturating_add(self.span()).saturating_sub(self.last_active_seq);
        numbers_left.div_ceil(u64::from(self.window_size).max(1))
    }

    /// Numbers active at a time.
    fn span(&self) -> u64 {
        u64::from(self.window_size).saturating_mul(u64::from(self.active_windows))
    }
}

impl Line {
    /// Whether enough time has passed for the window to slide.
    pub(crate) fn slide_is_due(&self, policy: &Policy, now: Timestamp) -> bool {
        self.slide_time.is_none_or(|last| now.saturating_since(last) >= policy.slide_interval)
    }

    /// By how much the window is to slide now: a window at most, no more than the rate allows, and never past the last
    /// ticket issued. Up to that one it goes, or the last who joined would wait for a window that never fills.
    /// `bucket` must be filled up to now.
    pub(crate) fn slide_count(
        &self,
        state: QueueState,
        policy: &Policy,
        has_stock: bool,
        now: Timestamp,
    ) -> u64 {
        match state {
            QueueState::Open => {}
            QueueState::Scheduled | QueueState::Paused | QueueState::Closed => return 0,
        }
        let is_windowed = policy.mode == QueueMode::Windowed;
        if !is_windowed || !has_stock || policy.admissions_per_minute == 0 || !self.slide_is_due(policy, now)
        {
            return 0;
        }
        self.waiting_count.min(self.bucket.whole()).min(u64::from(policy.window_size))
    }

    /// The window slid by `count` numbers.
    pub(crate) fn slid(&mut self, count: u64, policy: &Policy, now: Timestamp) {
        self.touch();
        self.last_admitted_seq = self.last_admitted_seq.saturating_add(count).min(self.last_seq);
        self.last_fencing_number = self.last_admitted_seq;
        self.waiting_count = self.last_seq.saturating_sub(self.last_admitted_seq);
        self.bucket = self.bucket.spent(count);
        // A slide that came a little late does not put off the next one.
        let planned = self.slide_time.and_then(|last| last.checked_add(policy.slide_interval));
        let is_near = |planned: &Timestamp| now.saturating_since(*planned) < policy.slide_interval;
        self.slide_time = Some(planned.filter(is_near).unwrap_or(now));
    }
}

impl WindowedEntry {
    /// The entry's id, made of event and number, as nothing is stored.
    pub(crate) fn entry_id(&self) -> EntryId {
        EntryId::from_uuid(Uuid::new_v5(&self.event_id.as_uuid(), &self.seq.to_be_bytes()))
    }

    /// The ticket as an entry at `now`, with its position while it waits.
    pub(crate) fn entry(&self, queue: &Queue, line: &Line, now: Timestamp) -> (Entry, Option<u64>) {
        let mut entry = self.waiting_entry();
        // When exactly it ended nobody has written down: no later than the last slide.
        let slide_time = line.slide_time.unwrap_or(now);
        match Window::of(&queue.policy, line).state(self.seq) {
            WindowedEntryState::Waiting { position } => {
                let close = queue.close.as_ref().filter(|close| close.reason.is_final());
                let Some(close) = close else { return (entry, Some(position)) };
                entry.end(ExpireReason::QueueClosed, close.time);
            }
            WindowedEntryState::Active => {
                entry.state = EntryState::Admitted;
                entry.turn = Some(self.turn(&queue.policy, line, now));
            }
            WindowedEntryState::Expired => entry.end(ExpireReason::TurnExpired, slide_time),
        }
        (entry, None)
    }

    /// The turn of an active ticket. It ends when enough others have had theirs; that it lasts this long is certain.
    fn turn(&self, policy: &Policy, line: &Line, now: Timestamp) -> Turn {
        let slide_time = line.slide_time.unwrap_or(now);
        let slides = Window::of(policy, line).slides_left(self.seq);
        let slides = u32::try_from(slides).unwrap_or(u32::MAX);
        let later = |from: Timestamp, span| from.checked_add(span).unwrap_or(from);
        let certain = later(slide_time, policy.slide_interval.saturating_mul(slides));
        // Where nobody new comes nothing slides, and the ticket outlives what is certain.
        let expire_time = certain.max(later(now, policy.slide_interval));
        Turn { fencing_number: self.seq, grant_time: slide_time.min(now), expire_time }
    }

    fn waiting_entry(&self) -> Entry {
        Entry {
            entry_id: self.entry_id(),
            event_id: self.event_id,
            customer_id: self.customer_id,
            seq: self.seq,
            state: EntryState::Waiting,
            join_time: self.join_time,
            display_name: String::new(),
            avatar_url: String::new(),
            turn: None,
            end_time: None,
            expire_reason: None,
            claim_id: None,
        }
    }

    /// Whether the ticket may buy something at `now`, and until when what it begins must be done. `used_by`: the claim that it
    /// was used for.
    pub(crate) fn holds(
        &self,
        queue: &Queue,
        line: &Line,
        used_by: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Turn, Refusal> {
        if used_by.is_some() {
            return Err(Refusal::TurnEnded { state: EntryState::Completed });
        }
        match Window::of(&queue.policy, line).state(self.seq) {
            WindowedEntryState::Waiting { .. } => Err(Refusal::EntryNotFound { event_id: self.event_id }),
            WindowedEntryState::Expired => {
                Err(Refusal::TurnExpired { expire_time: line.slide_time.unwrap_or(now) })
            }
            WindowedEntryState::Active => {
                let turn = self.turn(&queue.policy, line, now);
                // What was begun in time may take as long as a turn does, however fast the window slides meanwhile.
                let begun = now.checked_add(queue.policy.turn_duration).unwrap_or(now);
                Ok(Turn { expire_time: turn.expire_time.max(begun), ..turn })
            }
        }
    }

    /// What using the ticket for `claim_id` means. One whose window is over by now was active when the claim was made: paid
    /// means served.
    pub(crate) fn completes(
        &self,
        policy: &Policy,
        line: &Line,
        used_by: Option<ClaimId>,
        claim_id: ClaimId,
    ) -> Result<WindowedCompletion, Refusal> {
        match (used_by, Window::of(policy, line).state(self.seq)) {
            (Some(used_by), _) if used_by == claim_id => Ok(WindowedCompletion::Done),
            (Some(_), _) => Err(Refusal::TurnEnded { state: EntryState::Completed }),
            (None, WindowedEntryState::Waiting { .. }) => {
                Err(Refusal::EntryNotFound { event_id: self.event_id })
            }
            (None, WindowedEntryState::Active | WindowedEntryState::Expired) => Ok(WindowedCompletion::Use),
        }
    }
}

impl Entry {
    fn end(&mut self, reason: ExpireReason, time: Timestamp) {
        self.state = reason.state();
        self.expire_reason = Some(reason);
        self.end_time = Some(time);
    }
}

#[cfg(test)]
mod tests;
