//! Parses the replies of stream commands. A reply of another shape is an error, never a panic.

use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use super::StreamId;
use crate::redis::Error;

/// One entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Id of the entry.
    pub id: StreamId,
    /// Names and values, in the order of writing.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl Entry {
    /// Returns the value of the first field `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice())
    }
}

/// Entries that [`Stream::auto_claim`](super::Stream::auto_claim) took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Start of the next scan; [`StreamId::ZERO`] if the scan is complete.
    pub next: StreamId,
    /// Entries that are now pending for the caller.
    pub entries: Vec<Entry>,
    /// Ids that were pending although their entries are deleted. Redis has removed them from the group.
    pub deleted: Vec<StreamId>,
}

/// One entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Id of the entry.
    pub id: StreamId,
    /// Consumer of the last delivery.
    pub consumer: String,
    /// Time since the last delivery or renewal.
    pub idle: Duration,
    /// Number of deliveries, including the last.
    pub deliveries: u64,
}

/// Totals of a group's pending entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingSummary {
    /// Number of pending entries.
    pub count: u64,
    /// Lowest and highest pending id; `None` if nothing is pending.
    pub span: Option<(StreamId, StreamId)>,
    /// Number of pending entries by consumer.
    pub consumers: Vec<(String, u64)>,
}

/// State of one consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Name of the group.
    pub name: String,
    /// Number of entries delivered but not acknowledged.
    pub pending: u64,
    /// Highest id delivered to any consumer of the group.
    pub last_delivered: StreamId,
    /// Number of entries not delivered yet; `None` if Redis cannot tell, as after a deletion in the middle.
    pub lag: Option<u64>,
}

impl FromRedisValue for Entry {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (id, fields): (StreamId, Vec<(String, Vec<u8>)>) = from_redis_value(value)?;
        Ok(Self { id, fields })
    }
}

/// Returns the entries of a reply about one stream.
pub(super) fn entries(command: &'static str, value: Value) -> Result<Vec<Entry>, Error> {
    // A claimed entry that was deleted from the stream may appear as nil.
    let values: Vec<Value> = parse(command, value)?;
    let there = values.into_iter().filter(|value| *value != Value::Nil);
    there.map(|value| parse(command, value)).collect()
}

/// Returns the entries of an XREAD or XREADGROUP of one stream; empty for nil.
pub(super) fn one_stream(command: &'static str, value: Value) -> Result<Vec<Entry>, Error> {
    let streams: Option<Vec<(Value, Value)>> = parse(command, value)?;
    match streams.and_then(|streams| streams.into_iter().next()) {
        Some((_key, value)) => entries(command, value),
        None => Ok(Vec::new()),
    }
}

pub(super) fn claimed(value: Value) -> Result<Claimed, Error> {
    const COMMAND: &str = "XAUTOCLAIM";
    let (next, claimed, deleted): (StreamId, Value, Vec<StreamId>) = parse(COMMAND, value)?;
    Ok(Claimed { next, entries: entries(COMMAND, claimed)?, deleted })
}

pub(super) fn pending_summary(value: Value) -> Result<PendingSummary, Error> {
    type Answer = (u64, Option<StreamId>, Option<StreamId>, Option<Vec<(String, u64)>>);
    let (count, first, last, consumers): Answer = parse("XPENDING", value)?;
    Ok(PendingSummary { count, span: first.zip(last), consumers: consumers.unwrap_or_default() })
}

pub(super) fn pending(value: Value) -> Result<Vec<Pending>, Error> {
    let rows: Vec<(StreamId, String, u64, u64)> = parse("XPENDING", value)?;
    let entry = |(id, consumer, idle_millis, deliveries)| Pending {
        id,
        consumer,
        idle: Duration::from_millis(idle_millis),
        deliveries,
    };
    Ok(rows.into_iter().map(entry).collect())
}

pub(super) fn groups(value: Value) -> Result<Vec<GroupInfo>, Error> {
    const COMMAND: &str = "XINFO";
    let groups: Vec<Vec<(String, Value)>> = parse(COMMAND, value)?;
    groups
        .into_iter()
        .map(|fields| {
            Ok(GroupInfo {
                name: field(COMMAND, &fields, "name")?,
                pending: field(COMMAND, &fields, "pending")?,
                last_delivered: field(COMMAND, &fields, "last-delivered-id")?,
                lag: field(COMMAND, &fields, "lag")?,
            })
        })
        .collect()
}

pub(super) fn last_id(value: Value) -> Result<StreamId, Error> {
    const COMMAND: &str = "XINFO";
    let fields: Vec<(String, Value)> = parse(COMMAND, value)?;
    field(COMMAND, &fields, "last-generated-id")
}

fn field<T: FromRedisValue>(
    command: &'static str,
    fields: &[(String, Value)],
    name: &str,
) -> Result<T, Error> {
    match fields.iter().find(|(field, _)| field == name) {
        Some((_, value)) => parse(command, value.clone()),
        None => Err(Error::Reply { command, message: format!("no {name}") }),
    }
}

fn parse<T: FromRedisValue>(command: &'static str, value: Value) -> Result<T, Error> {
    from_redis_value(value).map_err(|error| Error::Reply { command, message: error.to_string() })
}
