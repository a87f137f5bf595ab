//! The machinery that use cases share: replicas of lines in memory, fan-out to streams, heartbeats, publication,
//! reconciliation and leadership.
//!
//! ```text
//!   use case commits a change                        other pods: move log and announcement in Redis
//!        │                                                        │
//!        ▼                                                        ▼
//!     publish ──────── LineChange of this pod ───────▶ replicas ── replica_updater ── fanout ──▶ open streams
//!        │                                             (one replica of the line per viewed queue; each round of
//!        ├──▶ store::ranks: line, log, channels         its updater ends in one pass over the watchers)
//!        │        ▲                                        │             │
//!        │     reconcile ◀── requests ── positions ◀───────┘             ├──▶ heartbeats ──▶ store::ranks, store::presence
//!        │   (Postgres is right)       (replica, Redis, or Postgres)     ├──▶ viewers ────▶ store::pods
//!        ├──▶ outbox relay                                               └──◀ snapshots (cache of public state)
//!        └──▶ channel `queue_events`
//!
//!   leadership: eight shards of events; the jobs that change queues by themselves run under a shard's lease.
//!   end_entries, entry_views, tokens: steps that several use cases have in common.
//! ```
//!
//! Postgres decides. Whatever fails here only adds delay, because every receiver also polls or is reconciled.

pub(crate) mod end_entries;
pub(crate) mod entry_views;
pub(crate) mod fanout;
pub(crate) mod find_entries;
pub(crate) mod heartbeats;
pub(crate) mod leadership;
pub(crate) mod polls;
pub(crate) mod positions;
pub(crate) mod publish;
pub(crate) mod reconcile;
pub(crate) mod replica_updater;
pub(crate) mod replicas;
pub(crate) mod snapshots;
pub(crate) mod tokens;
pub(crate) mod viewers;

use std::sync::Arc;

use onsale_kit::{
    batcher::{Batcher, BatcherConfig},
    tasks::Tasks,
};
use onsale_storage::{Stores, redis::Hints};
use tokio::sync::{Notify, Semaphore};

use self::{
    find_entries::{EntryKey, FindEntryProcessor},
    heartbeats::HeartbeatBuffer,
    polls::Polls,
    positions::{PositionLookup, PositionProcessor, PositionQuery},
    publish::{ExternalEncoder, PUBLISHING_MAX},
    reconcile::ReconcileRequests,
    replicas::LineReplicas,
    snapshots::SnapshotCache,
    tokens::Tokens,
    viewers::Viewers,
};
use crate::{
    config::WatchConfig,
    domain::{entry::FoundEntry, policy::Policy},
    error::Error,
    store::{keys::Keys, move_log::MoveLog, pods::Pods, presence::Presence, ranks::Ranks},
};

/// The parts of the machinery.
pub(crate) struct Engine {
    pub(crate) stores: Stores,
    /// Policy of a queue whose organizer set nothing.
    pub(crate) defaults: Policy,
    pub(crate) ranks: Ranks,
    pub(crate) log: MoveLog,
    pub(crate) presence: Presence,
    pub(crate) tokens: Tokens,
    /// Announcements of other pods.
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    pub(crate) watch_config: WatchConfig,
    pub(crate) replicas: Arc<LineReplicas>,
    pub(crate) reconcile_requests: Arc<ReconcileRequests>,
    pub(crate) positions: Arc<PositionLookup>,
    /// Position queries of single callers, looked up in batches.
    pub(crate) position_batcher: Batcher<PositionQuery, Option<u64>, Error>,
    /// Newest entries of single callers, looked up in batches.
    pub(crate) entry_batcher: Batcher<EntryKey, Option<FoundEntry>, Error>,
    pub(crate) polls: Polls,
    pub(crate) heartbeats: HeartbeatBuffer,
    pub(crate) viewers: Viewers,
    pub(crate) snapshots: SnapshotCache,
    /// Notified when a slot for a turn may be free.
    pub(crate) slot_freed: Arc<Notify>,
    /// Notified when turns were granted, so that entries may have passed a milestone.
    pub(crate) line_moved: Arc<Notify>,
    /// Permits of changes that are published in the background.
    publishing: Arc<Semaphore>,
    encode_external: ExternalEncoder,
}

/// The arguments of [`Engine::new`].
pub(crate) struct EngineParts {
    pub(crate) stores: Stores,
    pub(crate) keys: Keys,
    pub(crate) defaults: Policy,
    pub(crate) tokens: Tokens,
    pub(crate) tasks: Tasks,
    pub(crate) watch_config: WatchConfig,
    /// Encodes messages for the channel `queue_events`.
    pub(crate) encode_external: ExternalEncoder,
}

impl Engine {
    /// Puts the parts together and starts their batchers.
    pub(crate) fn new(parts: EngineParts) -> Arc<Self> {
        let EngineParts { stores, keys, defaults, tokens, tasks, watch_config, encode_external } = parts;
        let ranks = Ranks::new(stores.redis.clone(), keys.clone());
        let replicas = Arc::new(LineReplicas::default());
        let reconcile_requests = Arc::new(ReconcileRequests::default());
        let positions = Arc::new(PositionLookup::new(
            stores.postgres.clone(),
            ranks.clone(),
            Arc::clone(&reconcile_requests),
            Arc::clone(&replicas),
        ));
        let config = BatcherConfig::default();
        let lookup = PositionProcessor(Arc::clone(&positions));
        let position_batcher = Batcher::new("positions", config, lookup, &tasks);
        let find = FindEntryProcessor(stores.postgres.clone());
        let entry_batcher = Batcher::new("finding", config, find, &tasks);
        Arc::new(Self {
            defaults,
            log: MoveLog::new(stores.redis.clone(), keys.clone()),
            presence: Presence::new(stores.redis.clone(), keys.clone()),
            viewers: Viewers::new(Pods::new(stores.redis.clone(), keys)),
            hints: Hints::start(&stores.redis, &tasks),
            stores,
            ranks,
            tokens,
            tasks,
            watch_config,
            replicas,
            reconcile_requests,
            positions,
            position_batcher,
            entry_batcher,
            polls: Polls::default(),
            heartbeats: HeartbeatBuffer::default(),
            snapshots: SnapshotCache::default(),
            slot_freed: Arc::new(Notify::new()),
            line_moved: Arc::new(Notify::new()),
            publishing: Arc::new(Semaphore::new(PUBLISHING_MAX)),
            encode_external,
        })
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").finish_non_exhaustive()
    }
}
