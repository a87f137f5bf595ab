//! The watchers of a line on this pod, and the pass over all of them that finds those whom a change concerns.
//!
//! A pass reads 32 bytes per watcher in sequence and looks up the position in the copy of the line. It touches the watcher
//! itself only if a message is due. Messages are made when the stream is polled, from the state at that time.

use std::{sync::Arc, task::Waker, time::Duration};

use onsale_types::{CustomerId, EntryId};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::replicas::{LineReplica, PublicState};
use crate::{
    config::WatchConfig,
    domain::{
        line_change::LineCopy,
        queue::Queue,
        update_pacing::is_noticeable,
        watcher::{Update, WatchedEntry, WatcherState},
    },
    metrics::{self, UpdateSaved},
};

/// Watchers visited in a row before other tasks of the thread run.
pub(crate) const CHUNK: usize = 16_384;

/// Length of a tick. Ticks fit into four bytes for 13 years.
const TICK: Duration = Duration::from_millis(100);

/// A time in ticks since the start of the process, from 1.
pub(crate) type Tick = u32;

/// The clock of ticks.
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

/// Intervals between messages of each kind, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    position: Tick,
    moved: Tick,
    snapshot: Tick,
    seen: Tick,
    slow: Tick,
}

impl Intervals {
    /// Returns the configured intervals. Heartbeats come at least four times within `idle_timeout`.
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

/// The part of a watcher that a pass reads. Keep it at 32 bytes.
#[derive(Debug)]
pub(crate) struct WatcherSlot {
    seq: u64,
    /// Position in the last message; 0 if the entry does not wait.
    sent_position: u64,
    /// Time at which the watcher is visited even without a change.
    due: Tick,
    watcher: Arc<Watcher>,
}

/// One open stream.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) entry_id: EntryId,
    pub(crate) customer_id: CustomerId,
    pub(crate) seq: u64,
    delivery: Mutex<Delivery>,
}

#[derive(Debug)]
struct Delivery {
    state: WatcherState,
    /// Highest revision in a sent or pending message.
    revision: u64,
    /// Waker of the stream while no message is pending.
    waker: Option<Waker>,
    position_at: Tick,
    moved_at: Tick,
    snapshot_at: Tick,
    seen_at: Tick,
    /// Time since which the client leaves a pending message unread; 0 if none is pending.
    unread_since: Tick,
    reader: ReaderState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Reading,
    TooSlow,
    /// The stream has ended; a slow reader was told so.
    Ended,
}

/// Outcome of polling a watcher.
#[derive(Debug)]
pub(crate) enum Polled {
    /// A message, its revision, and the state of the queue from which it is made.
    Update(u64, Update, Arc<PublicState>),
    /// No message is pending; the waker is stored.
    Pending,
    /// The client did not read for too long.
    TooSlow,
    /// No further message will follow.
    Ended,
}

/// Findings of a pass.
#[derive(Debug, Default)]
pub(crate) struct PassResult {
    /// Watchers whose entries left the line or whose turns ended. Their new state must be looked up.
    pub(crate) unsettled: Vec<Arc<Watcher>>,
    /// Waiting entries whose heartbeat is due.
    pub(crate) seen: Vec<EntryId>,
    /// True if a message became pending.
    pub(crate) has_pending: bool,
    significance_saved: u64,
    coalescing_saved: u64,
}

/// The state that a pass compares the watchers with.
pub(crate) struct FanoutPass<'a> {
    pub(crate) copy: &'a LineCopy,
    pub(crate) queue: &'a Queue,
    pub(crate) intervals: Intervals,
    pub(crate) now: Tick,
    /// True if the line changed since the last pass.
    pub(crate) has_moved: bool,
    /// True if the queue was paused, resumed, closed or opened since the last pass.
    pub(crate) has_status_changed: bool,
    /// Returns true if the turn of this number may have ended.
    pub(crate) is_ended: &'a (dyn Fn(u64) -> bool + Sync),
}

