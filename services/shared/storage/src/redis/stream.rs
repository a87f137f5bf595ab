//! Redis Streams: appending with explicit ids, consumer groups, and reading a log.
//!
//! Every stream is a copy of data in Postgres, so it may be trimmed, lost or stale. Readers compare [`Stream::last_id`]
//! with the source.

mod id;
mod reader;
mod reply;

use std::time::Duration;

pub use self::{
    id::{StreamId, StreamIdError},
    reader::Reader,
    reply::{Claimed, Entry, GroupInfo, Pending, PendingSummary},
};
use super::{Command, Error, Key, Pipeline, Redis, Value};

/// Maximum number of entries per call, whatever the caller requests, so that a reply fits in memory and in its
/// deadline.
pub(super) const ENTRIES_MAX: usize = 10_000;

/// Result of appending an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The entry was appended by this call.
    Added,
    /// The stream already has this id or a later one, from an earlier call or another writer.
    Passed,
}

/// Entry to append under the caller's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Id of the entry.
    pub id: StreamId,
    /// Names and values, in this order.
    pub fields: Vec<(&'a str, &'a [u8])>,
}

/// One stream of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    redis: &'a Redis,
    key: &'a Key,
}

impl<'a> Stream<'a> {
    pub(super) fn new(redis: &'a Redis, key: &'a Key) -> Self {
        Self { redis, key }
    }

    /// Appends an entry under `id`, which must be higher than all earlier ids. Idempotent.
    pub async fn append(&self, id: StreamId, fields: &[(&str, &[u8])]) -> Result<Appended, Error> {
        let answer = self.redis.run::<String>(self.append_command(id, fields)).await;
        match answer {
            Ok(_id) => Ok(Appended::Added),
            Err(Error::Refused { detail, .. }) if detail.contains("equal or smaller") => Ok(Appended::Passed),
            Err(error) => Err(error),
        }
    }

