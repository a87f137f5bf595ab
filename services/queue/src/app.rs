//! The use cases of Queue, one file each: load, decide, save. What several of them share is here.

pub(crate) mod admit_customers;
pub(crate) mod apply_inventory_update;
pub(crate) mod block_customer;
pub(crate) mod complete_turn;
pub(crate) mod control_queue;
pub(crate) mod expire_entries;
pub(crate) mod get_position;
pub(crate) mod get_queue_stats;
pub(crate) mod join_queue;
pub(crate) mod leave_queue;
pub(crate) mod list_neighbors;
pub(crate) mod push_milestones;
pub(crate) mod slide_windows;
pub(crate) mod watch_queue;

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use onsale_kit::{
    batcher::{Batcher, BatcherConfig},
    tasks::Tasks,
};
use onsale_storage::{Stores, idempotency, postgres::Transaction, redis::Hints};
use onsale_types::{Clock, Timestamp};
use prost::Message;
use tokio::sync::{Notify, Semaphore};

use self::{
    admit_customers as admit, complete_turn::CheckTurnProcessor, get_position as standing,
    get_queue_stats::StatsCache, join_queue as join, push_milestones::CheckedRevisions,
};
use crate::{
    clients::inventory::Inventory,
    config::{AdmissionConfig, SweepConfig, WatchConfig},
    domain::{
        entry::{TurnCheck, TurnKey},
        policy::Policy,
    },
    engine::{
        fanout,
        find_entries::{self as finding, EntryKey, FindEntryProcessor},
        heartbeats::HeartbeatBuffer,
        leadership as shards,
        polls::Polls,
        positions::{self as places, PositionLookup},
        publish::{self as tell, PUBLISHING_MAX, QueueChange},
        reconcile::ReconcileRequests,
        replicas::{self as follow, LineReplicas},
        snapshots::{self as snapshot, SnapshotCache},
        tokens::{self, Tokens},
        viewers::Viewers,
    },
    error::Error,
    store::{entries::FoundEntry, move_log::MoveLog, pods::Pods, presence::Presence, ranks::Ranks},
};

/// What handlers, consumers and workers share.
pub(crate) struct App {
    /// Postgres, Redis, outbox.
    pub(crate) stores: Stores,
    /// Places in line, in Redis.
    pub(crate) ranks: Ranks,
    /// The move logs, in Redis.
    pub(crate) log: MoveLog,
    /// Who has an open stream, on any pod.
    pub(crate) presence: Presence,
    /// Positions, from wherever they are to be had.
    pub(crate) places: Arc<PositionLookup>,
    /// Positions asked for one by one, answered together.
    pub(crate) positions: Batcher<places::PositionQuery, Option<u64>, Error>,
    /// Entries asked for one by one, found together.
    pub(crate) finding: Batcher<EntryKey, Option<FoundEntry>, Error>,
    /// Turns asked about one by one, looked up together.
    pub(crate) checking: Batcher<TurnKey, (TurnCheck, Timestamp), Error>,
    /// Polls of the last second.
    pub(crate) polls: Polls,
    /// What is still worth waiting for.
    pub(crate) inventory: Inventory,
    /// Turn tokens and queue tokens.
    pub(crate) tokens: Tokens,
    clock: Arc<dyn Clock>,
    /// The policy of a queue whose organizer set nothing.
    pub(crate) defaults: Policy,
    pub(crate) admission: AdmissionConfig,
    pub(crate) sweep: SweepConfig,
    pub(crate) watching: WatchConfig,
    /// Hints of other pods.
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    /// The queues that this pod's watchers follow.
    pub(crate) followers: Arc<LineReplicas>,
    /// Changes that are being told without anybody waiting for it.
    pub(crate) publishing: Arc<Semaphore>,
    /// Signs of life that are not in Redis yet.
    pub(crate) seen: HeartbeatBuffer,
    /// Lines that Redis has to be told again.
    pub(crate) reconcile_requests: Arc<ReconcileRequests>,
    /// A slot may be free.
    pub(crate) slot_freed: Notify,
    /// Turns were granted, so others may have passed a milestone.
    pub(crate) line_moved: Notify,
    /// The lines in which milestones were looked at.
    pub(crate) milestone_looks: CheckedRevisions,
    /// The public facts, for a moment.
    pub(crate) snapshots: SnapshotCache,
    /// The live numbers, for a moment.
    pub(crate) statistics: StatsCache,
    /// Who looks at what.
    pub(crate) viewers: Viewers,
}