impl Watcher {
    /// Returns the watcher of a new stream.
    pub(crate) fn new(
        (entry_id, customer_id, seq): (EntryId, CustomerId, u64),
        state: WatcherState,
        revision: u64,
        now: Tick,
    ) -> Arc<Self> {
        // Spread by number in line, so that the periodic messages of customers who arrive together are not due together.
        let spread = u32::try_from(seq % 64).unwrap_or(0);
        let delivery = Delivery {
            state,
            revision,
            waker: None,
            position_at: now,
            moved_at: now.saturating_add(spread),
            snapshot_at: now.saturating_sub(spread),
            seen_at: now.saturating_add(spread),
            unread_since: now,
            reader: ReaderState::Reading,
        };
        Arc::new(Self { entry_id, customer_id, seq, delivery: Mutex::new(delivery) })
    }

    /// Returns the watcher's slot, which the next pass visits.
    pub(crate) fn slot(self: &Arc<Self>) -> WatcherSlot {
        let sent_position = match self.delivery.lock().state.entry() {
            WatchedEntry::Waiting { position } => position,
            WatchedEntry::Turn(_) | WatchedEntry::Expired { .. } | WatchedEntry::Completed => 0,
        };
        WatcherSlot { seq: self.seq, sent_position, due: 0, watcher: Arc::clone(self) }
    }

    /// Records the entry's new state and wakes its stream.
    pub(crate) fn set_entry(&self, entry: WatchedEntry, revision: u64, now: Tick) {
        let mut delivery = self.delivery.lock();
        delivery.state.set_entry(entry);
        delivery.revision = delivery.revision.max(revision);
        delivery.wake(now);
    }

    /// Returns the next message, or stores the waker.
    pub(crate) fn poll(&self, replica: &LineReplica, now: Tick, waker: &Waker) -> Polled {
        let mut delivery = self.delivery.lock();
        // Read under the lock: a pass that publishes a newer state afterwards finds the waker.
        let Some(public) = replica.public() else {
            delivery.store_waker(waker);
            return Polled::Pending;
        };
        match delivery.reader {
            ReaderState::Reading => {}
            ReaderState::TooSlow => {
                delivery.reader = ReaderState::Ended;
                return Polled::TooSlow;
            }
            ReaderState::Ended => return Polled::Ended,
        }
        match delivery.state.next(public.view()) {
            Some(update) => {
                if matches!(update, Update::Position { .. }) {
                    delivery.position_at = now;
                }
                delivery.unread_since = now;
                delivery.revision = delivery.revision.max(public.current.line.revision);
                Polled::Update(delivery.revision, update, public)
            }
            None if delivery.state.is_over() => {
                delivery.reader = ReaderState::Ended;
                Polled::Ended
            }
            None => {
                delivery.unread_since = 0;
                delivery.store_waker(waker);
                Polled::Pending
            }
        }
    }
}

impl Delivery {
    fn store_waker(&mut self, waker: &Waker) {
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

    /// Returns the time of the next visit without a change.
    fn due(&self, intervals: &Intervals) -> Tick {
        let unread = match self.unread_since {
            0 => Tick::MAX,
            since => since.saturating_add(intervals.slow),
        };
        let times = [
            (self.position_at, intervals.position),
            (self.moved_at, intervals.moved),
            (self.snapshot_at, intervals.snapshot),
            (self.seen_at, intervals.seen),
        ];
        times.into_iter().map(|(at, every)| at.saturating_add(every)).fold(unread, Tick::min)
    }
}

impl WatcherSlot {
    pub(crate) fn watcher(&self) -> &Arc<Watcher> {
        &self.watcher
    }

    /// Returns true if the entry waited at the last visit.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sent_position != 0
    }
}

