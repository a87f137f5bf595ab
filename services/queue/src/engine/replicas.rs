//! Replicas of lines in memory: one per queue that this pod's streams watch. A replica learns of each change once for all of
//! its watchers: from this pod's own commits, from the move log, and from Postgres if a change is missing. An announcement
//! starts a round at once; without one a round starts every `look_interval`, so a lost announcement only adds delay.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
};
use onsale_types::EventId;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior},
};

use super::{
    Engine,
    fanout::{Ticks, WatcherSlot},
    replica_updater::ReplicaUpdater,
};
use crate::{
    domain::{
        line_change::{LineChange, LineCopy},
        policy::QueueMode,
        queue::QueueAndLine,
        snapshot::PublicSnapshot,
        watcher::QueueView,
    },
    error::Error,
    store::queues,
};

/// Largest number of this pod's changes that wait for the updater. Further ones are dropped and read from Postgres.
const LOCAL_CHANGES_MAX: usize = 4_096;

/// Time for which a replica is kept after its last stream has closed, because many clients reconnect at once.
const LINGER: Duration = Duration::from_secs(30);

const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// The replicas of this pod.
#[derive(Debug)]
pub(crate) struct LineReplicas {
    events: Mutex<HashMap<EventId, Arc<LineReplica>>>,
    pub(crate) ticks: Ticks,
}

impl Default for LineReplicas {
    fn default() -> Self {
        Self { events: Mutex::default(), ticks: Ticks::new() }
    }
}

/// The replica of one line, with the watchers who have just arrived.
#[derive(Debug)]
pub(crate) struct LineReplica {
    pub(crate) event_id: EventId,
    /// Written by the updater only.
    pub(crate) copy: RwLock<LineCopy>,
    public: RwLock<Option<Arc<PublicState>>>,
    /// Revision of the copy; `None` until the line has been loaded.
    pub(crate) revision: watch::Sender<Option<u64>>,
    local_changes: Mutex<Vec<LineChange>>,
    /// Watchers that no pass has seen yet.
    pub(crate) arrivals: Mutex<Vec<WatcherSlot>>,
    streams: AtomicUsize,
    nudge: Notify,
}

/// A replica in use by a stream. The updater runs as long as one of these exists.
#[derive(Debug)]
pub(crate) struct ReplicaHandle(Arc<LineReplica>);

impl ReplicaHandle {
    /// Call it only while the map of replicas is locked, so that the updater cannot stop meanwhile.
    fn new(replica: &Arc<LineReplica>) -> Self {
        replica.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(replica))
    }
}

impl Deref for ReplicaHandle {
    type Target = LineReplica;

    fn deref(&self) -> &LineReplica {
        &self.0
    }
}

impl Drop for ReplicaHandle {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a queue that all of its watchers share.
#[derive(Clone, Debug)]
pub(crate) struct PublicState {
    /// The queue and its line, at the revision of the copy.
    pub(crate) current: QueueAndLine,
    /// The last public snapshot; `None` until the first one succeeds.
    pub(crate) snapshot: Option<Arc<PublicSnapshot>>,
}

impl PublicState {
    /// Returns the state as a watcher needs it.
    pub(crate) fn view(&self) -> QueueView<'_> {
        QueueView { queue: &self.current.queue, line: &self.current.line }
    }
}

impl LineReplica {
    fn new(event_id: EventId) -> Arc<Self> {
        let (revision, _) = watch::channel(None);
        Arc::new(Self {
            event_id,
            copy: RwLock::default(),
            public: RwLock::default(),
            revision,
            local_changes: Mutex::default(),
            arrivals: Mutex::default(),
            streams: AtomicUsize::new(0),
            nudge: Notify::new(),
        })
    }

    /// Returns the state of the queue; `None` until the updater's first round.
    pub(crate) fn public(&self) -> Option<Arc<PublicState>> {
        self.public.read().clone()
    }

    pub(crate) fn set_public(&self, public: PublicState) {
        *self.public.write() = Some(Arc::new(public));
    }

    /// Returns true if the queue stores its entries.
    pub(crate) fn is_tracked(&self) -> bool {
        let public = self.public.read();
        public.as_ref().is_some_and(|public| public.current.queue.policy.mode == QueueMode::Tracked)
    }

    /// Waits until the copy has reached `revision`; returns false if that takes longer than `timeout`.
    pub(crate) async fn reach(&self, revision: u64, timeout: Duration) -> bool {
        let is_reached = |copy: &Option<u64>| copy.is_some_and(|copy| copy >= revision);
        if is_reached(&self.revision.borrow()) {
            return true;
        }
        self.nudge.notify_one();
        let mut reached = self.revision.subscribe();
        matches!(tokio::time::timeout(timeout, reached.wait_for(is_reached)).await, Ok(Ok(_)))
    }

