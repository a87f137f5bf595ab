//! What Inventory keeps: rows in Postgres, which are the truth, and pools of free units in Redis, which can be rebuilt.

pub mod events;
pub mod holds;
pub mod invitations;
pub mod keys;
pub mod pause;
pub mod pools;
pub mod quotas;
pub mod stocks;

use std::time::SystemTime;

use onsale_storage::postgres::{Row, column};
use onsale_types::Timestamp;

use crate::error::Error;

/// The time in column `name`.
fn time(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    optional_time(row, name)?.ok_or(Error::Stored { what: name, source: None })
}

/// The time in column `name`, which may be null.
fn optional_time(row: &Row, name: &'static str) -> Result<Option<Timestamp>, Error> {
    Ok(column::<Option<SystemTime>>(row, name)?.and_then(Timestamp::from_system_time))
}

/// As the driver takes it. Times of our contracts always fit.
fn database_time(time: Timestamp) -> SystemTime {
    time.to_system_time().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The number in column `name`, which a constraint keeps from being negative.
fn number(row: &Row, name: &'static str) -> Result<u32, Error> {
    u32::try_from(column::<i32>(row, name)?).map_err(|_negative| Error::Stored { what: name, source: None })
}

/// As the driver takes it. Units and capacities of our contracts always fit.
fn database_number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
