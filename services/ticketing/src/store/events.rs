//! Events and their sectors, in the newest revision that Inventory has published.

use onsale_storage::postgres::{
    self, CopyRows, Parameters, Postgres, Row, Transaction, Type,
    row::{RowExt as _, SqlCount, SqlTime},
};
use onsale_types::{EventId, Timestamp};
use uuid::Uuid;

use crate::{
    domain::event::{EventOwner, EventPlan, EventSummary, SectorPlan},
    error::Error,
};

// Also locks the event's row, so that plans of one event are stored one after the other.
const SAVE_EVENT: &str = "INSERT INTO event AS stored
        (event_id, organizer_id, revision, name, venue_name, venue_address, time_zone, start_time)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (event_id) DO UPDATE SET
        organizer_id = excluded.organizer_id, revision = excluded.revision, name = excluded.name,
        venue_name = excluded.venue_name, venue_address = excluded.venue_address,
        time_zone = excluded.time_zone, start_time = excluded.start_time
    WHERE stored.revision < excluded.revision";
const SAVE_SECTORS: &str = "INSERT INTO sector AS stored (sector_id, event_id, place, name, capacity)
    SELECT sector_id, $1, place, name, capacity
    FROM unnest($2::uuid[], $3::text[], $4::integer[]) WITH ORDINALITY AS new (sector_id, name, capacity, place)
    ORDER BY sector_id
    ON CONFLICT (sector_id) DO UPDATE SET
        place = excluded.place, name = excluded.name, capacity = excluded.capacity
    WHERE stored.event_id = excluded.event_id";
const EMPTY_SECTORS: &str = "UPDATE sector SET capacity = 0
    WHERE event_id = $1 AND sector_id <> ALL ($2::uuid[]) AND capacity > 0";
const DELETE_SEATS: &str = "DELETE FROM seat_row
    WHERE sector_id IN (SELECT sector_id FROM sector WHERE event_id = $1)";
const COPY_SEATS: &str =
    "COPY seat_row (sector_id, first_unit, label, seat_labels) FROM STDIN (FORMAT binary)";
const RECORD_ACTIVATION: &str = "INSERT INTO event_phase AS stored (event_id, activate_time) VALUES ($1, $2)
    ON CONFLICT (event_id) DO UPDATE SET activate_time = least(stored.activate_time, excluded.activate_time)";
const RECORD_END: &str = "INSERT INTO event_phase AS stored (event_id, end_time) VALUES ($1, $2)
    ON CONFLICT (event_id) DO UPDATE SET end_time = least(stored.end_time, excluded.end_time)";
const GET_OWNER: &str =
    "SELECT organizer_id, (activate_time IS NOT NULL OR end_time IS NOT NULL) AS is_public
    FROM event LEFT JOIN event_phase USING (event_id) WHERE event_id = $1";

/// Stores the event and returns true, unless the same or a higher revision is stored.
pub(crate) async fn save_if_newer(
    transaction: &Transaction,
    plan: &EventPlan,
) -> Result<bool, postgres::Error> {
    let event = &plan.event;
    let values: Parameters<'_> = &[
        &event.event_id.as_uuid(),
        &plan.organizer_id.as_uuid(),
        &SqlCount(plan.revision),
        &event.name,
        &event.venue_name,
        &event.venue_address,
        &event.time_zone,
        &SqlTime(event.start_time),
    ];
    Ok(transaction.execute(SAVE_EVENT, values).await? > 0)
}

/// Replaces the event's sectors and their rows. A sector that the plan lacks keeps its row with capacity 0, so that its tickets
/// are removed.
pub(crate) async fn save_sectors(transaction: &Transaction, plan: &EventPlan) -> Result<(), Error> {
    let event_id = plan.event.event_id.as_uuid();
    let sector_ids: Vec<Uuid> = plan.sectors.iter().map(|sector| sector.sector_id.as_uuid()).collect();
    let names: Vec<&str> = plan.sectors.iter().map(|sector| sector.name.as_str()).collect();
    let capacities: Vec<_> = plan.sectors.iter().map(|sector| SqlCount(sector.capacity)).collect();
    let saved = transaction.execute(SAVE_SECTORS, &[&event_id, &sector_ids, &names, &capacities]).await?;
    if usize::try_from(saved).ok() != Some(sector_ids.len()) {
        return Err(Error::Inconsistent { what: "a sector belongs to another event" });
    }
    transaction.execute(EMPTY_SECTORS, &[&event_id, &sector_ids]).await?;
    transaction.execute(DELETE_SEATS, &[&event_id]).await?;
    Ok(copy_seats(transaction, &plan.sectors).await?)
}

async fn copy_seats(transaction: &Transaction, sectors: &[SectorPlan]) -> Result<(), postgres::Error> {
    let count: usize = sectors.iter().map(|sector| sector.rows.len()).sum();
    if count == 0 {
        return Ok(());
    }
    let types = [Type::UUID, Type::INT4, Type::TEXT, Type::TEXT_ARRAY];
    let mut rows = CopyRows::of(&types, count);
    for sector in sectors {
        for row in &sector.rows {
            let first_unit = SqlCount(row.first_unit);
            rows.push(&[&sector.sector_id.as_uuid(), &first_unit, &row.label, &row.seat_labels])?;
        }
    }
    transaction.copy_in(COPY_SEATS, rows).await.map(drop)
}

/// Records that the event is public. Of several times, the earliest is kept.
pub(crate) async fn record_activation(
    transaction: &Transaction,
    event_id: EventId,
    activate_time: Timestamp,
) -> Result<(), postgres::Error> {
    let values: Parameters<'_> = &[&event_id.as_uuid(), &SqlTime(activate_time)];
    transaction.execute(RECORD_ACTIVATION, values).await.map(drop)
}

/// Records that the event's sale is over. Of several times, the earliest is kept.
pub(crate) async fn record_end(
    transaction: &Transaction,
    event_id: EventId,
    end_time: Timestamp,
) -> Result<(), postgres::Error> {
    transaction.execute(RECORD_END, &[&event_id.as_uuid(), &SqlTime(end_time)]).await.map(drop)
}

pub(crate) async fn get_owner(
    postgres: &Postgres,
    event_id: EventId,
) -> Result<Option<EventOwner>, postgres::Error> {
    let row = postgres.query_opt("owner of event", GET_OWNER, &[&event_id.as_uuid()]).await?;
    let owner = |row: Row| {
        Ok(EventOwner { organizer_id: row.read_id("organizer_id")?, is_public: row.read("is_public")? })
    };
    row.map(owner).transpose()
}

/// Reads an event from a row that has its name as `event_name` and the other columns of `event`. The revision is not needed.
pub(super) fn summary(row: &Row) -> Result<EventSummary, postgres::Error> {
    Ok(EventSummary {
        event_id: row.read_id("event_id")?,
        name: row.read("event_name")?,
        venue_name: row.read("venue_name")?,
        venue_address: row.read("venue_address")?,
        time_zone: row.read("time_zone")?,
        start_time: row.read_time("start_time")?,
    })
}
