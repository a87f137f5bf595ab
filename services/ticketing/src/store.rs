//! SQL statements and row readers of Ticketing. Takes and returns domain types.

pub(crate) mod events;
pub(crate) mod generations;
pub(crate) mod issuances;
pub(crate) mod tickets;

use onsale_storage::postgres::row::SqlCount;
use uuid::Uuid;

use crate::domain::order::OrderedUnit;

/// Returns the units as two arrays of equal length, sector ids and unit numbers, for `unnest`.
fn unit_arrays(units: &[OrderedUnit]) -> (Vec<Uuid>, Vec<SqlCount<u32>>) {
    units.iter().map(|unit| (unit.sector_id.as_uuid(), SqlCount(unit.unit))).unzip()
}
