//! Who watches a line on this pod, and the one pass over all of them that finds whom a change concerns.
//!
//! A pass reads a few bytes in a row per watcher and asks the copy of the line for its position; it goes to the watcher
//! itself only when there is something to tell. A message is made when the stream is read, from what is true then.

use std::{
    sync::{Arc, Mutex},
    task::Waker,
    time::Duration,
};

use onsale_types::{CustomerId, EntryId};
use tokio::time::Instant;

use super::{
    follow::{LineReplica, PublicState},
    lock,
};
use crate::{
    config::WatchConfig,
    domain::{
        line_change::LineCopy,
        notify_policy::is_noticeable,
        queue::Queue,
        watcher::{Update, WatchedEntry, WatcherState},
    },
    metrics::{self, UpdateSaved},
};

/// Watchers looked at in a row before others get their turn on the processor.
pub(crate) const CHUNK: usize = 16_384;

/// What a tick lasts. Four bytes of ticks are thirteen years.
const TICK: Duration = Duration::from_millis(100);

/// A moment in ticks, from 1.
pub(crate) type Tick = u32;

/// Counts ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks(Instant);

impl Ticks {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Tick {
        ticks(self.0.elapsed())
    }
}

fn ticks(span: Duration) -> Tick {
    u32::try_from(span.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).saturating_add(1)
}

/// How often what is told, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    position: Tick,
    moved: Tick,
    snapshot: Tick,
    seen: Tick,
    slow: Tick,
}

impl Intervals {
    /// As configured; signs of life come four times within `idle_timeout` at least.
    pub(crate) fn new(config: &WatchConfig, idle_timeout: Duration) -> Self {
        Self {
            position: ticks(config.position_interval),
            moved: ticks(config.moved_interval),
            snapshot: ticks(config.snapshot_interval),
            seen: ticks(config.seen_interval.min(idle_timeout / 4)),
            slow: ticks(config.slow_after),
        }
    }
}

/// A watcher, as the pass sees it.
#[derive(Debug)]
pub(crate) struct WatcherSlot {
    seq: u64,
    /// The position it was told last; 0: it does not wait.
    told: u64,
    /// When it is to be looked at whatever happens.
    due: Tick,
    watcher: Arc<Watcher>,
}

/// One open stream.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) entry_id: EntryId,
    pub(crate) customer_id: CustomerId,
    pub(crate) seq: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    heard: WatcherState,
    /// The highest revision it was told, or is about to be.
    revision: u64,
    /// Of the stream, while it waits for something to tell.
    waker: Option<Waker>,
    position_at: Tick,
    moved_at: Tick,
    snapshot_at: Tick,
    seen_at: Tick,
    /// Since when something is there that it does not read; 0: nothing is.
    unread_since: Tick,
    pace: ReaderState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Reading,
    TooSlow,
    /// It was told that it is, or need not be.
    Ended,
}

/// What a stream finds when it is polled.
#[derive(Debug)]
pub(crate) enum Polled {
    /// Something to tell, at a revision, and what is true of the queue.
    Update(u64, Update, Arc<PublicState>),
    /// Nothing now; the waker is kept.
    Nothing,
    /// It did not read for too long.
    TooSlow,
    /// There is nothing more to come.
    Over,
}

/// What a pass found out besides.
#[derive(Debug, Default)]
pub(crate) struct PassResult {
    /// Not in line any more, or their turn ended: what became of them has to be looked up.
    pub(crate) moved: Vec<Arc<Watcher>>,
    /// Entries whose watchers are there: signs of life.
    pub(crate) seen: Vec<EntryId>,
    /// Whether anybody was told anything.
    pub(crate) has_told: bool,
    significance_saved: u64,
    coalescing_saved: u64,
}

/// What a pass looks with.
pub(crate) struct FanoutPass<'a> {
    pub(crate) copy: &'a LineCopy,
    pub(crate) queue: &'a Queue,
    pub(crate) rhythm: Intervals,
    pub(crate) now: Tick,
    /// The line moved since the last pass.
    pub(crate) is_moved: bool,
    /// The queue was paused, resumed, closed or opened since the last pass.
    pub(crate) is_controlled: bool,
    /// Whether the turn of this seq may have ended.
    pub(crate) is_ended: &'a (dyn Fn(u64) -> bool + Sync),
}

