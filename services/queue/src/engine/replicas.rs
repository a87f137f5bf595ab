//! One follower per queue that this pod's watchers look at. It keeps a copy of the line in memory and learns of changes
//! once, for all of them: from this pod's own commits, from the move log, and, where a step is missing, from Postgres. A
//! hint makes it look at once, and it looks every now and then in any case: a lost hint costs a moment, and never a fact.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Mutex, RwLock,
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
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior},
};

use super::{
    App,
    fanout::{Ticks, WatcherSlot},
    follower::ReplicaUpdater,
    lock, read,
    snapshot::PublicSnapshot,
    write,
};
use crate::{
    domain::{
        line_change::{LineChange, LineCopy},
        policy::QueueMode,
        watcher::QueueView,
    },
    error::Error,
    store::queues::{self, QueueAndLine},
};

/// Steps of this pod that wait for the follower; beyond, it reads Postgres.
const HANDED_MAX: usize = 4_096;

/// How long a line is followed after its last watcher has gone: many come back at once.
const LINGER: Duration = Duration::from_secs(30);

const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// The queues that are followed.
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

/// A queue that is followed.
#[derive(Debug)]
pub(crate) struct LineReplica {
    pub(crate) event_id: EventId,
    /// Written by the follower only.
    pub(crate) copy: RwLock<LineCopy>,
    public: RwLock<Option<Arc<PublicState>>>,
    /// The revision up to which the copy is true; none until it has been read.
    pub(crate) revision: watch::Sender<Option<u64>>,
    handed: Mutex<Vec<LineChange>>,
    /// Watchers whom the follower has not seen yet.
    pub(crate) arrivals: Mutex<Vec<WatcherSlot>>,
    streams: AtomicUsize,
    nudge: Notify,
}

/// A followed queue in the hand of somebody who needs it: as long as this is there, so is the follower.
#[derive(Debug)]
pub(crate) struct ReplicaHandle(Arc<LineReplica>);

impl ReplicaHandle {
    /// Only while the map of followed queues is locked: nobody may stop following meanwhile.
    fn new(followed: &Arc<LineReplica>) -> Self {
        followed.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(followed))
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

/// What is true of a queue, for all who watch it.
#[derive(Clone, Debug)]
pub(crate) struct PublicState {
    /// The queue and its line, as new as the copy.
    pub(crate) current: QueueAndLine,
    /// The public facts, as they were a while ago.
    pub(crate) snapshot: Option<Arc<PublicSnapshot>>,
}

impl PublicState {
    /// As a watcher sees it.
    pub(crate) fn scene(&self) -> QueueView<'_> {
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
            handed: Mutex::default(),
            arrivals: Mutex::default(),
            streams: AtomicUsize::new(0),
            nudge: Notify::new(),
        })
    }

    /// What is true of the queue; none until the follower has looked.
    pub(crate) fn public(&self) -> Option<Arc<PublicState>> {
        read(&self.public).clone()
    }

    pub(crate) fn publish(&self, public: PublicState) {
        *write(&self.public) = Some(Arc::new(public));
    }

    /// Whether its customers are known one by one.
    pub(crate) fn is_tracked(&self) -> bool {
        let public = read(&self.public);
        public.as_ref().is_some_and(|public| public.current.queue.policy.mode == QueueMode::Tracked)
    }

    /// Waits until the copy is true up to `revision`; answers whether it is, before `patience` is over.
    pub(crate) async fn reach(&self, revision: u64, patience: Duration) -> bool {
        let is_there = |copy: &Option<u64>| copy.is_some_and(|copy| copy >= revision);
        if is_there(&self.revision.borrow()) {
            return true;
        }
        self.nudge.notify_one();
        let mut reached = self.revision.subscribe();
        matches!(tokio::time::timeout(patience, reached.wait_for(is_there)).await, Ok(Ok(_)))
    }

    /// The positions of those of `seqs` who wait, unless the copy is behind `revision`.
    pub(crate) fn positions(&self, seqs: &[u64], revision: u64) -> Option<Vec<Option<u64>>> {
        let copy = read(&self.copy);
        let is_true = self.revision.borrow().is_some() && copy.revision() >= revision;
        is_true.then(|| seqs.iter().map(|seq| copy.index().position(*seq)).collect())
    }

    /// One more watcher. Its slot is seen by the next pass.
    pub(crate) fn enter(&self, slot: WatcherSlot) {
        lock(&self.arrivals).push(slot);
    }

    /// Open streams, and those that are being opened.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Steps that this pod has committed.
    pub(crate) fn take_local_changes(&self) -> Vec<LineChange> {
        std::mem::take(&mut *lock(&self.handed))
    }
}

