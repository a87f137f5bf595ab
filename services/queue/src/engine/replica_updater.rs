//! Keeps one line replica up to date and passes each change on to the watchers whom it concerns.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use onsale_kit::error::Chain;
use onsale_types::EntryId;
use tokio::time::{Instant, sleep_until};

use super::{
    Engine,
    fanout::{CHUNK, FanoutPass, Intervals, PassResult, Tick, Watcher, WatcherSlot},
    replicas::{LineReplica, PublicState},
};
use crate::{
    domain::{
        line_change::{ApplyOutcome, LineChange},
        policy::QueueMode,
        queue::QueueAndLine,
        snapshot::PublicSnapshot,
        watcher::{AdmissionStatus, WatchedEntry},
        windowed_entry::{Window, WindowedEntry, WindowedEntryState},
    },
    error::Error,
    metrics,
    store::{entries, line_copies, move_log, queues},
};

/// Time for which a missing change may be on its way before it is read from Postgres.
const GAP_TIMEOUT: Duration = Duration::from_millis(60);

/// Largest number of early changes kept, that is of changes that arrived before their predecessor. Beyond it Postgres is read.
const EARLY_MAX: usize = 1_024;

/// Time for which the move log is not read after a failure.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Time for which a past lag is still reported. Longer than the 5 s between two viewer reports.
const LAG_SHOWN: Duration = Duration::from_secs(6);

/// Entries read by one statement.
const LOOK_UP_MAX: usize = 1_000;

/// The rest after a pass lasts this many times as long as the pass, so that passes take at most a fifth of the time.
const REST_TIMES: u32 = 4;

pub(crate) struct ReplicaUpdater {
    engine: Arc<Engine>,
    replica: Arc<LineReplica>,
    is_loaded: bool,
    /// A change showed that the copy differs from the line.
    has_diverged: bool,
    /// The queue and line as read last, at most one poll ago.
    current: Option<QueueAndLine>,
    /// Set when `current` must be read again because the state or policy may have changed.
    is_outdated: bool,
    /// Id of the last log record read; `None`: read from the start.
    log_id: Option<String>,
    log_paused_until: Instant,
    /// Changes that arrived before their predecessor, by revision.
    early: BTreeMap<u64, LineChange>,
    gap_since: Option<Instant>,
    /// Begin of the present lag; `None` while the copy is up to date.
    lagging_since: Option<Instant>,
    /// Length and end of the last lag.
    last_lag: Option<(Duration, Instant)>,
    slots: Vec<WatcherSlot>,
    /// Numbers whose turn ended since the last pass. `None`: any turn may have ended.
    ended: Option<HashSet<u64>>,
    /// Watchers whose entries do not wait and must be read again.
    unsettled: Vec<Arc<Watcher>>,
    /// Revision and status at the last pass.
    passed: Option<(u64, AdmissionStatus)>,
    rests_until: Instant,
    snapshot_at: Option<Instant>,
    snapshot: Option<Arc<PublicSnapshot>>,
}

impl ReplicaUpdater {
    pub(crate) fn new(engine: Arc<Engine>, replica: Arc<LineReplica>) -> Self {
        let now = Instant::now();
        Self {
            engine,
            replica,
            is_loaded: false,
            has_diverged: false,
            current: None,
            is_outdated: true,
            log_id: None,
            log_paused_until: now,
            early: BTreeMap::new(),
            gap_since: None,
            lagging_since: None,
            last_lag: None,
            slots: Vec::new(),
            ended: Some(HashSet::new()),
            unsettled: Vec::new(),
            passed: None,
            rests_until: now,
            snapshot_at: None,
            snapshot: None,
        }
    }