impl FanoutPass<'_> {
    /// Visits a range of watchers and removes those whose stream has closed.
    pub(crate) fn run(
        &self,
        slots: &mut Vec<WatcherSlot>,
        range: std::ops::Range<usize>,
        result: &mut PassResult,
    ) {
        let mut next = range.start;
        let mut end = range.end.min(slots.len());
        while next < end {
            let Some(slot) = slots.get_mut(next) else { return };
            if self.visit(slot, result) {
                next += 1;
            } else {
                slots.swap_remove(next);
                end = end.min(slots.len());
            }
        }
    }

    /// Visits one watcher; returns false if its stream has closed.
    fn visit(&self, slot: &mut WatcherSlot, result: &mut PassResult) -> bool {
        let position = if slot.is_waiting() { self.copy.index().position(slot.seq) } else { None };
        let is_noticed = match position {
            Some(position) => {
                let is_noticed = is_noticeable(slot.sent_position, position);
                if !is_noticed && self.has_moved && position != slot.sent_position {
                    result.significance_saved += 1;
                }
                is_noticed
            }
            None if slot.is_waiting() => slot.seq <= self.copy.last_seq(),
            None => (self.is_ended)(slot.seq),
        };
        if !is_noticed && !self.has_status_changed && slot.due > self.now {
            return true;
        }
        // The stream holds the other reference.
        if Arc::strong_count(&slot.watcher) == 1 {
            return false;
        }
        self.update(slot, position, is_noticed, result);
        true
    }

    fn update(
        &self,
        slot: &mut WatcherSlot,
        position: Option<u64>,
        is_noticed: bool,
        result: &mut PassResult,
    ) {
        let watcher = Arc::clone(&slot.watcher);
        let mut delivery = watcher.delivery.lock();
        let intervals = &self.intervals;
        let is_due = |at: Tick, every: Tick| at.saturating_add(every) <= self.now;
        let is_unread = delivery.unread_since != 0;
        if is_unread
            && is_due(delivery.unread_since, intervals.slow)
            && delivery.reader == ReaderState::Reading
        {
            delivery.reader = ReaderState::TooSlow;
        }
        if delivery.reader != ReaderState::Reading {
            // The stream learns of it when the client reads again. Until then only its closing matters.
            slot.due = self.now.saturating_add(intervals.position);
            delivery.wake(self.now);
            return;
        }
        match position {
            Some(position) if is_noticed || is_due(delivery.position_at, intervals.position) => {
                if is_unread && delivery.state.has_pending(self.queue) {
                    result.coalescing_saved += 1;
                }
                slot.sent_position = position;
                delivery.position_at = self.now;
                delivery.state.set_entry(WatchedEntry::Waiting { position });
                delivery.revision = delivery.revision.max(self.copy.revision());
            }
            Some(_) => {}
            None if is_noticed => {
                slot.sent_position = 0;
                result.unsettled.push(Arc::clone(&watcher));
            }
            None => self.restore_waiting(slot, &delivery.state),
        }
        // An entry that does not wait gets no positions and needs no visit for one.
        if !slot.is_waiting() {
            delivery.position_at = self.now;
        }
        self.make_due(slot, &watcher, &mut delivery, result);
        if delivery.state.has_pending(self.queue) {
            delivery.wake(self.now);
            result.has_pending = true;
        }
        slot.due = delivery.due(intervals);
    }

    /// Makes periodic messages and the heartbeat due.
    fn make_due(
        &self,
        slot: &WatcherSlot,
        watcher: &Watcher,
        delivery: &mut Delivery,
        result: &mut PassResult,
    ) {
        let intervals = &self.intervals;
        let is_due = |at: Tick, every: Tick| at.saturating_add(every) <= self.now;
        if is_due(delivery.moved_at, intervals.moved) {
            delivery.moved_at = self.now;
            if slot.is_waiting() {
                delivery.state.set_move_due(self.copy.admitted_count());
            }
        }
        if is_due(delivery.snapshot_at, intervals.snapshot) {
            delivery.snapshot_at = self.now;
            delivery.state.set_snapshot_due();
        }
        if is_due(delivery.seen_at, intervals.seen) {
            delivery.seen_at = self.now;
            if slot.is_waiting() {
                result.seen.push(watcher.entry_id);
            }
        }
    }

    /// Treats an entry as waiting again that the copy lacked and has now: the copy was wrong and has been loaded again.
    fn restore_waiting(&self, slot: &mut WatcherSlot, state: &WatcherState) {
        if !slot.is_waiting()
            && matches!(state.entry(), WatchedEntry::Waiting { .. })
            && self.copy.index().contains(slot.seq)
        {
            slot.sent_position = u64::MAX;
        }
    }
}

impl PassResult {
    /// Counts the messages that were not sent.
    pub(crate) fn count(&self) {
        metrics::update_saved(UpdateSaved::Significance, self.significance_saved);
        metrics::update_saved(UpdateSaved::Coalescing, self.coalescing_saved);
    }
}