impl Watcher {
    /// A watcher of an entry who has heard nothing.
    pub(crate) fn new(
        (entry_id, customer_id, seq): (EntryId, CustomerId, u64),
        heard: WatcherState,
        revision: u64,
        now: Tick,
    ) -> Arc<Self> {
        // The first signs of those who come together do not come together: spread by their numbers in line.
        let spread = u32::try_from(seq % 64).unwrap_or(0);
        let state = State {
            heard,
            revision,
            waker: None,
            position_at: now,
            moved_at: now.saturating_add(spread),
            snapshot_at: now.saturating_sub(spread),
            seen_at: now.saturating_add(spread),
            unread_since: now,
            pace: ReaderState::Reading,
        };
        Arc::new(Self { entry_id, customer_id, seq, state: Mutex::new(state) })
    }

    /// Its slot: to be looked at by the next pass.
    pub(crate) fn slot(self: &Arc<Self>) -> WatcherSlot {
        let told = match lock(&self.state).heard.place() {
            WatchedEntry::Waiting { position } => position,
            WatchedEntry::Turn(_) | WatchedEntry::Expired { .. } | WatchedEntry::Completed => 0,
        };
        WatcherSlot { seq: self.seq, told, due: 0, watcher: Arc::clone(self) }
    }

    /// It is here, at this revision.
    pub(crate) fn stand(&self, place: WatchedEntry, revision: u64, now: Tick) {
        let mut state = lock(&self.state);
        state.heard.stand(place);
        state.revision = state.revision.max(revision);
        state.wake(now);
    }

    /// The next thing to tell.
    pub(crate) fn poll(&self, followed: &LineReplica, now: Tick, waker: &Waker) -> Polled {
        let mut state = lock(&self.state);
        // Looked at under the lock: a pass that shows something newer finds the waker, or was here before.
        let Some(public) = followed.public() else {
            state.keep(waker);
            return Polled::Nothing;
        };
        match state.pace {
            ReaderState::Reading => {}
            ReaderState::TooSlow => {
                state.pace = ReaderState::Ended;
                return Polled::TooSlow;
            }
            ReaderState::Ended => return Polled::Over,
        }
        match state.heard.next(public.scene()) {
            Some(update) => {
                if matches!(update, Update::Position { .. }) {
                    state.position_at = now;
                }
                state.unread_since = now;
                state.revision = state.revision.max(public.current.line.revision);
                Polled::Update(state.revision, update, public)
            }
            None if state.heard.is_over() => {
                state.pace = ReaderState::Ended;
                Polled::Over
            }
            None => {
                state.unread_since = 0;
                state.keep(waker);
                Polled::Nothing
            }
        }
    }
}