impl LineReplicas {
    /// A queue, if it is followed here.
    pub(crate) fn get(&self, event_id: EventId) -> Option<Arc<LineReplica>> {
        lock(&self.events).get(&event_id).cloned()
    }

    /// This pod has committed a step: its follower need not wait for the log.
    pub(crate) fn push_local_change(&self, event_id: EventId, step: LineChange) {
        let Some(followed) = self.get(event_id) else { return };
        let mut handed = lock(&followed.handed);
        // What is dropped is a gap, and read from Postgres.
        if handed.len() < HANDED_MAX {
            handed.push(step);
        }
        drop(handed);
        followed.nudge.notify_one();
    }
}

impl App {
    /// Follows a queue, if it is one.
    pub(crate) async fn follow(self: &Arc<Self>, event_id: EventId) -> Result<ReplicaHandle, Error> {
        if let Some(followed) = lock(&self.followers.events).get(&event_id) {
            return Ok(ReplicaHandle::new(followed));
        }
        // Nobody can make us follow what is not there.
        queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let mut events = lock(&self.followers.events);
        if let Some(followed) = events.get(&event_id) {
            return Ok(ReplicaHandle::new(followed));
        }
        let followed = LineReplica::new(event_id);
        let following = ReplicaHandle::new(&followed);
        events.insert(event_id, Arc::clone(&followed));
        self.tasks.spawn("queue follower", Arc::clone(self).run_follower(followed));
        Ok(following)
    }

    async fn run_follower(self: Arc<Self>, followed: Arc<LineReplica>) {
        let event_id = followed.event_id;
        let shutdown = self.tasks.token();
        let Ok(channel) = self.ranks.keys().moved(event_id) else { return };
        let mut hints = self.hints.subscribe(&channel);
        let mut attempts = tokio::time::interval(self.watching.look_interval);
        attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut backoff = Backoff::new(RETRY);
        let mut follower = ReplicaUpdater::new(Arc::clone(&self), Arc::clone(&followed));
        let mut watched_at = Instant::now();
        loop {
            let is_look = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = attempts.tick() => true,
                Some(_hint) = hints.next() => false,
                () = followed.nudge.notified() => false,
                () = follower.gap_is_old() => false,
            };
            // Changes of a moment are told together; the first after a rest is told at once.
            follower.rest().await;
            // One round serves every hint that came meanwhile.
            while let Some(Some(_hint)) = hints.next().now_or_never() {}
            if followed.streams() > 0 {
                watched_at = Instant::now();
            } else if watched_at.elapsed() > LINGER && self.stop_following(&followed) {
                return;
            }
            match follower.round(is_look).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    follower.fell_behind();
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to look at a followed queue");
                    let pause = backoff.next_delay().unwrap_or(RETRY.max);
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// Whether nobody watches any more; then the next who does begins anew.
    fn stop_following(&self, followed: &LineReplica) -> bool {
        let mut events = lock(&self.followers.events);
        let is_idle = followed.streams() == 0;
        if is_idle {
            events.remove(&followed.event_id);
            self.viewers.set_streams(followed.event_id, 0, Duration::ZERO);
        }
        is_idle
    }
}
