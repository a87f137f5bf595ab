//! Lines in Redis: waiting entries, heartbeats, the move log and the channels of a queue. All of it can be restored from
//! Postgres, and every caller knows what to do without Redis.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use onsale_kit::breaker::Breaker;
use onsale_storage::redis::{Command, Error, FromRedisValue, Pipeline, Redis, Script};
use onsale_types::{EntryId, EventId};
use uuid::Uuid;

use super::{
    breaker::{self, Part, guard},
    keys::Keys,
    millis, move_log, texts,
};
use crate::domain::{line_change::LineChange, queue_change::WaitingChange};

/// The channel for systems outside the mesh.
const EXTERNAL: &str = "queue_events";

static MOVE: LazyLock<Script> = LazyLock::new(|| Script::new("queue_move", include_str!("move.lua")));
static POSITIONS: LazyLock<Script> =
    LazyLock::new(|| Script::new("queue_positions", include_str!("positions.lua")));
static LOADED: LazyLock<Script> = LazyLock::new(|| Script::new("queue_loaded", include_str!("loaded.lua")));
static MARK: LazyLock<Script> = LazyLock::new(|| Script::new("queue_mark", include_str!("mark.lua")));
static UNSEEN: LazyLock<Script> = LazyLock::new(|| Script::new("queue_unseen", include_str!("unseen.lua")));

/// The entries whose heartbeat [`Ranks::mark`] sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkMode {
    /// Every entry of the call.
    All,
    /// Only entries without a heartbeat.
    New,
}

/// The sizes of a line in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineSizes {
    /// True if every waiting entry is in Redis.
    pub(crate) is_loaded: bool,
    /// Number of waiting entries.
    pub(crate) waiting: u64,
    /// Number of entries with a heartbeat.
    pub(crate) seen: u64,
}

/// The lines in Redis. Clones share the circuit breaker.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    redis: Redis,
    keys: Keys,
    breaker: Arc<Breaker<Part>>,
}

