//! What is free, held and sold, as Postgres knows it.

use std::collections::HashMap;

use onsale_storage::postgres::{Transaction, column};
use onsale_types::{EventId, SectorId, Timestamp};
use uuid::Uuid;

use super::{database_number, hold::read_units, number, time};
use crate::{
    domain::{
        availability::{Availability, Stock},
        event::{Event, Sector},
        hold::HoldItem,
        unit_set::UnitSet,
    },
    error::Error,
};

const TAKEN_UNITS: &str = "SELECT unit FROM hold_unit WHERE sector_id = $1";
const TAKEN_COUNTS: &str = "SELECT sector_id, count(*)::integer AS taken
    FROM hold_unit WHERE sector_id = ANY ($1) GROUP BY sector_id";
const SOLD_COUNTS: &str = "SELECT sector_id, sold_count FROM sector_sale WHERE event_id = $1";
// Every hold that is made, and every one that ends, is one change. Counted, because a stored number would be one row that
// every reservation of the event has to lock; and what is counted in a snapshot belongs to what is seen in it.
const CHANGES: &str = "SELECT now() AS now, count(*) + count(*) FILTER (WHERE state <> 'HELD') AS changes
    FROM hold WHERE event_id = $1";
const SELL: &str = "UPDATE sector_sale SET sold_count = sold_count + $2 WHERE sector_id = $1
    RETURNING sold_count = capacity AS is_full";
const IS_SOLD_OUT: &str = "SELECT NOT EXISTS (
        SELECT FROM sector_sale WHERE event_id = $1 AND sold_count < capacity) AS is_sold_out";

/// The free units of `sector`.
pub async fn free_units(tx: &Transaction, sector: &Sector) -> Result<UnitSet, Error> {
    let taken = read_units(&tx.query(TAKEN_UNITS, &[&sector.id.as_uuid()]).await?)?;
    Ok(UnitSet::all_but(taken, sector.capacity))
}

/// The revision of what is free in `event`, and the database's time. Rises with every change, whoever asks.
pub async fn revision(tx: &Transaction, event: &Event) -> Result<(u64, Timestamp), Error> {
    let row = tx.query_one(CHANGES, &[&event.id.as_uuid()]).await?;
    let changes = u64::try_from(column::<i64>(&row, "changes")?).unwrap_or_default();
    Ok((event.revision.saturating_add(changes), time(&row, "now")?))
}

/// What is free in `event`. Of one moment only if the transaction sees one moment.
pub async fn availability(
    tx: &Transaction,
    event: &Event,
    sectors: &[Sector],
) -> Result<Availability, Error> {
    let (revision, time) = revision(tx, event).await?;
    let general: Vec<Uuid> =
        sectors.iter().filter(|sector| sector.layout.is_none()).map(|sector| sector.id.as_uuid()).collect();
    let mut taken: HashMap<Uuid, u32> = HashMap::new();
    for row in tx.query(TAKEN_COUNTS, &[&general]).await? {
        taken.insert(column(&row, "sector_id")?, number(&row, "taken")?);
    }
    let mut sold: HashMap<Uuid, u32> = HashMap::new();
    for row in tx.query(SOLD_COUNTS, &[&event.id.as_uuid()]).await? {
        sold.insert(column(&row, "sector_id")?, number(&row, "sold_count")?);
    }
    let mut stocks = Vec::with_capacity(sectors.len());
    for sector in sectors {
        let of = |counts: &HashMap<Uuid, u32>| counts.get(&sector.id.as_uuid()).copied().unwrap_or(0);
        let free = match sector.layout {
            Some(_) => Some(free_units(tx, sector).await?),
            None => None,
        };
        let free_count =
            free.as_ref().map_or_else(|| sector.capacity.saturating_sub(of(&taken)), UnitSet::count);
        let held_count = sector.capacity.saturating_sub(free_count).saturating_sub(of(&sold));
        stocks.push(Stock { sector_id: sector.id, capacity: sector.capacity, free_count, held_count, free });
    }
    Ok(Availability { event_id: event.id, revision, state: event.state, sectors: stocks, time })
}

/// Counts the units of `items` as sold. Whether one of their sectors has nothing left to sell.
pub async fn sell(tx: &Transaction, items: &[HoldItem]) -> Result<bool, Error> {
    let mut counts: Vec<(SectorId, i32)> = items
        .iter()
        .map(|item| (item.sector_id, database_number(u32::try_from(item.units.len()).unwrap_or(u32::MAX))))
        .collect();
    // In one order for everybody: two commits must not wait for each other.
    counts.sort_unstable();
    let mut any_full = false;
    for (sector_id, count) in counts {
        let row = tx.query_one(SELL, &[&sector_id.as_uuid(), &count]).await?;
        any_full |= column::<bool>(&row, "is_full")?;
    }
    Ok(any_full)
}

/// Whether every unit of the event is sold. Certain only while its row is locked.
pub async fn is_sold_out(tx: &Transaction, event_id: EventId) -> Result<bool, Error> {
    Ok(column(&tx.query_one(IS_SOLD_OUT, &[&event_id.as_uuid()]).await?, "is_sold_out")?)
}
