//! What is free, held and sold, as Postgres knows it.

use std::collections::HashMap;

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{EventId, SectorId, Timestamp};
use uuid::Uuid;

use super::{holds::read_units, number, time};
use crate::{
    domain::{
        counts::{Changes, Counts, CountsChange},
        event::{Event, Sector},
        unit_set::UnitSet,
    },
    error::Error,
};

/// A macro, because statements are constants and only literals can be joined into one.
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
// Locked in one order by everybody: two that change the same two sectors must not wait for each other.
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
// Of one sector, as most batches are: nobody to wait for in an order, and one plan for good, where an array of one would be
// planned anew each time.
const CHANGE_ONE: &str = concat!(
    "UPDATE sector_sale SET taken_count = taken_count + $2, kept_count = kept_count + $3,
        sold_count = sold_count + $4, revision = revision + 1
    WHERE sector_id = $1 RETURNING sector_id, ",
    counted!()
);

/// The free units of `sector`.
pub async fn free_units(transaction: &Transaction, sector: &Sector) -> Result<UnitSet, Error> {
    let taken = read_units(&transaction.query(TAKEN_UNITS, &[&sector.id.as_uuid()]).await?)?;
    Ok(UnitSet::all_but(taken, sector.capacity))
}

/// What is counted of the sectors of `event`; nothing while it is a draft without quotas.
pub async fn counts(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<HashMap<SectorId, Counts>, Error> {
    let rows = transaction.query(COUNTS, &[&event_id.as_uuid()]).await?;
    rows.iter().map(read_counts).collect()
}

/// What is counted of `sectors`.
pub async fn counts_of(
    transaction: &Transaction,
    sectors: &[SectorId],
) -> Result<HashMap<SectorId, Counts>, Error> {
    if sectors.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = sectors.iter().map(SectorId::as_uuid).collect();
    let rows = transaction.query(COUNTS_OF, &[&ids]).await?;
    rows.iter().map(read_counts).collect()
}

/// Changes what is counted, and answers what it is then. Locks each sector until the transaction ends: to be called last.
pub async fn change(
    transaction: &Transaction,
    changes: &Changes,
) -> Result<HashMap<SectorId, Counts>, Error> {
    let rows = match changes.first_key_value() {
        None => Vec::new(),
        Some((sector_id, it)) if changes.len() == 1 => {
            transaction.query(CHANGE_ONE, &[&sector_id.as_uuid(), &it.taken, &it.kept, &it.sold]).await?
        }
        Some(_) => {
            let sectors: Vec<Uuid> = changes.keys().map(SectorId::as_uuid).collect();
            let of = |pick: fn(&CountsChange) -> i32| -> Vec<i32> { changes.values().map(pick).collect() };
            let (taken, kept, sold) = (of(|it| it.taken), of(|it| it.kept), of(|it| it.sold));
            transaction.query(CHANGE, &[&sectors, &taken, &kept, &sold]).await?
        }
    };
    rows.iter().map(read_counts).collect()
}

/// The revision of what is free in `event`, whose sectors are counted so. Rises with every change, whoever asks.
#[must_use]
pub fn revision(event: &Event, counts: &HashMap<SectorId, Counts>) -> u64 {
    counts.values().fold(event.revision, |sum, it| sum.saturating_add(it.revision))
}

/// The database's time.
pub async fn now(transaction: &Transaction) -> Result<Timestamp, Error> {
    time(&transaction.query_one(NOW, &[]).await?, "now")
}

fn read_counts(row: &Row) -> Result<(SectorId, Counts), Error> {
    let revision = column::<i64>(row, "revision")?;
    let counts = Counts {
        capacity: number(row, "capacity")?,
        taken: number(row, "taken_count")?,
        kept: number(row, "kept_count")?,
        sold: number(row, "sold_count")?,
        revision: u64::try_from(revision).map_err(|_| Error::Stored { what: "revision", source: None })?,
    };
    Ok((SectorId::from_uuid(column(row, "sector_id")?), counts))
}
