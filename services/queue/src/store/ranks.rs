//! Places in line and signs of life in Redis. Everything here can be brought back from Postgres; nothing here may be the
//! only copy of anything, and a caller must know what to do without it.

use std::{sync::LazyLock, time::Duration};

use onsale_storage::redis::{Command, Error, FromRedisValue, Pipeline, Redis, Script};
use onsale_types::{EntryId, EventId};
use uuid::Uuid;

use super::{away::Away, keys::Keys, millis, move_log, texts};
use crate::domain::line_change::LineChange;

/// The channel outside of the mesh.
const OUTSIDE: &str = "queue_events";

static MOVE: LazyLock<Script> = LazyLock::new(|| Script::new("queue_move", include_str!("move.lua")));
static POSITIONS: LazyLock<Script> =
    LazyLock::new(|| Script::new("queue_positions", include_str!("positions.lua")));
static LOADED: LazyLock<Script> = LazyLock::new(|| Script::new("queue_loaded", include_str!("loaded.lua")));
static MARK: LazyLock<Script> = LazyLock::new(|| Script::new("queue_mark", include_str!("mark.lua")));
static UNSEEN: LazyLock<Script> = LazyLock::new(|| Script::new("queue_unseen", include_str!("unseen.lua")));

/// What was committed about who waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingChange {
    /// Who joined, with their seqs.
    pub(crate) joined: Vec<(EntryId, u64)>,
    /// Who went without having been admitted.
    pub(crate) gone: Vec<EntryId>,
    /// The highest seq admitted so far.
    pub(crate) last_admitted_seq: u64,
}

/// Which marks are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkMode {
    /// Of everybody named.
    All,
    /// Only of those who have none.
    New,
}

/// What Redis knows of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineSizes {
    /// Whether everybody who waits is known.
    pub(crate) is_loaded: bool,
    /// How many wait.
    pub(crate) waiting: u64,
    /// How many have a sign of life.
    pub(crate) seen: u64,
}

/// What lies together, and is away together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Everything of one line.
    Line(EventId),
    /// The channel that wakes the leader.
    Wake,
    /// The channel outside of the mesh.
    Outside,
}

/// The doors to Redis of this service.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    redis: Redis,
    keys: Keys,
    away: Away<Part>,
}

impl Ranks {
    /// Ranks in `redis` under `keys`.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys, away: Away::default() }
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Applies what was committed, and tells the log of it as the `step` it was, if it was one. Answers whether everybody
    /// who waits is known.
    pub(crate) async fn apply(
        &self,
        event_id: EventId,
        moved: &WaitingChange,
        step: Option<&LineChange>,
    ) -> Result<bool, Error> {
        let mut call = MOVE
            .call()
            .key(&self.keys.line(event_id)?)
            .key(&self.keys.waiting(event_id)?)
            .key(&self.keys.log(event_id)?)
            .key(&self.keys.seen(event_id)?)
            .arg(moved.last_admitted_seq)
            .arg(moved.joined.len());
        for (entry_id, seq) in &moved.joined {
            call = call.arg(*seq).arg(entry_id.to_string());
        }
        call = call.arg(moved.gone.len()).arg(texts(&moved.gone));
        if let Some(step) = step {
            call = call.arg(move_log::RECORDS_MAX).arg(&move_log::write(step));
        }
        self.quick(event_id, call.idempotent()).await
    }

    /// The positions of these entries, from 1; none for one that is not known to wait. None at all when not everybody
    /// who waits is known.
    pub(crate) async fn positions(
        &self,
        event_id: EventId,
        entries: &[EntryId],
    ) -> Result<Option<Vec<Option<u64>>>, Error> {
        let call = POSITIONS.call().key(&self.keys.line(event_id)?).key(&self.keys.waiting(event_id)?);
        let ranks: Option<Vec<i64>> = self.quick(event_id, call.arg(texts(entries)).idempotent()).await?;
        let position = |rank: i64| u64::try_from(rank).ok().map(|rank| rank.saturating_add(1));
        Ok(ranks.map(|ranks| ranks.into_iter().map(position).collect()))
    }

    /// Notes signs of life.
    pub(crate) async fn mark(
        &self,
        event_id: EventId,
        marks: MarkMode,
        entries: &[EntryId],
    ) -> Result<(), Error> {
        let which = match marks {
            MarkMode::All => "all",
            MarkMode::New => "new",
        };
        let call = MARK.call().key(&self.keys.seen(event_id)?).arg(which).arg(texts(entries));
        let _done: i64 = self.quick(event_id, call.idempotent()).await?;
        Ok(())
    }

    /// Entries without a sign of life for `idle`.
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

    /// Forgets the signs of life of these entries.
    pub(crate) async fn forget(&self, event_id: EventId, entries: &[EntryId]) -> Result<(), Error> {
        let command = Command::new("ZREM").key(&self.keys.seen(event_id)?).arg(texts(entries)).idempotent();
        let _removed: i64 = self.redis.run(command).await?;
        Ok(())
    }

    /// What is known of a line.
    pub(crate) async fn sizes(&self, event_id: EventId) -> Result<LineSizes, Error> {
        let sizes = Pipeline::new("queue_sizes")
            .push(Command::new("HEXISTS").key(&self.keys.line(event_id)?).arg("loaded").idempotent())
            .push(Command::new("ZCARD").key(&self.keys.waiting(event_id)?).idempotent())
            .push(Command::new("ZCARD").key(&self.keys.seen(event_id)?).idempotent());
        let (is_loaded, waiting, seen) = self.redis.run_all(sizes).await?;
        Ok(LineSizes { is_loaded, waiting, seen })
    }

    /// Begins to bring everybody who waits; answers the mark to end with.
    pub(crate) async fn begin_loading(&self, event_id: EventId) -> Result<Uuid, Error> {
        let mark = Uuid::new_v4();
        let command =
            Command::new("HSET").key(&self.keys.line(event_id)?).arg("loading").arg(mark.to_string());
        let _new: i64 = self.redis.run(command.idempotent()).await?;
        Ok(mark)
    }

    /// Everybody has been brought. Answers false when the line was wiped meanwhile, or another began.
    pub(crate) async fn finish_loading(&self, event_id: EventId, mark: Uuid) -> Result<bool, Error> {
        let call = LOADED.call().key(&self.keys.line(event_id)?).arg(mark.to_string());
        // Sent once: a repeat would find its mark taken away by itself.
        self.redis.run(call).await
    }

    /// Who is known to wait with seqs above `after` up to `upto`.
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

    /// Hints to every pod that the queue changed.
    pub(crate) async fn hint(&self, event_id: EventId) -> Result<(), Error> {
        let channel = self.keys.moved(event_id)?;
        self.away.ask(Part::Line(event_id), "SPUBLISH", self.redis.publish(&channel, b"")).await
    }

    /// Hints to the leader that a slot is free.
    pub(crate) async fn wake_admission(&self) -> Result<(), Error> {
        let channel = self.keys.wake()?;
        self.away.ask(Part::Wake, "SPUBLISH", self.redis.publish(&channel, b"")).await
    }

    /// Tells systems outside of the mesh.
    pub(crate) async fn publish_external(&self, message: &[u8]) -> Result<(), Error> {
        self.away.ask(Part::Outside, "PUBLISH", self.redis.publish_outside(OUTSIDE, message)).await
    }

    async fn quick<T: FromRedisValue>(&self, event_id: EventId, command: Command) -> Result<T, Error> {
        // Boxed: it is part of the future of every call that touches a line.
        self.away.ask(Part::Line(event_id), "queue line", Box::pin(self.redis.run(command))).await
    }
}