impl Ranks {
    /// Returns the lines in `redis` under `keys`.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys, breaker: Arc::new(breaker::breaker()) }
    }

    /// Returns the keys of Queue.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Applies a committed change to the set of waiting entries and appends `line_change`, if there is one, to the move log.
    /// Returns true if every waiting entry is in Redis.
    pub(crate) async fn apply(
        &self,
        event_id: EventId,
        waiting: &WaitingChange,
        line_change: Option<&LineChange>,
    ) -> Result<bool, Error> {
        let mut call = MOVE
            .call()
            .key(&self.keys.line(event_id)?)
            .key(&self.keys.waiting(event_id)?)
            .key(&self.keys.log(event_id)?)
            .key(&self.keys.seen(event_id)?)
            .arg(waiting.last_admitted_seq)
            .arg(waiting.joined.len());
        for (entry_id, seq) in &waiting.joined {
            call = call.arg(*seq).arg(entry_id.to_string());
        }
        call = call.arg(waiting.gone.len()).arg(texts(&waiting.gone));
        if let Some(change) = line_change {
            call = call.arg(move_log::RECORDS_MAX).arg(&move_log::write(change));
        }
        self.run(event_id, call.idempotent()).await
    }

    /// Returns the positions of these entries, from 1, and `None` for an entry that Redis does not know to wait. The outer
    /// `None` means that Redis lacks waiting entries, so that its positions are not reliable.
    pub(crate) async fn positions(
        &self,
        event_id: EventId,
        entries: &[EntryId],
    ) -> Result<Option<Vec<Option<u64>>>, Error> {
        let call = POSITIONS.call().key(&self.keys.line(event_id)?).key(&self.keys.waiting(event_id)?);
        let ranks: Option<Vec<i64>> = self.run(event_id, call.arg(texts(entries)).idempotent()).await?;
        let position = |rank: i64| u64::try_from(rank).ok().map(|rank| rank.saturating_add(1));
        Ok(ranks.map(|ranks| ranks.into_iter().map(position).collect()))
    }

    /// Sets the heartbeat of entries to the present time of Redis.
    pub(crate) async fn mark(
        &self,
        event_id: EventId,
        mode: MarkMode,
        entries: &[EntryId],
    ) -> Result<(), Error> {
        let mode = match mode {
            MarkMode::All => "all",
            MarkMode::New => "new",
        };
        let call = MARK.call().key(&self.keys.seen(event_id)?).arg(mode).arg(texts(entries));
        let _done: i64 = self.run(event_id, call.idempotent()).await?;
        Ok(())
    }

    /// Returns at most `entries_max` entries without a heartbeat for `idle`.
    pub(crate) async fn unseen(
        &self,
        event_id: EventId,
        idle: Duration,
        entries_max: u32,
    ) -> Result<Vec<EntryId>, Error> {
        let call = UNSEEN.call().key(&self.keys.seen(event_id)?).arg(millis(idle)).arg(entries_max);
        let ids: Vec<String> = self.redis.run(call.idempotent()).await?;
        Ok(ids.iter().filter_map(|id| EntryId::parse(id).ok()).collect())
    }

    /// Deletes the heartbeats of these entries.
    pub(crate) async fn delete_heartbeats(
        &self,
        event_id: EventId,
        entries: &[EntryId],
    ) -> Result<(), Error> {
        let command = Command::new("ZREM").key(&self.keys.seen(event_id)?).arg(texts(entries)).idempotent();
        let _removed: i64 = self.redis.run(command).await?;
        Ok(())
    }

    /// Returns the sizes of a line.
    pub(crate) async fn sizes(&self, event_id: EventId) -> Result<LineSizes, Error> {
        let sizes = Pipeline::new("queue_sizes")
            .push(Command::new("HEXISTS").key(&self.keys.line(event_id)?).arg("loaded").idempotent())
            .push(Command::new("ZCARD").key(&self.keys.waiting(event_id)?).idempotent())
            .push(Command::new("ZCARD").key(&self.keys.seen(event_id)?).idempotent());
        let (is_loaded, waiting, seen) = self.redis.run_all(sizes).await?;
        Ok(LineSizes { is_loaded, waiting, seen })
    }

    /// Begins to load every waiting entry; returns the mark for [`Self::finish_loading`].
    pub(crate) async fn begin_loading(&self, event_id: EventId) -> Result<Uuid, Error> {
        let mark = Uuid::new_v4();
        let command =
            Command::new("HSET").key(&self.keys.line(event_id)?).arg("loading").arg(mark.to_string());
        let _new: i64 = self.redis.run(command.idempotent()).await?;
        Ok(mark)
    }

    /// Marks the line as loaded. Returns false if the line was wiped meanwhile or another pod began to load it.
    pub(crate) async fn finish_loading(&self, event_id: EventId, mark: Uuid) -> Result<bool, Error> {
        let call = LOADED.call().key(&self.keys.line(event_id)?).arg(mark.to_string());
        // Not idempotent: the script deletes the mark, so a repeat would not find it.
        self.redis.run(call).await
    }

    /// Returns the waiting entries with numbers above `after` up to `upto`.
    pub(crate) async fn page(
        &self,
        event_id: EventId,
        after: u64,
        upto: u64,
    ) -> Result<Vec<(EntryId, u64)>, Error> {
        let command = Command::new("ZRANGEBYSCORE")
            .key(&self.keys.waiting(event_id)?)
            .arg(format!("({after}"))
            .arg(upto)
            .arg("WITHSCORES")
            .idempotent();
        let pairs: Vec<(String, u64)> = self.redis.run(command).await?;
        Ok(pairs.into_iter().filter_map(|(id, seq)| Some((EntryId::parse(&id).ok()?, seq))).collect())
    }

    /// Announces to every pod that the queue changed.
    pub(crate) async fn announce(&self, event_id: EventId) -> Result<(), Error> {
        let channel = self.keys.moved(event_id)?;
        guard(&self.breaker, Part::Line(event_id), "SPUBLISH", self.redis.publish(&channel, b"")).await
    }

    /// Announces to the leader that a slot for a turn is free.
    pub(crate) async fn wake_admission(&self) -> Result<(), Error> {
        let channel = self.keys.wake()?;
        guard(&self.breaker, Part::Wake, "SPUBLISH", self.redis.publish(&channel, b"")).await
    }

    /// Publishes a message to systems outside the mesh.
    pub(crate) async fn publish_external(&self, message: &[u8]) -> Result<(), Error> {
        guard(&self.breaker, Part::External, "PUBLISH", self.redis.publish_outside(EXTERNAL, message)).await
    }

    async fn run<T: FromRedisValue>(&self, event_id: EventId, command: Command) -> Result<T, Error> {
        // Boxed, because it is part of the future of every call that touches a line.
        let work = Box::pin(self.redis.run(command));
        guard(&self.breaker, Part::Line(event_id), "queue line", work).await
    }
}
