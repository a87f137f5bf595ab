//! The work of a follower: keep the copy true, and tell the watchers whom a change concerns.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use onsale_kit::error::Chain;
use onsale_types::EntryId;
use tokio::time::{Instant, sleep_until};

use super::{
    App,
    fanout::{CHUNK, FanoutPass, Intervals, PassResult, Tick, Watcher, WatcherSlot},
    follow::{LineReplica, PublicState},
    lock, read,
    snapshot::PublicSnapshot,
    write,
};
use crate::{
    domain::{
        line_change::{ApplyOutcome, LineChange},
        policy::QueueMode,
        watcher::{AdmissionStatus, WatchedEntry},
        windowed_entry::{Window, WindowedEntry, WindowedEntryState},
    },
    error::Error,
    metrics,
    store::{
        entries, line_copies, move_log,
        queues::{self, QueueAndLine},
    },
};

/// How long a missing step may be on its way before Postgres is asked for it.
const GAP_PATIENCE: Duration = Duration::from_millis(60);

/// Steps kept that came before the one they follow on; beyond, Postgres is asked.
const EARLY_MAX: usize = 1_024;

/// How long the log is not asked after it could not be read.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// How long a lag that was made up for is still reported: longer than reports are apart.
const LAG_SHOWN: Duration = Duration::from_secs(6);

/// Entries looked up in one statement.
const LOOK_UP_MAX: usize = 1_000;

/// Passes may take this share of the time: after one that took a while, the next one waits so many times as long.
const REST_TIMES: u32 = 4;

pub(crate) struct ReplicaUpdater {
    app: Arc<App>,
    followed: Arc<LineReplica>,
    is_loaded: bool,
    /// A step showed that the copy is wrong.
    is_wrong: bool,
    /// As read last, at most a look ago.
    current: Option<QueueAndLine>,
    /// State or policy may have changed since.
    is_outdated: bool,
    /// The last record read.
    log_id: Option<String>,
    log_rests_until: Instant,
    /// Steps that came before the one they follow on.
    early: BTreeMap<u64, LineChange>,
    gap_since: Option<Instant>,
    /// Since when the copy is known to be behind.
    behind_since: Option<Instant>,
    /// How far behind it was when it last caught up, and when that was.
    was_behind: Option<(Duration, Instant)>,
    slots: Vec<WatcherSlot>,
    /// Seqs whose turns ended since the last pass; none: any may have.
    ended: Option<HashSet<u64>>,
    /// Watchers whose entries do not wait, and of whom it has to be looked up what became.
    unsettled: Vec<Arc<Watcher>>,
    /// The revision of the last pass, and how the queue went then.
    passed: Option<(u64, AdmissionStatus)>,
    rests_until: Instant,
    snapshot_at: Option<Instant>,
    snapshot: Option<Arc<PublicSnapshot>>,
}

impl ReplicaUpdater {
    pub(crate) fn new(app: Arc<App>, followed: Arc<LineReplica>) -> Self {
        let now = Instant::now();
        Self {
            app,
            followed,
            is_loaded: false,
            is_wrong: false,
            current: None,
            is_outdated: true,
            log_id: None,
            log_rests_until: now,
            early: BTreeMap::new(),
            gap_since: None,
            behind_since: None,
            was_behind: None,
            slots: Vec::new(),
            ended: Some(HashSet::new()),
            unsettled: Vec::new(),
            passed: None,
            rests_until: now,
            snapshot_at: None,
            snapshot: None,
        }
    }

