//! Redis Streams: appending with ids of our own, consumer groups, and reading a log.
//!
//! A stream is a copy of something Postgres keeps, so it may be trimmed, lost or behind at any time; readers ask
//! [`Stream::last_id`] and compare.

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

/// The most entries one call returns, whatever was asked for: an answer must fit in memory and in its deadline.
pub(super) const ENTRIES_MAX: usize = 10_000;

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The entry is there.
    Added,
    /// The stream already has this id or a later one: the entry was appended before, or others were.
    Passed,
}

/// An entry to append, under an id of the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Its id.
    pub id: StreamId,
    /// Its fields.
    pub fields: Vec<(&'a str, &'a [u8])>,
}

/// One stream, through the door.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    redis: &'a Redis,
    key: &'a Key,
}

impl<'a> Stream<'a> {
    pub(super) fn new(redis: &'a Redis, key: &'a Key) -> Self {
        Self { redis, key }
    }

    /// Appends an entry under `id`, which must be later than all before. Doing it twice equals doing it once.
    pub async fn append(&self, id: StreamId, fields: &[(&str, &[u8])]) -> Result<Appended, Error> {
        let answer = self.redis.run::<String>(self.append_command(id, fields)).await;
        match answer {
            Ok(_id) => Ok(Appended::Added),
            Err(Error::Refused { detail, .. }) if detail.contains("equal or smaller") => Ok(Appended::Passed),
            Err(error) => Err(error),
        }
    }

    /// Appends several entries with rising ids in one round trip. All are there afterwards, or the error says why not;
    /// entries whose id was passed already are left out, as by [`Stream::append`].
    pub async fn append_all(&self, entries: &[NewEntry<'_>]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let pipeline = entries.iter().fold(Pipeline::new("XADD"), |pipeline, entry| {
            pipeline.push(self.append_command(entry.id, &entry.fields))
        });
        match self.redis.run_all::<Vec<String>>(pipeline).await {
            Ok(_ids) => Ok(()),
            // Some of them were there before. One by one shows which are not.
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
        // Sent twice, the second is refused as passed: an explicit id is its own idempotency.
        fields
            .iter()
            .fold(Command::new("XADD").key(self.key).arg(id), |command, (name, value)| {
                command.arg(*name).arg(*value)
            })
            .idempotent()
    }

    /// Appends an entry under an id that Redis makes, and drops the oldest beyond about `length_max`. Not idempotent.
    pub async fn append_capped(&self, length_max: u64, fields: &[(&str, &[u8])]) -> Result<StreamId, Error> {
        let command = Command::new("XADD").key(self.key).arg("MAXLEN").arg("~").arg(length_max).arg("*");
        let command = fields.iter().fold(command, |command, (name, value)| command.arg(*name).arg(*value));
        self.redis.run(command).await
    }

    /// Makes the consumer group, and the stream if there is none; its first entry is the one after `after`. Returns
    /// whether it was new; an existing group stays as it is.
    pub async fn create_group(&self, group: &str, after: StreamId) -> Result<bool, Error> {
        let command =
            Command::new("XGROUP").arg("CREATE").key(self.key).arg(group).arg(after).arg("MKSTREAM");
        match self.redis.run::<Value>(command.idempotent()).await {
            Ok(_ok) => Ok(true),
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes entries no consumer of the group has had, without waiting. To wait, use a [`Reader`].
    pub async fn read_group(&self, group: &str, consumer: &str, count: usize) -> Result<Vec<Entry>, Error> {
        let command = read_group_command(self.key, group, consumer, count, None);
        // What a lost answer took is pending for this consumer, and comes back by `auto_claim`.
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::one_stream("XREADGROUP", answer)
    }

    /// Marks entries as handled; returns how many were pending.
    pub async fn acknowledge(&self, group: &str, ids: &[StreamId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        self.redis.run(Command::new("XACK").key(self.key).arg(group).arg(ids).idempotent()).await
    }

    /// Takes over entries that their consumers have left alone for `idle_min`, beginning at `start`
    /// ([`StreamId::ZERO`] for a new round).
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
        // Sent twice, the second finds them claimed just now and passes them over; they come back after `idle_min`.
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::claimed(answer)
    }

    /// The heartbeat of a long handler: begins the idle time of these entries anew and gives them to `consumer`, without
    /// counting as a delivery. Returns the ids that still were pending.
    pub async fn renew(&self, group: &str, consumer: &str, ids: &[StreamId]) -> Result<Vec<StreamId>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let command = Command::new("XCLAIM").key(self.key).arg(group).arg(consumer).arg(0);
        self.redis.run(command.arg(ids).arg("JUSTID").idempotent()).await
    }

    /// How much is pending, and with whom.
    pub async fn pending_summary(&self, group: &str) -> Result<PendingSummary, Error> {
        let answer: Value =
            self.redis.run(Command::new("XPENDING").key(self.key).arg(group).idempotent()).await?;
        reply::pending_summary(answer)
    }

    /// Pending entries from `start` on: whose they are, how long untouched, how often delivered.
    pub async fn pending(&self, group: &str, start: StreamId, count: usize) -> Result<Vec<Pending>, Error> {
        let command = Command::new("XPENDING").key(self.key).arg(group).arg(start).arg("+");
        let answer: Value = self.redis.run(command.arg(count.clamp(1, ENTRIES_MAX)).idempotent()).await?;
        reply::pending(answer)
    }

    /// The consumer groups, with how far behind each is; none when there is no stream.
    pub async fn groups(&self) -> Result<Vec<GroupInfo>, Error> {
        match self.redis.run::<Value>(Command::new("XINFO").arg("GROUPS").key(self.key).idempotent()).await {
            Ok(answer) => reply::groups(answer),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The latest id the stream ever had, also when its entry is gone; `None` when there is no stream.
    pub async fn last_id(&self) -> Result<Option<StreamId>, Error> {
        match self.redis.run::<Value>(Command::new("XINFO").arg("STREAM").key(self.key).idempotent()).await {
            Ok(answer) => reply::last_id(answer).map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many entries the stream holds.
    pub async fn length(&self) -> Result<u64, Error> {
        self.redis.run(Command::new("XLEN").key(self.key).idempotent()).await
    }

    /// Entries from `from` to `to`, both included, the oldest first.
    pub async fn range(&self, from: StreamId, to: StreamId, count: usize) -> Result<Vec<Entry>, Error> {
        let command = Command::new("XRANGE").key(self.key).arg(from).arg(to).arg("COUNT");
        let answer: Value = self.redis.run(command.arg(count.clamp(1, ENTRIES_MAX)).idempotent()).await?;
        reply::entries("XRANGE", answer)
    }

    /// Entries later than `after`, the oldest first, without waiting and without a group.
    pub async fn read_after(&self, after: StreamId, count: usize) -> Result<Vec<Entry>, Error> {
        let command = read_after_command(self.key, after, count, None);
        let answer: Value = self.redis.run(command.idempotent()).await?;
        reply::one_stream("XREAD", answer)
    }

    /// Drops entries earlier than `id`; returns how many.
    pub async fn trim_before(&self, id: StreamId) -> Result<u64, Error> {
        self.redis.run(Command::new("XTRIM").key(self.key).arg("MINID").arg(id).idempotent()).await
    }

    /// Deletes entries; returns how many were there.
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
        // Zero would mean for ever.
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
