//! Holds and their units in Postgres.

use std::{collections::HashSet, time::Duration};

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{CustomerId, EventId, HoldId, SectorId};
use uuid::Uuid;

use super::{database_number, number, time, unit_columns};
use crate::{
    domain::hold::{Hold, HoldItem, HoldState},
    error::Error,
};

macro_rules! columns {
    () => {
        "hold_id, event_id, customer_id, state, items::text AS items, create_time, expire_time"
    };
}

// Waits for a transaction that makes the same hold right now, and then finds it made.
const INSERT: &str = concat!(
    "INSERT INTO hold (hold_id, event_id, customer_id, state, items, expire_time)
     VALUES ($1, $2, $3, 'HELD', $4::text::jsonb, now() + make_interval(secs => $5))
     ON CONFLICT DO NOTHING RETURNING ",
    columns!()
);
const FIND: &str = concat!("SELECT ", columns!(), " FROM hold WHERE hold_id = $1");
const LOCK: &str = concat!("SELECT ", columns!(), " FROM hold WHERE hold_id = $1 FOR UPDATE");
const END: &str = concat!(
    "UPDATE hold SET state = $2, end_time = now() WHERE hold_id = $1 AND state = 'HELD' RETURNING ",
    columns!()
);
// Whoever releases or commits one of them right now decides about it; the next round sees what is left.
const EXPIRE: &str = concat!(
    "UPDATE hold SET state = 'RELEASED', end_time = now()
     WHERE hold_id IN (
         SELECT hold_id FROM hold WHERE state = 'HELD' AND expire_time <= now()
         ORDER BY expire_time LIMIT $1 FOR UPDATE SKIP LOCKED)
     RETURNING ",
    columns!()
);

// In one order for everybody: two that want the same two units must not wait for each other.
const INSERT_UNITS: &str = "INSERT INTO hold_unit (sector_id, unit, hold_id)
    SELECT sector_id, unit, $3 FROM unnest($1::uuid[], $2::integer[]) AS new (sector_id, unit)
    ORDER BY sector_id, unit
    ON CONFLICT DO NOTHING RETURNING sector_id, unit";
const DELETE_UNITS: &str = "DELETE FROM hold_unit
    USING unnest($1::uuid[], $2::integer[]) AS gone (sector_id, unit)
    WHERE hold_unit.sector_id = gone.sector_id AND hold_unit.unit = gone.unit AND hold_unit.hold_id = ANY ($3)";

/// Writes a new hold; none when there is one with its id already.
pub async fn insert(
    tx: &Transaction,
    hold_id: HoldId,
    event_id: EventId,
    customer_id: CustomerId,
    items: &[HoldItem],
    release_after: Duration,
) -> Result<Option<Hold>, Error> {
    let items = serde_json::to_string(items)
        .map_err(|source| Error::Stored { what: "items", source: Some(source) })?;
    let row = tx
        .query_opt(
            INSERT,
            &[
                &hold_id.as_uuid(),
                &event_id.as_uuid(),
                &customer_id.as_uuid(),
                &items,
                &release_after.as_secs_f64(),
            ],
        )
        .await?;
    row.as_ref().map(read).transpose()
}

/// Makes the units the hold's. Answers those that are another's: then the transaction must not commit.
pub async fn insert_units(
    tx: &Transaction,
    hold_id: HoldId,
    units: &[(SectorId, Vec<u32>)],
) -> Result<Vec<(SectorId, u32)>, Error> {
    let (sectors, numbers) = unit_columns(units.iter().map(|(sector, units)| (sector.as_uuid(), &units[..])));
    let mut inserted: HashSet<(Uuid, i32)> = HashSet::with_capacity(numbers.len());
    for row in tx.query(INSERT_UNITS, &[&sectors, &numbers, &hold_id.as_uuid()]).await? {
        inserted.insert((column(&row, "sector_id")?, column(&row, "unit")?));
    }
    let is_taken =
        |(sector, unit): &(SectorId, u32)| !inserted.contains(&(sector.as_uuid(), database_number(*unit)));
    let all = units.iter().flat_map(|(sector, units)| units.iter().map(|unit| (*sector, *unit)));
    Ok(all.filter(is_taken).collect())
}

/// The hold.
pub async fn find(tx: &Transaction, hold_id: HoldId) -> Result<Option<Hold>, Error> {
    tx.query_opt(FIND, &[&hold_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// The hold, locked until the transaction ends.
pub async fn lock(tx: &Transaction, hold_id: HoldId) -> Result<Option<Hold>, Error> {
    tx.query_opt(LOCK, &[&hold_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Ends a locked hold that is HELD.
pub async fn end(tx: &Transaction, hold_id: HoldId, state: HoldState) -> Result<Hold, Error> {
    read(&tx.query_one(END, &[&hold_id.as_uuid(), &state.name()]).await?)
}

/// Releases holds past their time, at most `holds_max`. Their units are still theirs.
pub async fn expire(tx: &Transaction, holds_max: u32) -> Result<Vec<Hold>, Error> {
    let rows = tx.query(EXPIRE, &[&i64::from(holds_max)]).await?;
    rows.iter().map(read).collect()
}

/// Makes the units of `holds` nobody's.
pub async fn delete_units(tx: &Transaction, holds: &[Hold]) -> Result<(), Error> {
    let numbers: Vec<(Uuid, Vec<u32>)> = holds
        .iter()
        .flat_map(|hold| hold.items.iter().map(|item| (item.sector_id.as_uuid(), item.numbers())))
        .collect();
    let (sectors, units) = unit_columns(numbers.iter().map(|(sector, units)| (*sector, &units[..])));
    let ids: Vec<Uuid> = holds.iter().map(|hold| hold.id.as_uuid()).collect();
    tx.execute(DELETE_UNITS, &[&sectors, &units, &ids]).await?;
    Ok(())
}

/// The unit numbers in the rows' column `unit`.
pub(super) fn read_units(rows: &[Row]) -> Result<Vec<u32>, Error> {
    rows.iter().map(|row| number(row, "unit")).collect()
}

fn read(row: &Row) -> Result<Hold, Error> {
    let items = serde_json::from_str(column(row, "items")?)
        .map_err(|source| Error::Stored { what: "items", source: Some(source) })?;
    let state = HoldState::from_name(column(row, "state")?);
    Ok(Hold {
        id: HoldId::from_uuid(column(row, "hold_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        customer_id: CustomerId::from_uuid(column(row, "customer_id")?),
        state: state.ok_or(Error::Stored { what: "state", source: None })?,
        items,
        create_time: time(row, "create_time")?,
        expire_time: time(row, "expire_time")?,
    })
}