    /// Returns the position of each of `seqs` that waits, or `None` if the copy has not reached `revision`.
    pub(crate) fn positions(&self, seqs: &[u64], revision: u64) -> Option<Vec<Option<u64>>> {
        let copy = self.copy.read();
        let is_current = self.revision.borrow().is_some() && copy.revision() >= revision;
        is_current.then(|| seqs.iter().map(|seq| copy.index().position(*seq)).collect())
    }

    /// Adds a watcher, which the next pass sees.
    pub(crate) fn enter(&self, slot: WatcherSlot) {
        self.arrivals.lock().push(slot);
    }

    /// Counts the streams that are open or being opened.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Takes the changes that this pod has committed.
    pub(crate) fn take_local_changes(&self) -> Vec<LineChange> {
        std::mem::take(&mut *self.local_changes.lock())
    }
}

impl LineReplicas {
    /// Returns the replica of a line if this pod has one.
    pub(crate) fn get(&self, event_id: EventId) -> Option<Arc<LineReplica>> {
        self.events.lock().get(&event_id).cloned()
    }

    /// Hands a change that this pod committed to its replica, which then need not wait for the move log.
    pub(crate) fn push_local_change(&self, event_id: EventId, change: LineChange) {
        let Some(replica) = self.get(event_id) else { return };
        let mut changes = replica.local_changes.lock();
        // A dropped change is a gap, which the updater reads from Postgres.
        if changes.len() < LOCAL_CHANGES_MAX {
            changes.push(change);
        }
        drop(changes);
        replica.nudge.notify_one();
    }
}

impl Engine {
    /// Returns the replica of a queue, which is created and kept up to date from now on if this pod has none.
    pub(crate) async fn open_replica(self: &Arc<Self>, event_id: EventId) -> Result<ReplicaHandle, Error> {
        if let Some(replica) = self.replicas.events.lock().get(&event_id) {
            return Ok(ReplicaHandle::new(replica));
        }
        // An unknown event must not cost a replica.
        queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let mut events = self.replicas.events.lock();
        if let Some(replica) = events.get(&event_id) {
            return Ok(ReplicaHandle::new(replica));
        }
        let replica = LineReplica::new(event_id);
        let handle = ReplicaHandle::new(&replica);
        events.insert(event_id, Arc::clone(&replica));
        self.tasks.spawn("queue follower", Arc::clone(self).run_updater(replica));
        Ok(handle)
    }

    /// Runs the updater of a replica. Not a `kit::worker`: a round also waits for the rest that the last pass earned, and
    /// starts 60 ms after a gap appeared.
    async fn run_updater(self: Arc<Self>, replica: Arc<LineReplica>) {
        let event_id = replica.event_id;
        let shutdown = self.tasks.token();
        let Ok(channel) = self.ranks.keys().moved(event_id) else { return };
        let mut hints = self.hints.subscribe(&channel);
        let mut polls = tokio::time::interval(self.watch_config.look_interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut backoff = Backoff::new(RETRY);
        let mut updater = ReplicaUpdater::new(Arc::clone(&self), Arc::clone(&replica));
        let mut watched_at = Instant::now();
        loop {
            let is_poll = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = polls.tick() => true,
                Some(_hint) = hints.next() => false,
                () = replica.nudge.notified() => false,
                () = updater.gap_is_old() => false,
            };
            // The first change after a pause is sent at once; changes that follow within the rest are sent together.
            updater.rest().await;
            // One round serves all hints that arrived meanwhile.
            while let Some(Some(_hint)) = hints.next().now_or_never() {}
            if replica.streams() > 0 {
                watched_at = Instant::now();
            } else if watched_at.elapsed() > LINGER && self.close_replica(&replica) {
                return;
            }
            match updater.round(is_poll).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    updater.set_lagging();
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to update a line replica, retrying after a backoff");
                    let pause = backoff.next_delay().unwrap_or(RETRY.max);
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// Removes a replica; returns false if a stream uses it again.
    fn close_replica(&self, replica: &LineReplica) -> bool {
        let mut events = self.replicas.events.lock();
        let is_unused = replica.streams() == 0;
        if is_unused {
            events.remove(&replica.event_id);
            self.viewers.set_streams(replica.event_id, 0, Duration::ZERO);
        }
        is_unused
    }
}
