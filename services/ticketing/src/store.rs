//! What Ticketing keeps in Postgres: statements, and how rows become domain types.

pub mod events;
pub mod generations;
pub mod issuances;
pub mod tickets;

use std::time::SystemTime;

use onsale_storage::postgres::{Row, column};
use onsale_types::Timestamp;
use uuid::Uuid;

use crate::{domain::order::OrderedUnit, error::Error};

/// A column that holds a time.
fn time(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    time_opt(row, name)?.ok_or(Error::Corrupt { what: "a time that must be there is missing" })
}

/// A column that may hold a time.
fn time_opt(row: &Row, name: &'static str) -> Result<Option<Timestamp>, Error> {
    let time: Option<SystemTime> = column(row, name)?;
    let out_of_range = Error::Corrupt { what: "a time is out of range" };
    time.map(|time| Timestamp::from_system_time(time).ok_or(out_of_range)).transpose()
}

/// A time as Postgres takes it.
fn sql_time(time: Timestamp) -> Result<SystemTime, Error> {
    time.to_system_time().ok_or(Error::Corrupt { what: "a time is out of range" })
}

/// A column that holds a number of something.
fn count(row: &Row, name: &'static str) -> Result<u32, Error> {
    from_sql_count(column(row, name)?)
}

fn from_sql_count(count: i32) -> Result<u32, Error> {
    u32::try_from(count).map_err(|_| Error::Corrupt { what: "a count is negative" })
}

/// A number of something as Postgres takes it.
fn sql_count(count: u32) -> Result<i32, Error> {
    i32::try_from(count).map_err(|_| Error::Corrupt { what: "a count is out of range" })
}

/// Units as two arrays of equal length, for `unnest`.
fn sql_units(units: &[OrderedUnit]) -> Result<(Vec<Uuid>, Vec<i32>), Error> {
    let mut arrays = (Vec::with_capacity(units.len()), Vec::with_capacity(units.len()));
    for unit in units {
        arrays.0.push(unit.sector_id.as_uuid());
        arrays.1.push(sql_count(unit.unit)?);
    }
    Ok(arrays)
}