/// What an [`App`] is made of.
pub(crate) struct Parts {
    /// Postgres, Redis, outbox.
    pub(crate) stores: Stores,
    /// Places in line, in Redis.
    pub(crate) ranks: Ranks,
    /// The move logs, in Redis.
    pub(crate) log: MoveLog,
    /// Who has an open stream, on any pod.
    pub(crate) presence: Presence,
    /// What is still worth waiting for.
    pub(crate) inventory: Inventory,
    /// Turn tokens and queue tokens.
    pub(crate) tokens: Tokens,
    /// The time of day.
    pub(crate) clock: Arc<dyn Clock>,
    /// The policy of a queue whose organizer set nothing.
    pub(crate) defaults: Policy,
    /// How turns are granted.
    pub(crate) admission: AdmissionConfig,
    /// What happens with time.
    pub(crate) sweep: SweepConfig,
    /// How streams are fed.
    pub(crate) watching: WatchConfig,
    /// Where background work is started.
    pub(crate) tasks: Tasks,
}

impl App {
    /// Puts the parts together.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            stores,
            ranks,
            log,
            presence,
            inventory,
            tokens,
            clock,
            defaults,
            admission,
            sweep,
            watching,
            tasks,
        } = parts;
        let followers = Arc::new(LineReplicas::default());
        let reconcile_requests = Arc::new(ReconcileRequests::default());
        let places = Arc::new(PositionLookup::new(
            stores.postgres.clone(),
            ranks.clone(),
            Arc::clone(&reconcile_requests),
            Arc::clone(&followers),
        ));
        let positions = Batcher::new(
            "positions",
            BatcherConfig::default(),
            places::PositionProcessor(Arc::clone(&places)),
            &tasks,
        );
        let finding = Batcher::new(
            "finding",
            BatcherConfig::default(),
            FindEntryProcessor(stores.postgres.clone()),
            &tasks,
        );
        let checking = Batcher::new(
            "checking",
            BatcherConfig::default(),
            CheckTurnProcessor(stores.postgres.clone()),
            &tasks,
        );
        let hints = Hints::start(&stores.redis, &tasks);
        let viewers = Viewers::new(Pods::new(stores.redis.clone(), ranks.keys().clone()));
        Arc::new(Self {
            stores,
            ranks,
            log,
            presence,
            places,
            positions,
            finding,
            checking,
            polls: Polls::default(),
            inventory,
            tokens,
            clock,
            defaults,
            admission,
            sweep,
            watching,
            hints,
            tasks,
            followers,
            publishing: Arc::new(Semaphore::new(PUBLISHING_MAX)),
            seen: HeartbeatBuffer::default(),
            reconcile_requests,
            slot_freed: Notify::new(),
            line_moved: Notify::new(),
            milestone_looks: CheckedRevisions::default(),
            snapshots: SnapshotCache::default(),
            statistics: StatsCache::default(),
            viewers,
        })
    }

    /// The time of day, as this pod sees it. Good enough to call a date absurd; everything else goes by the database's.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Does a change once, however often it is asked for, and tells the news after the commit.
    pub(crate) async fn change_once<R, F>(
        &self,
        label: &'static str,
        request: &idempotency::Request<'_>,
        work: impl Fn(Transaction) -> F,
    ) -> Result<R, Error>
    where
        R: Message + Default,
        F: Future<Output = Result<(R, Option<QueueChange>), Error>>,
    {
        let told = Mutex::new(None);
        let (told_by, work) = (&told, &work);
        let once = |transaction: Transaction| async move {
            let change = async {
                let (answer, news) = work(transaction.clone()).await?;
                *lock(told_by) = news;
                Ok::<R, Error>(answer)
            };
            idempotency::once(&transaction, request, change).await
        };
        let answer = self.stores.postgres.transaction(label, once).await?;
        // Nothing when the answer is an old one.
        let news = lock(&told).take();
        if let Some(news) = news {
            self.tell(news).await;
        }
        Ok(answer)
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").finish_non_exhaustive()
    }
}

pub(crate) fn read<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one; and what is in it would still be right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