    /// Completes once a change has been missing for 60 ms; never while none is missing.
    pub(crate) async fn gap_is_old(&self) {
        match self.gap_since {
            Some(since) => sleep_until(since + GAP_TIMEOUT).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the next round may begin.
    pub(crate) async fn rest(&self) {
        sleep_until(self.rests_until).await;
    }

    /// Records that the copy lags behind the line.
    pub(crate) fn set_lagging(&mut self) {
        self.lagging_since.get_or_insert_with(Instant::now);
    }

    /// Returns the present lag, or the last one if it is longer and ended less than 6 s ago.
    fn lag(&self) -> Duration {
        let now = self.lagging_since.map_or(Duration::ZERO, |since| since.elapsed());
        let last = self.last_lag.filter(|(_, end)| end.elapsed() < LAG_SHOWN);
        now.max(last.map_or(Duration::ZERO, |(lag, _)| lag))
    }

    fn set_up_to_date(&mut self) {
        if let Some(since) = self.lagging_since.take() {
            self.last_lag = Some((since.elapsed(), Instant::now()));
        }
    }

    /// Applies what is new and notifies the watchers. A poll also reads the queue from Postgres, to find lost changes.
    pub(crate) async fn round(&mut self, is_poll: bool) -> Result<(), Error> {
        if !self.is_loaded {
            self.load().await?;
        }
        self.catch_up().await?;
        if is_poll || self.is_outdated {
            self.refresh_queue().await?;
        }
        match self.gap_since {
            Some(_) => self.set_lagging(),
            None => self.set_up_to_date(),
        }
        let streams = u64::try_from(self.replica.streams()).unwrap_or(u64::MAX);
        self.engine.viewers.set_streams(self.replica.event_id, streams, self.lag());
        self.renew_snapshot().await;
        self.publish_state();
        let (has_sent, worked) = self.pass().await?;
        // A pass that sent nothing need not delay the next message.
        let least = if has_sent { self.engine.watch_config.update_interval } else { Duration::ZERO };
        self.rests_until = Instant::now() + least.max(worked.saturating_mul(REST_TIMES));
        Ok(())
    }

    /// Reads the queue and compares the copy with the counters of the line.
    async fn refresh_queue(&mut self) -> Result<(), Error> {
        let engine = &self.engine;
        let current = queues::read(&engine.stores.postgres, self.replica.event_id, &engine.defaults).await?;
        self.is_outdated = false;
        let (revision, waiting) = self.copied();
        if current.line.revision > revision {
            self.set_lagging();
            // The log lags, or has lost a record.
            self.catch_up_from_postgres().await?;
        } else if (current.line.revision, current.line.waiting_count) != (revision, waiting) {
            // The counters were read after every applied change, so a copy that is ahead or has another count is wrong.
            self.reload().await?;
        }
        self.current = Some(current);
        Ok(())
    }

    /// Reads the whole line.
    async fn load(&mut self) -> Result<(), Error> {
        let (engine, event_id) = (&self.engine, self.replica.event_id);
        // The log position comes first, so that records appended during the load are not skipped.
        self.log_id = engine.log.last_id(event_id).await.ok();
        let begun = Instant::now();
        let copy = line_copies::load(&engine.stores.postgres, event_id).await?;
        let (revision, waiting) = (copy.revision(), copy.index().len());
        metrics::line_loaded(begun.elapsed());
        tracing::info!(%event_id, revision, waiting, elapsed = ?begun.elapsed(), "line loaded from postgres");
        *self.replica.copy.write() = copy;
        self.is_loaded = true;
        self.has_diverged = false;
        self.early.clear();
        self.gap_since = None;
        // Turns and the queue may have changed without a record.
        self.ended = None;
        self.is_outdated = true;
        Ok(())
    }

    /// Applies this pod's own changes and those in the log.
    async fn catch_up(&mut self) -> Result<(), Error> {
        for change in self.replica.take_local_changes() {
            self.keep_early(change);
        }
        self.apply_early();
        self.read_log().await;
        let is_old = self.gap_since.is_some_and(|since| since.elapsed() >= GAP_TIMEOUT);
        if self.has_diverged {
            return self.reload().await;
        }
        if is_old || self.early.len() >= EARLY_MAX {
            self.catch_up_from_postgres().await?;
        }
        Ok(())
    }

    fn keep_early(&mut self, change: LineChange) {
        if change.revision > self.replica.copy.read().revision() && self.early.len() < EARLY_MAX {
            self.early.insert(change.revision, change);
        }
    }

    async fn read_log(&mut self) {
        let event_id = self.replica.event_id;
        if self.log_paused_until > Instant::now() {
            return;
        }
        loop {
            let after = self.log_id.clone().unwrap_or_else(|| move_log::START.to_owned());
            match self.engine.log.after(event_id, &after).await {
                Ok(records) if records.is_empty() => return,
                Ok(records) => {
                    for (id, change) in records {
                        self.log_id = Some(id);
                        if let Some(change) = change {
                            self.keep_early(change);
                        }
                    }
                    self.apply_early();
                }
                Err(error) => {
                    tracing::debug!(%event_id, error = %Chain(&error), "failed to read the move log, pausing its reads for 1 s");
                    self.log_paused_until = Instant::now() + LOG_PAUSE;
                    return;
                }
            }
        }
    }

    /// Applies the kept changes up to the first gap.
    fn apply_early(&mut self) {
        let replica = Arc::clone(&self.replica);
        let mut copy = replica.copy.write();
        while let Some(first) = self.early.first_entry() {
            match copy.apply(first.get()) {
                ApplyOutcome::Gap => {
                    self.gap_since.get_or_insert_with(Instant::now);
                    return;
                }
                ApplyOutcome::Known => {
                    first.remove();
                }
                outcome @ (ApplyOutcome::Applied | ApplyOutcome::Diverged) => {
                    let change = first.remove();
                    self.is_outdated |= change.is_controlled;
                    if let Some(ended) = &mut self.ended {
                        ended.extend(change.ended);
                    }
                    self.has_diverged |= outcome == ApplyOutcome::Diverged;
                }
            }
        }
        self.gap_since = None;
    }

    /// Reads the missing changes from Postgres.
    async fn catch_up_from_postgres(&mut self) -> Result<(), Error> {
        let (engine, event_id) = (Arc::clone(&self.engine), self.replica.event_id);
        let revision = self.replica.copy.read().revision();
        // The log position comes first, so that records appended meanwhile are not skipped. It is read again because a wiped
        // log may restart with lower ids.
        if self.log_paused_until <= Instant::now() {
            self.log_id = engine.log.last_id(event_id).await.ok();
        }
        let Some(change) = line_copies::since(&engine.stores.postgres, event_id, revision).await? else {
            return self.reload().await;
        };
        metrics::line_repaired();
        // Every change kept so far was committed earlier, so `change` contains it.
        self.early.clear();
        if self.replica.copy.write().apply_merged(&change) == ApplyOutcome::Diverged {
            return self.reload().await;
        }
        self.is_outdated = true;
        if let Some(ended) = &mut self.ended {
            ended.extend(change.ended);
        }
        self.gap_since = None;
        Ok(())
    }

    /// Returns the revision and the waiting count of the copy.
    fn copied(&self) -> (u64, u64) {
        let copy = self.replica.copy.read();
        (copy.revision(), copy.index().len())
    }

    async fn reload(&mut self) -> Result<(), Error> {
        tracing::warn!(event_id = %self.replica.event_id, "line replica differs from postgres, loading it again");
        self.load().await
    }

    async fn renew_snapshot(&mut self) {
        let is_fresh = |taken: Instant| taken.elapsed() < self.engine.watch_config.snapshot_interval / 2;
        if self.snapshot_at.is_some_and(is_fresh) {
            return;
        }
        match self.engine.snapshot(self.replica.event_id).await {
            Ok(snapshot) => {
                self.snapshot = Some(snapshot);
                self.snapshot_at = Some(Instant::now());
            }
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "failed to take a snapshot, retrying next round")
            }
        }
    }