    /// Appends entries with increasing ids in one round trip. Entries whose id the stream has passed are skipped, as by
    /// [`Stream::append`]; after success all others are there.
    pub async fn append_all(&self, entries: &[NewEntry<'_>]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let pipeline = entries.iter().fold(Pipeline::new("XADD"), |pipeline, entry| {
            pipeline.push(self.append_command(entry.id, &entry.fields))
        });
        match self.redis.run_all::<Vec<String>>(pipeline).await {
            Ok(_ids) => Ok(()),
            // Some entries existed before. Appending one by one skips those.
            Err(Error::Refused { detail, .. }) if detail.contains("equal or smaller") => {
                for entry in entries {
                    self.append(entry.id, &entry.fields).await?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn append_command(&self, id: StreamId, fields: &[(&str, &[u8])]) -> Command {
        // Idempotent: a repeated XADD with an explicit id is refused as passed.
        fields
            .iter()
            .fold(Command::new("XADD").key(self.key).arg(id), |command, (name, value)| {
                command.arg(*name).arg(*value)
            })
            .idempotent()
    }

    /// Appends an entry under an id from Redis and trims the stream to about `length_max` entries. Not idempotent.
    pub async fn append_capped(&self, length_max: u64, fields: &[(&str, &[u8])]) -> Result<StreamId, Error> {
        let command = Command::new("XADD").key(self.key).arg("MAXLEN").arg("~").arg(length_max).arg("*");
        let command = fields.iter().fold(command, |command, (name, value)| command.arg(*name).arg(*value));
        self.redis.run(command).await
    }

    /// Creates the consumer group, and the stream if it does not exist. The group's first entry is the one after
    /// `after`. Returns false if the group existed; it is left unchanged then.
    pub async fn create_group(&self, group: &str, after: StreamId) -> Result<bool, Error> {
        let command =
            Command::new("XGROUP").arg("CREATE").key(self.key).arg(group).arg(after).arg("MKSTREAM");
        match self.redis.run::<Value>(command.idempotent()).await {
            Ok(_ok) => Ok(true),
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads entries that were never delivered to the group, without blocking. To block, use a [`Reader`].
    pub async fn read_group(&self, group: &str, consumer: &str, count: usize) -> Result<Vec<Entry>, Error> {
        let command = read_group_command(self.key, group, consumer, count, None);
        // If the reply is lost, the entries are pending for this consumer until `auto_claim` returns them.
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::one_stream("XREADGROUP", answer)
    }

    /// Acknowledges entries and returns how many were pending.
    pub async fn acknowledge(&self, group: &str, ids: &[StreamId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        self.redis.run(Command::new("XACK").key(self.key).arg(group).arg(ids).idempotent()).await
    }

    /// Takes over entries that were idle for `idle_min`, scanning from `start` ([`StreamId::ZERO`] for a new scan).
    pub async fn auto_claim(
        &self,
        group: &str,
        consumer: &str,
        idle_min: Duration,
        start: StreamId,
        count: usize,
    ) -> Result<Claimed, Error> {
        let command = Command::new("XAUTOCLAIM").key(self.key).arg(group).arg(consumer).arg(millis(idle_min));
        let command = command.arg(start).arg("COUNT").arg(count.clamp(1, ENTRIES_MAX));
        // A repeated call skips the entries that the first one claimed; they come back after `idle_min`.
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::claimed(answer)
    }

    /// Resets the idle time of pending entries and assigns them to `consumer`, without counting a delivery. Returns the
    /// ids that were still pending.
    pub async fn renew(&self, group: &str, consumer: &str, ids: &[StreamId]) -> Result<Vec<StreamId>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let command = Command::new("XCLAIM").key(self.key).arg(group).arg(consumer).arg(0);
        self.redis.run(command.arg(ids).arg("JUSTID").idempotent()).await
    }

    /// Returns the number of pending entries, in total and per consumer.
    pub async fn pending_summary(&self, group: &str) -> Result<PendingSummary, Error> {
        let answer: Value =
            self.redis.run(Command::new("XPENDING").key(self.key).arg(group).idempotent()).await?;
        reply::pending_summary(answer)
    }

    /// Returns pending entries from `start` on, with consumer, idle time and number of deliveries.
    pub async fn pending(&self, group: &str, start: StreamId, count: usize) -> Result<Vec<Pending>, Error> {
        let command = Command::new("XPENDING").key(self.key).arg(group).arg(start).arg("+");
        let answer: Value = self.redis.run(command.arg(count.clamp(1, ENTRIES_MAX)).idempotent()).await?;
        reply::pending(answer)
    }

    /// Returns the consumer groups with their lag. Empty if the stream does not exist.
    pub async fn groups(&self) -> Result<Vec<GroupInfo>, Error> {
        match self.redis.run::<Value>(Command::new("XINFO").arg("GROUPS").key(self.key).idempotent()).await {
            Ok(answer) => reply::groups(answer),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the highest id the stream ever had, even if its entry was deleted; `None` if the stream does not exist.
    pub async fn last_id(&self) -> Result<Option<StreamId>, Error> {
        match self.redis.run::<Value>(Command::new("XINFO").arg("STREAM").key(self.key).idempotent()).await {
            Ok(answer) => reply::last_id(answer).map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of entries.
    pub async fn length(&self) -> Result<u64, Error> {
        self.redis.run(Command::new("XLEN").key(self.key).idempotent()).await
    }

    /// Returns entries from `from` to `to`, both inclusive, in ascending order.
    pub async fn range(&self, from: StreamId, to: StreamId, count: usize) -> Result<Vec<Entry>, Error> {
        let command = Command::new("XRANGE").key(self.key).arg(from).arg(to).arg("COUNT");
        let answer: Value = self.redis.run(command.arg(count.clamp(1, ENTRIES_MAX)).idempotent()).await?;
        reply::entries("XRANGE", answer)
    }

    /// Returns entries after `after` in ascending order, without blocking and without a group.
    pub async fn read_after(&self, after: StreamId, count: usize) -> Result<Vec<Entry>, Error> {
        let command = read_after_command(self.key, after, count, None);
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::one_stream("XREAD", answer)
    }

    /// Deletes entries before `id` and returns how many.
    pub async fn trim_before(&self, id: StreamId) -> Result<u64, Error> {
        self.redis.run(Command::new("XTRIM").key(self.key).arg("MINID").arg(id).idempotent()).await
    }

    /// Deletes entries and returns how many existed.
    pub async fn delete(&self, ids: &[StreamId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        self.redis.run(Command::new("XDEL").key(self.key).arg(ids).idempotent()).await
    }
}

fn read_group_command(
    key: &Key,
    group: &str,
    consumer: &str,
    count: usize,
    block: Option<Duration>,
) -> Command {
    let command = Command::new("XREADGROUP").arg("GROUP").arg(group).arg(consumer);
    let command = command.arg("COUNT").arg(count.clamp(1, ENTRIES_MAX));
    with_block(command, block).arg("STREAMS").key(key).arg(">")
}

fn read_after_command(key: &Key, after: StreamId, count: usize, block: Option<Duration>) -> Command {
    let command = Command::new("XREAD").arg("COUNT").arg(count.clamp(1, ENTRIES_MAX));
    with_block(command, block).arg("STREAMS").key(key).arg(after)
}

fn with_block(command: Command, block: Option<Duration>) -> Command {
    match block {
        // A block time of 0 would mean forever.
        Some(block) => command.arg("BLOCK").arg(millis(block).max(1)),
        None => command,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Refused { code, detail, .. } if code == "ERR" && detail.contains("no such key"))
}
