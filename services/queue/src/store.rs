//! Where a queue is kept: Postgres has the truth, Redis the places in line for quick answers. Takes and gives domain types.

mod away;
pub(crate) mod blocked_customers;
pub(crate) mod entries;
pub mod keys;
pub(crate) mod line_copies;
pub(crate) mod milestones;
pub(crate) mod move_log;
pub(crate) mod neighbors;
pub(crate) mod pods;
pub mod presence;
pub(crate) mod queues;
pub(crate) mod ranks;
pub(crate) mod stats;
pub(crate) mod windows;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onsale_storage::postgres::{Row, column};
use onsale_types::{EntryId, Timestamp};
use uuid::Uuid;

use crate::error::Error;

/// As Redis takes ids.
fn texts(entries: &[EntryId]) -> Vec<String> {
    entries.iter().map(ToString::to_string).collect()
}

/// As Redis takes a span.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// As Postgres takes a time.
pub(crate) fn sql_time(time: Timestamp) -> SystemTime {
    time.to_system_time().unwrap_or(UNIX_EPOCH)
}

/// As Postgres takes a count.
pub(crate) fn sql_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(row: &Row, name: &'static str) -> Result<u64, Error> {
    u64::try_from(column::<i64>(row, name)?).map_err(|_negative| Error::Stored { what: name })
}

fn time(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    optional_time(row, name)?.ok_or(Error::Stored { what: name })
}

fn optional_time(row: &Row, name: &'static str) -> Result<Option<Timestamp>, Error> {
    let Some(time) = column::<Option<SystemTime>>(row, name)? else { return Ok(None) };
    Timestamp::from_system_time(time).map(Some).ok_or(Error::Stored { what: name })
}

/// A value by its name, of an enum of ours.
fn named<T>(row: &Row, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
    parse(column::<&str>(row, name)?).ok_or(Error::Stored { what: name })
}

fn optional_named<T>(
    row: &Row,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(text) = column::<Option<&str>>(row, name)? else { return Ok(None) };
    parse(text).map(Some).ok_or(Error::Stored { what: name })
}

fn uuid(row: &Row, name: &'static str) -> Result<Uuid, Error> {
    Ok(column(row, name)?)
}