    /// Done when a missing step has been on its way for too long.
    pub(crate) async fn gap_is_old(&self) {
        match self.gap_since {
            Some(since) => sleep_until(since + GAP_PATIENCE).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the next round may begin.
    pub(crate) async fn rest(&self) {
        sleep_until(self.rests_until).await;
    }

    /// Nothing could be learned.
    pub(crate) fn fell_behind(&mut self) {
        self.behind_since.get_or_insert_with(Instant::now);
    }

    /// How far the copy is behind, or was a moment ago.
    fn lag(&self) -> Duration {
        let now = self.behind_since.map_or(Duration::ZERO, |since| since.elapsed());
        let before = self.was_behind.filter(|(_, when)| when.elapsed() < LAG_SHOWN);
        now.max(before.map_or(Duration::ZERO, |(lag, _)| lag))
    }

    fn caught_up(&mut self) {
        if let Some(since) = self.behind_since.take() {
            self.was_behind = Some((since.elapsed(), Instant::now()));
        }
    }

    /// Learns what is new and tells it. `is_look`: whether or not anybody said that there is something.
    pub(crate) async fn round(&mut self, is_look: bool) -> Result<(), Error> {
        if !self.is_loaded {
            self.load().await?;
        }
        self.catch_up().await?;
        if is_look || self.is_outdated {
            let app = &self.app;
            let current = queues::read(&app.stores.postgres, self.followed.event_id, &app.defaults).await?;
            self.is_outdated = false;
            let (revision, waiting) = self.copied();
            if current.line.revision > revision {
                self.fell_behind();
                // The log is behind, or has lost something.
                self.mend().await?;
            } else if (current.line.revision, current.line.waiting_count) != (revision, waiting) {
                // Read after every step seen: a copy that is ahead of it, or counts otherwise, is wrong.
                self.reload().await?;
            }
            self.current = Some(current);
        }
        match self.gap_since {
            Some(_) => self.fell_behind(),
            None => self.caught_up(),
        }
        let streams = u64::try_from(self.followed.streams()).unwrap_or(u64::MAX);
        self.app.viewers.set_streams(self.followed.event_id, streams, self.lag());
        self.renew_snapshot().await;
        self.show();
        let (has_told, worked) = self.pass().await?;
        // Only what was told is a reason to wait before telling more.
        let least = if has_told { self.app.watching.update_interval } else { Duration::ZERO };
        self.rests_until = Instant::now() + least.max(worked.saturating_mul(REST_TIMES));
        Ok(())
    }

    /// Reads the whole line.
    async fn load(&mut self) -> Result<(), Error> {
        let (app, event_id) = (&self.app, self.followed.event_id);
        // Before the line: what is appended while it is read is not missed.
        self.log_id = app.log.last_id(event_id).await.ok();
        let begun = Instant::now();
        let copy = line_copies::load(&app.stores.postgres, event_id).await?;
        let (revision, waiting) = (copy.revision(), copy.index().len());
        metrics::line_loaded(begun.elapsed());
        tracing::info!(%event_id, revision, waiting, elapsed = ?begun.elapsed(), "line read from postgres");
        *write(&self.followed.copy) = copy;
        self.is_loaded = true;
        self.is_wrong = false;
        self.early.clear();
        self.gap_since = None;
        // What happened to turns and to the queue meanwhile is not known.
        self.ended = None;
        self.is_outdated = true;
        Ok(())
    }

    /// Follows this pod's own steps and those in the log.
    async fn catch_up(&mut self) -> Result<(), Error> {
        for step in self.followed.take_local_changes() {
            self.take(step);
        }
        self.follow_early();
        self.read_log().await;
        let is_old = self.gap_since.is_some_and(|since| since.elapsed() >= GAP_PATIENCE);
        if self.is_wrong {
            return self.reload().await;
        }
        if is_old || self.early.len() >= EARLY_MAX {
            self.mend().await?;
        }
        Ok(())
    }

    fn take(&mut self, step: LineChange) {
        if step.revision > read(&self.followed.copy).revision() && self.early.len() < EARLY_MAX {
            self.early.insert(step.revision, step);
        }
    }

    async fn read_log(&mut self) {
        let event_id = self.followed.event_id;
        if self.log_rests_until > Instant::now() {
            return;
        }
        loop {
            let after = self.log_id.clone().unwrap_or_else(|| move_log::START.to_owned());
            match self.app.log.after(event_id, &after).await {
                Ok(records) if records.is_empty() => return,
                Ok(records) => {
                    for (id, step) in records {
                        self.log_id = Some(id);
                        if let Some(step) = step {
                            self.take(step);
                        }
                    }
                    self.follow_early();
                }
                Err(error) => {
                    tracing::debug!(%event_id, error = %Chain(&error), "the move log cannot be read");
                    self.log_rests_until = Instant::now() + LOG_PAUSE;
                    return;
                }
            }
        }
    }

    /// Follows the steps that follow on each other.
    fn follow_early(&mut self) {
        let followed = Arc::clone(&self.followed);
        let mut copy = write(&followed.copy);
        while let Some(first) = self.early.first_entry() {
            match copy.follow(first.get()) {
                ApplyOutcome::Gap => {
                    self.gap_since.get_or_insert_with(Instant::now);
                    return;
                }
                ApplyOutcome::Known => {
                    first.remove();
                }
                applied @ (ApplyOutcome::Moved | ApplyOutcome::Wrong) => {
                    let step = first.remove();
                    self.is_outdated |= step.is_controlled;
                    if let Some(ended) = &mut self.ended {
                        ended.extend(step.ended);
                    }
                    self.is_wrong |= applied == ApplyOutcome::Wrong;
                }
            }
        }
        self.gap_since = None;
    }

    /// Asks Postgres for what is missing.
    async fn mend(&mut self) -> Result<(), Error> {
        let (app, event_id) = (Arc::clone(&self.app), self.followed.event_id);
        let revision = read(&self.followed.copy).revision();
        // Before Postgres: what is appended meanwhile is not missed. A wiped log begins anew, maybe with lower ids.
        if self.log_rests_until <= Instant::now() {
            self.log_id = app.log.last_id(event_id).await.ok();
        }
        let Some(step) = line_copies::since(&app.stores.postgres, event_id, revision).await? else {
            return self.reload().await;
        };
        metrics::mended();
        // Every step seen before was committed before: Postgres has told of it, or it never was.
        self.early.clear();
        if write(&self.followed.copy).jump(&step) == ApplyOutcome::Wrong {
            return self.reload().await;
        }
        self.is_outdated = true;
        if let Some(ended) = &mut self.ended {
            ended.extend(step.ended);
        }
        self.gap_since = None;
        Ok(())
    }

    /// The copy's revision, and how many wait by it.
    fn copied(&self) -> (u64, u64) {
        let copy = read(&self.followed.copy);
        (copy.revision(), copy.index().len())
    }

    async fn reload(&mut self) -> Result<(), Error> {
        tracing::warn!(event_id = %self.followed.event_id, "the copy of a line is read anew");
        self.load().await
    }

    async fn renew_snapshot(&mut self) {
        let is_fresh = |taken: Instant| taken.elapsed() < self.app.watching.snapshot_interval / 2;
        if self.snapshot_at.is_some_and(is_fresh) {
            return;
        }
        match self.app.snapshot(self.followed.event_id).await {
            Ok(snapshot) => {
                self.snapshot = Some(snapshot);
                self.snapshot_at = Some(Instant::now());
            }
            Err(error) => tracing::debug!(error = %Chain(&error), "failed to take a snapshot"),
        }
    }

    /// Shows what is true now to the watchers, and to whoever waits for it.
    fn show(&mut self) {
        let Some(current) = &mut self.current else { return };
        let copy = read(&self.followed.copy);
        if copy.revision() >= current.line.revision {
            current.line.revision = copy.revision();
            current.line.last_seq = copy.last_seq();
            current.line.last_admitted_seq = copy.index().admitted_seq();
            current.line.waiting_count = copy.index().len();
            current.line.last_fencing_number = copy.admitted_count();
        }
        self.followed.publish(PublicState { current: current.clone(), snapshot: self.snapshot.clone() });
        let revision = copy.revision();
        self.followed.revision.send_if_modified(|known| known.replace(revision) != Some(revision));
    }

    /// Looks at every watcher once; answers whether anybody was told anything, and how long the looking took.
    async fn pass(&mut self) -> Result<(bool, Duration), Error> {
        let mut worked = Duration::ZERO;
        let Some(public) = self.followed.public() else { return Ok((false, worked)) };
        let QueueAndLine { queue, line, .. } = &public.current;
        let now = self.app.followers.ticks.now();
        self.take_arrivals();
        let ended = self.ended.replace(HashSet::new());
        let window = (queue.policy.mode == QueueMode::Windowed).then(|| Window::of(&queue.policy, line));
        let is_ended = |seq: u64| match window {
            Some(window) => window.state(seq) == WindowedEntryState::Expired,
            None => ended.as_ref().is_none_or(|ended| ended.contains(&seq)),
        };
        let mood = AdmissionStatus::of(queue);
        let before = self.passed.replace((line.revision, mood));
        let is_moved = before.is_none_or(|(revision, _)| revision != line.revision);
        let is_controlled = before.is_none_or(|(_, before)| before != mood);
        let rhythm = Intervals::new(&self.app.watching, queue.policy.idle_timeout);
        let mut findings = PassResult::default();
        let mut next = 0;
        while next < self.slots.len() {
            let begun = Instant::now();
            {
                let copy = &read(&self.followed.copy);
                let pass =
                    FanoutPass { copy, queue, rhythm, now, is_moved, is_controlled, is_ended: &is_ended };
                pass.over(&mut self.slots, next..next.saturating_add(CHUNK), &mut findings);
            }
            worked = worked.saturating_add(begun.elapsed());
            next = next.saturating_add(CHUNK);
            tokio::task::yield_now().await;
        }
        findings.count();
        if self.followed.is_tracked() {
            self.app.seen.record_open(self.followed.event_id, findings.seen);
        }
        self.unsettled.append(&mut findings.moved);
        let has_told = findings.has_told || !self.unsettled.is_empty();
        match queue.policy.mode {
            QueueMode::Tracked => self.settle(line.revision, now).await?,
            QueueMode::Windowed => self.settle_tickets(&public.current, now),
        }
        Ok((has_told, worked))
    }

    /// Tells the holders of tickets that do not wait what they are worth.
    fn settle_tickets(&mut self, current: &QueueAndLine, now: Tick) {
        for watcher in self.unsettled.drain(..) {
            let ticket = WindowedEntry {
                event_id: self.followed.event_id,
                customer_id: watcher.customer_id,
                seq: watcher.seq,
                join_time: current.now,
            };
            let (entry, _) = ticket.entry(&current.queue, &current.line, current.now);
            if let Some(place) = WatchedEntry::of(&entry) {
                watcher.stand(place, current.line.revision, now);
            }
        }
    }

    fn take_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *lock(&self.followed.arrivals));
        // A turn may have ended between the look at the entry and now.
        let turns = arrivals.iter().filter(|slot| !slot.is_waiting());
        self.unsettled.extend(turns.map(|slot| Arc::clone(slot.watcher())));
        self.slots.extend(arrivals);
    }

    /// Tells those who are not in line any more what became of them. Who cannot be looked up now is so the next time.
    async fn settle(&mut self, revision: u64, now: Tick) -> Result<(), Error> {
        while !self.unsettled.is_empty() {
            let first = self.unsettled.len().saturating_sub(LOOK_UP_MAX);
            let watchers = self.unsettled.get(first..).unwrap_or_default();
            let ids: Vec<EntryId> = watchers.iter().map(|watcher| watcher.entry_id).collect();
            let found = entries::by_ids(&self.app.stores.postgres, &ids).await?;
            let places: HashMap<EntryId, WatchedEntry> =
                found.iter().filter_map(|entry| Some((entry.entry_id, WatchedEntry::of(entry)?))).collect();
            for watcher in watchers {
                if let Some(place) = places.get(&watcher.entry_id) {
                    watcher.stand(*place, revision, now);
                }
            }
            self.unsettled.truncate(first);
        }
        Ok(())
    }
}