    /// Publishes the present state to the watchers and to callers who wait for a revision.
    fn publish_state(&mut self) {
        let Some(current) = &mut self.current else { return };
        let copy = self.replica.copy.read();
        if copy.revision() >= current.line.revision {
            current.line.revision = copy.revision();
            current.line.last_seq = copy.last_seq();
            current.line.last_admitted_seq = copy.index().admitted_seq();
            current.line.waiting_count = copy.index().len();
            current.line.last_fencing_number = copy.admitted_count();
        }
        self.replica.set_public(PublicState { current: current.clone(), snapshot: self.snapshot.clone() });
        let revision = copy.revision();
        self.replica.revision.send_if_modified(|known| known.replace(revision) != Some(revision));
    }

    /// Visits every watcher once. Returns whether a message became pending, and the time that the pass took.
    async fn pass(&mut self) -> Result<(bool, Duration), Error> {
        let mut worked = Duration::ZERO;
        let Some(public) = self.replica.public() else { return Ok((false, worked)) };
        let QueueAndLine { queue, line, .. } = &public.current;
        let now = self.engine.replicas.ticks.now();
        self.take_arrivals();
        let ended = self.ended.replace(HashSet::new());
        let window = (queue.policy.mode == QueueMode::Windowed).then(|| Window::of(&queue.policy, line));
        let is_ended = |seq: u64| match window {
            Some(window) => window.state(seq) == WindowedEntryState::Expired,
            None => ended.as_ref().is_none_or(|ended| ended.contains(&seq)),
        };
        let status = AdmissionStatus::of(queue);
        let before = self.passed.replace((line.revision, status));
        let has_moved = before.is_none_or(|(revision, _)| revision != line.revision);
        let has_status_changed = before.is_none_or(|(_, before)| before != status);
        let intervals = Intervals::new(&self.engine.watch_config, queue.policy.idle_timeout);
        let mut result = PassResult::default();
        let mut next = 0;
        while next < self.slots.len() {
            let begun = Instant::now();
            {
                let copy = &self.replica.copy.read();
                let is_ended = &is_ended;
                let pass =
                    FanoutPass { copy, queue, intervals, now, has_moved, has_status_changed, is_ended };
                pass.run(&mut self.slots, next..next.saturating_add(CHUNK), &mut result);
            }
            worked = worked.saturating_add(begun.elapsed());
            next = next.saturating_add(CHUNK);
            tokio::task::yield_now().await;
        }
        result.count();
        if self.replica.is_tracked() {
            self.engine.heartbeats.record_open(self.replica.event_id, result.seen);
        }
        self.unsettled.append(&mut result.unsettled);
        let has_sent = result.has_pending || !self.unsettled.is_empty();
        match queue.policy.mode {
            QueueMode::Tracked => self.settle_tracked(line.revision, now).await?,
            QueueMode::Windowed => self.settle_windowed(&public.current, now),
        }
        Ok((has_sent, worked))
    }

