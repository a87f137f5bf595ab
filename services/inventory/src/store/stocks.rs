//! Counts of each sector's stock, and its free units.

use std::collections::HashMap;

use onsale_storage::postgres::{
    Row, Transaction,
    row::{RowExt as _, uuids},
};
use onsale_types::{EventId, SectorId, Timestamp};

use crate::{
    domain::{
        counts::{Changes, Counts, CountsChange},
        event::Sector,
        unit_set::UnitSet,
    },
    error::Error,
};

/// A macro, because `concat!` takes literals only.
macro_rules! counted {
    () => {
        "capacity, taken_count, kept_count, sold_count, revision"
    };
}

const TAKEN_UNITS: &str = "SELECT unit FROM hold_unit WHERE sector_id = $1";
const COUNTS: &str = concat!("SELECT sector_id, ", counted!(), " FROM sector_sale WHERE event_id = $1");
const COUNTS_OF: &str =
    concat!("SELECT sector_id, ", counted!(), " FROM sector_sale WHERE sector_id = ANY ($1)");
const NOW: &str = "SELECT now() AS now";
// Every transaction locks sectors in the order of their ids, so that two transactions cannot deadlock.
const CHANGE: &str = concat!(
    "WITH locked AS (
        SELECT sector_id FROM sector_sale WHERE sector_id = ANY ($1) ORDER BY sector_id FOR UPDATE)
    UPDATE sector_sale AS stock SET taken_count = stock.taken_count + change.taken,
        kept_count = stock.kept_count + change.kept, sold_count = stock.sold_count + change.sold,
        revision = stock.revision + 1
    FROM locked JOIN unnest($1::uuid[], $2::integer[], $3::integer[], $4::integer[])
        AS change (sector_id, taken, kept, sold) USING (sector_id)
    WHERE stock.sector_id = locked.sector_id
    RETURNING stock.sector_id, ",
    counted!()
);
// For one sector, as in most batches: no order of locks is needed, and Postgres keeps one plan, while it would plan an array of
// one element again at each call.
const CHANGE_ONE: &str = concat!(
    "UPDATE sector_sale SET taken_count = taken_count + $2, kept_count = kept_count + $3,
        sold_count = sold_count + $4, revision = revision + 1
    WHERE sector_id = $1 RETURNING sector_id, ",
    counted!()
);

/// Returns the free units of `sector`.
pub(crate) async fn free_units(transaction: &Transaction, sector: &Sector) -> Result<UnitSet, Error> {
    let rows = transaction.query(TAKEN_UNITS, &[&sector.id.as_uuid()]).await?;
    let taken: Vec<u32> = rows.iter().map(|row| row.read_count("unit")).collect::<Result<_, _>>()?;
    Ok(UnitSet::all_but(taken, sector.capacity))
}

/// Returns the counts of the event's sectors. A draft has none until it gets its first quota.
pub(crate) async fn counts(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<HashMap<SectorId, Counts>, Error> {
    let rows = transaction.query(COUNTS, &[&event_id.as_uuid()]).await?;
    rows.iter().map(read_counts).collect()
}

/// Returns the counts of `sectors`.
pub(crate) async fn counts_of(
    transaction: &Transaction,
    sectors: &[SectorId],
) -> Result<HashMap<SectorId, Counts>, Error> {
    if sectors.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = transaction.query(COUNTS_OF, &[&uuids(sectors)]).await?;
    rows.iter().map(read_counts).collect()
}

/// Changes counts and returns the new ones. Locks each sector until the transaction ends, so call it last.
pub(crate) async fn change(
    transaction: &Transaction,
    changes: &Changes,
) -> Result<HashMap<SectorId, Counts>, Error> {
    let rows = match changes.first_key_value() {
        None => Vec::new(),
        Some((sector_id, it)) if changes.len() == 1 => {
            transaction.query(CHANGE_ONE, &[&sector_id.as_uuid(), &it.taken, &it.kept, &it.sold]).await?
        }
        Some(_) => {
            let sectors = uuids(changes.keys());
            let of = |pick: fn(&CountsChange) -> i32| -> Vec<i32> { changes.values().map(pick).collect() };
            let (taken, kept, sold) = (of(|it| it.taken), of(|it| it.kept), of(|it| it.sold));
            transaction.query(CHANGE, &[&sectors, &taken, &kept, &sold]).await?
        }
    };
    rows.iter().map(read_counts).collect()
}

/// Returns the database's time.
pub(crate) async fn now(transaction: &Transaction) -> Result<Timestamp, Error> {
    Ok(transaction.query_one(NOW, &[]).await?.read_time("now")?)
}

fn read_counts(row: &Row) -> Result<(SectorId, Counts), Error> {
    let counts = Counts {
        capacity: row.read_count("capacity")?,
        taken: row.read_count("taken_count")?,
        kept: row.read_count("kept_count")?,
        sold: row.read_count("sold_count")?,
        revision: row.read_count("revision")?,
    };
    Ok((row.read_id("sector_id")?, counts))
}