impl State {
    fn keep(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    fn wake(&mut self, now: Tick) {
        if self.unread_since == 0 {
            self.unread_since = now;
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// When it is to be looked at next.
    fn due(&self, rhythm: &Intervals) -> Tick {
        let unread =
            if self.unread_since == 0 { Tick::MAX } else { self.unread_since.saturating_add(rhythm.slow) };
        let told = [(self.position_at, rhythm.position), (self.moved_at, rhythm.moved)];
        let rest = [(self.snapshot_at, rhythm.snapshot), (self.seen_at, rhythm.seen)];
        told.into_iter().chain(rest).map(|(at, every)| at.saturating_add(every)).fold(unread, Tick::min)
    }
}

impl WatcherSlot {
    /// Whose it is.
    pub(crate) fn watcher(&self) -> &Arc<Watcher> {
        &self.watcher
    }

    /// Whether the entry waited when it was last looked at.
    pub(crate) fn is_waiting(&self) -> bool {
        self.told != 0
    }
}

impl FanoutPass<'_> {
    /// Looks at some watchers; drops those who have gone.
    pub(crate) fn over(
        &self,
        slots: &mut Vec<WatcherSlot>,
        range: std::ops::Range<usize>,
        findings: &mut PassResult,
    ) {
        let mut next = range.start;
        let mut end = range.end.min(slots.len());
        while next < end {
            let Some(slot) = slots.get_mut(next) else { return };
            if self.look(slot, findings) {
                next += 1;
            } else {
                slots.swap_remove(next);
                end = end.min(slots.len());
            }
        }
    }

    /// Whether the watcher is still there.
    fn look(&self, slot: &mut WatcherSlot, findings: &mut PassResult) -> bool {
        let position = if slot.is_waiting() { self.copy.index().position(slot.seq) } else { None };
        let is_noticed = match position {
            Some(position) => {
                let is_noticed = is_noticeable(slot.told, position);
                if !is_noticed && self.is_moved && position != slot.told {
                    findings.significance_saved += 1;
                }
                is_noticed
            }
            None if slot.is_waiting() => slot.seq <= self.copy.last_seq(),
            None => (self.is_ended)(slot.seq),
        };
        if !is_noticed && !self.is_controlled && slot.due > self.now {
            return true;
        }
        // Who reads the stream has one, too.
        if Arc::strong_count(&slot.watcher) == 1 {
            return false;
        }
        self.tell(slot, position, is_noticed, findings);
        true
    }

    fn tell(
        &self,
        slot: &mut WatcherSlot,
        position: Option<u64>,
        is_noticed: bool,
        findings: &mut PassResult,
    ) {
        let watcher = Arc::clone(&slot.watcher);
        let mut state = lock(&watcher.state);
        let rhythm = &self.rhythm;
        let is_due = |at: Tick, every: Tick| at.saturating_add(every) <= self.now;
        if state.unread_since != 0
            && is_due(state.unread_since, rhythm.slow)
            && state.pace == ReaderState::Reading
        {
            state.pace = ReaderState::TooSlow;
        }
        if state.pace != ReaderState::Reading {
            // Its stream is told when it reads again; until then we only look whether it is still there.
            slot.due = self.now.saturating_add(rhythm.position);
            state.wake(self.now);
            return;
        }
        match position {
            Some(position) if is_noticed || is_due(state.position_at, rhythm.position) => {
                if state.unread_since != 0 && state.heard.has_news(self.queue) {
                    findings.coalescing_saved += 1;
                }
                slot.told = position;
                state.position_at = self.now;
                state.heard.stand(WatchedEntry::Waiting { position });
                state.revision = state.revision.max(self.copy.revision());
            }
            Some(_) => {}
            None if is_noticed => {
                slot.told = 0;
                findings.moved.push(Arc::clone(&watcher));
            }
            None => self.find_again(slot, &state.heard),
        }
        // Who does not wait hears no positions, and need not be looked at for one.
        if !slot.is_waiting() {
            state.position_at = self.now;
        }
        if is_due(state.moved_at, rhythm.moved) {
            state.moved_at = self.now;
            if slot.is_waiting() {
                state.heard.move_due(self.copy.admitted_count());
            }
        }
        if is_due(state.snapshot_at, rhythm.snapshot) {
            state.snapshot_at = self.now;
            state.heard.snapshot_due();
        }
        if is_due(state.seen_at, rhythm.seen) {
            state.seen_at = self.now;
            if slot.is_waiting() {
                findings.seen.push(watcher.entry_id);
            }
        }
        if state.heard.has_news(self.queue) {
            state.wake(self.now);
            findings.has_told = true;
        }
        slot.due = state.due(rhythm);
    }

    /// One who was not in the copy, and waits: the copy was wrong, and is not any more.
    fn find_again(&self, slot: &mut WatcherSlot, heard: &WatcherState) {
        if !slot.is_waiting()
            && matches!(heard.place(), WatchedEntry::Waiting { .. })
            && self.copy.index().contains(slot.seq)
        {
            slot.told = u64::MAX;
        }
    }
}

impl PassResult {
    /// Counts what was not sent.
    pub(crate) fn count(&self) {
        metrics::saved(UpdateSaved::Significance, self.significance_saved);
        metrics::saved(UpdateSaved::Coalescing, self.coalescing_saved);
    }
}