    fn take_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *self.replica.arrivals.lock());
        // A turn may have ended after the entry was read.
        let turns = arrivals.iter().filter(|slot| !slot.is_waiting());
        self.unsettled.extend(turns.map(|slot| Arc::clone(slot.watcher())));
        self.slots.extend(arrivals);
    }

    /// Computes the new state of the unsettled entries of a WINDOWED queue.
    fn settle_windowed(&mut self, current: &QueueAndLine, now: Tick) {
        for watcher in self.unsettled.drain(..) {
            let entry = WindowedEntry {
                event_id: self.replica.event_id,
                customer_id: watcher.customer_id,
                seq: watcher.seq,
                join_time: current.now,
            };
            let (entry, _) = entry.entry(&current.queue, &current.line, current.now);
            if let Some(entry) = WatchedEntry::of(&entry) {
                watcher.set_entry(entry, current.line.revision, now);
            }
        }
    }

    /// Reads the new state of the unsettled entries. Those that fail stay unsettled until the next round.
    async fn settle_tracked(&mut self, revision: u64, now: Tick) -> Result<(), Error> {
        while !self.unsettled.is_empty() {
            let first = self.unsettled.len().saturating_sub(LOOK_UP_MAX);
            let watchers = self.unsettled.get(first..).unwrap_or_default();
            let ids: Vec<EntryId> = watchers.iter().map(|watcher| watcher.entry_id).collect();
            let found = entries::by_ids(&self.engine.stores.postgres, &ids).await?;
            let found: HashMap<EntryId, WatchedEntry> =
                found.iter().filter_map(|entry| Some((entry.entry_id, WatchedEntry::of(entry)?))).collect();
            for watcher in watchers {
                if let Some(entry) = found.get(&watcher.entry_id) {
                    watcher.set_entry(*entry, revision, now);
                }
            }
            self.unsettled.truncate(first);
        }
        Ok(())
    }
}
