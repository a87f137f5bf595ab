//! Entries of a WINDOWED queue. No entry is stored: its state follows from its number and the sliding window, that is from the
//! last active number, the window size and the number of active windows (ADR 0010).

use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Timestamp};
use uuid::Uuid;

use super::{
    entry::{Entry, EntryState, ExpireReason},
    line::Line,
    policy::{Policy, QueueMode},
    queue::{Queue, QueueState},
    refusal::Refusal,
    turn::{Turn, TurnKey, ValidTurn},
};

/// The range of numbers that are active now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Highest active number; 0 before the first slide.
    pub(crate) last_active_seq: u64,
    pub(crate) window_size: u32,
    /// Number of the newest windows that are active.
    pub(crate) active_windows: u32,
}

/// State of a number relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowedEntryState {
    /// The number is behind the window.
    Waiting {
        /// Number of waiting entries before it, plus one.
        position: u64,
    },
    /// The entry may be used for a purchase.
    Active,
    /// The window has passed the number.
    Expired,
}

/// A customer's entry in a WINDOWED queue, as the queue token records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowedEntry {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Number in line, which is also its fencing number.
    pub(crate) seq: u64,
    pub(crate) join_time: Timestamp,
}

/// Effect of completing the turn of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowedCompletion {
    /// The turn was completed for this claim earlier.
    Done,
    /// The entry is to be marked as used.
    MarkUsed,
}

impl Window {
    /// Returns the window of a line.
    pub(crate) fn of(policy: &Policy, line: &Line) -> Self {
        Self {
            last_active_seq: line.last_admitted_seq,
            window_size: policy.window_size,
            active_windows: policy.active_windows,
        }
    }

    /// Returns the state of a number.
    pub(crate) fn state(&self, seq: u64) -> WindowedEntryState {
        if seq > self.last_active_seq {
            WindowedEntryState::Waiting { position: seq.saturating_sub(self.last_active_seq) }
        } else if seq > self.last_active_seq.saturating_sub(self.span()) {
            WindowedEntryState::Active
        } else {
            WindowedEntryState::Expired
        }
    }

    /// Returns the number of slides for which an active number stays active at least: each slide is at most one window.
    pub(crate) fn slides_left(&self, seq: u64) -> u64 {
        let numbers_left = seq.saturating_add(self.span()).saturating_sub(self.last_active_seq);
        numbers_left.div_ceil(u64::from(self.window_size).max(1))
    }

    /// Returns how many numbers are active at a time.
    fn span(&self) -> u64 {
        u64::from(self.window_size).saturating_mul(u64::from(self.active_windows))
    }
}

impl Line {
    /// Returns true if one slide interval has passed since the last slide.
    pub(crate) fn slide_is_due(&self, policy: &Policy, now: Timestamp) -> bool {
        self.slide_time.is_none_or(|last| now.saturating_since(last) >= policy.slide_interval)
    }

    /// Returns by how many numbers the window slides now: at most one window, at most what the rate allows, and up to the last
    /// number given out, so that the last entries do not wait for a window that never fills. `bucket` must be filled up to now.
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

    /// Slides the window by `count` numbers.
    pub(crate) fn slide(&mut self, count: u64, policy: &Policy, now: Timestamp) {
        self.bump_revision();
        self.last_admitted_seq = self.last_admitted_seq.saturating_add(count).min(self.last_seq);
        self.last_fencing_number = self.last_admitted_seq;
        self.waiting_count = self.last_seq.saturating_sub(self.last_admitted_seq);
        self.bucket = self.bucket.spent(count);
        // A slide that is less than one interval late does not delay the next one.
        let planned = self.slide_time.and_then(|last| last.checked_add(policy.slide_interval));
        let is_near = |planned: &Timestamp| now.saturating_since(*planned) < policy.slide_interval;
        self.slide_time = Some(planned.filter(is_near).unwrap_or(now));
    }
}

impl WindowedEntry {
    /// Returns the entry of a turn. Claim has verified the token that names its customer.
    pub(crate) fn of_turn(turn: TurnKey, now: Timestamp) -> Self {
        let TurnKey { event_id, customer_id, fencing_number } = turn;
        Self { event_id, customer_id, seq: fencing_number, join_time: now }
    }

    /// Returns the id of the entry, which is derived from its event and number.
    pub(crate) fn entry_id(&self) -> EntryId {
        EntryId::from_uuid(Uuid::new_v5(&self.event_id.as_uuid(), &self.seq.to_be_bytes()))
    }

    /// Returns the entry at `now`, with its position while it waits.
    pub(crate) fn entry(&self, queue: &Queue, line: &Line, now: Timestamp) -> (Entry, Option<u64>) {
        let mut entry = self.waiting_entry();
        // The exact end is not stored; it was at the last slide or earlier.
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

    /// Returns the turn of an active entry. It ends once the window has passed its number; `expire_time` is the earliest time
    /// at which that can happen.
    fn turn(&self, policy: &Policy, line: &Line, now: Timestamp) -> Turn {
        let slide_time = line.slide_time.unwrap_or(now);
        let slides = Window::of(policy, line).slides_left(self.seq);
        let slides = u32::try_from(slides).unwrap_or(u32::MAX);
        let later = |from: Timestamp, span| from.checked_add(span).unwrap_or(from);
        let certain = later(slide_time, policy.slide_interval.saturating_mul(slides));
        // Without new customers nothing slides, and the turn outlives the computed time by at least one interval.
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

    /// Returns the turn if it may be used for a purchase at `now`. `used_by` is the claim that already used it.
    pub(crate) fn validate(
        &self,
        queue: &Queue,
        line: &Line,
        used_by: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<ValidTurn, Refusal> {
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
                // A purchase that begins now may take a whole turn, however fast the window slides meanwhile.
                let begun = now.checked_add(queue.policy.turn_duration).unwrap_or(now);
                let turn = Turn { expire_time: turn.expire_time.max(begun), ..turn };
                Ok(ValidTurn { entry_id: self.entry_id(), turn })
            }
        }
    }

    /// Decides the effect of completing the turn for `claim_id`. An entry that the window has passed was active when the claim
    /// was made, and a paid order is served.
    pub(crate) fn complete(
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
            (None, WindowedEntryState::Active | WindowedEntryState::Expired) => {
                Ok(WindowedCompletion::MarkUsed)
            }
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
