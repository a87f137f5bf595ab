//! Events and sectors, as Inventory last described them.

use onsale_storage::postgres::{self, CopyRows, Parameters, Postgres, Row, Transaction, Type, column};
use onsale_types::{EventId, OrganizerId, Timestamp};
use uuid::Uuid;

use super::{sql_count, sql_time, time};
use crate::{
    domain::event::{EventOwner, EventPlan, EventSummary, SectorPlan},
    error::Error,
};

// Also takes the event's row lock: plans of one event are made one after the other.
const SAVE_EVENT: &str = "INSERT INTO event AS known
        (event_id, organizer_id, revision, name, venue_name, venue_address, time_zone, start_time)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (event_id) DO UPDATE SET
        organizer_id = excluded.organizer_id, revision = excluded.revision, name = excluded.name,
        venue_name = excluded.venue_name, venue_address = excluded.venue_address,
        time_zone = excluded.time_zone, start_time = excluded.start_time
    WHERE known.revision < excluded.revision";
const SAVE_SECTORS: &str = "INSERT INTO sector AS known (sector_id, event_id, place, name, capacity)
    SELECT sector_id, $1, place, name, capacity
    FROM unnest($2::uuid[], $3::text[], $4::integer[]) WITH ORDINALITY AS new (sector_id, name, capacity, place)
    ORDER BY sector_id
    ON CONFLICT (sector_id) DO UPDATE SET
        place = excluded.place, name = excluded.name, capacity = excluded.capacity
    WHERE known.event_id = excluded.event_id";
const DROP_SECTORS: &str = "UPDATE sector SET capacity = 0
    WHERE event_id = $1 AND sector_id <> ALL ($2::uuid[]) AND capacity > 0";
const CLEAR_SEATS: &str = "DELETE FROM seat_row
    WHERE sector_id IN (SELECT sector_id FROM sector WHERE event_id = $1)";
const COPY_SEATS: &str =
    "COPY seat_row (sector_id, first_unit, label, seat_labels) FROM STDIN (FORMAT binary)";
const NOTE_ACTIVATION: &str = "INSERT INTO event_phase AS known (event_id, activate_time) VALUES ($1, $2)
    ON CONFLICT (event_id) DO UPDATE SET activate_time = least(known.activate_time, excluded.activate_time)";
const NOTE_END: &str = "INSERT INTO event_phase AS known (event_id, end_time) VALUES ($1, $2)
    ON CONFLICT (event_id) DO UPDATE SET end_time = least(known.end_time, excluded.end_time)";
const OWNER: &str = "SELECT organizer_id, (activate_time IS NOT NULL OR end_time IS NOT NULL) AS is_public
    FROM event LEFT JOIN event_phase USING (event_id) WHERE event_id = $1";

/// Keeps the plan, unless one of the same or a higher revision is known; answers whether it was kept.
pub async fn save(transaction: &Transaction, plan: &EventPlan) -> Result<bool, Error> {
    let event = &plan.event;
    let (event_id, organizer_id) = (event.event_id.as_uuid(), plan.organizer_id.as_uuid());
    let start_time = sql_time(event.start_time)?;
    let values: Parameters<'_> = &[
        &event_id,
        &organizer_id,
        &plan.revision,
        &event.name,
        &event.venue_name,
        &event.venue_address,
        &event.time_zone,
        &start_time,
    ];
    Ok(transaction.execute(SAVE_EVENT, values).await? > 0)
}

/// Replaces the event's sectors and their rows. Those the plan lacks stay with no capacity, until their tickets are gone.
pub async fn save_sectors(transaction: &Transaction, plan: &EventPlan) -> Result<(), Error> {
    let event_id = plan.event.event_id.as_uuid();
    let ids: Vec<Uuid> = plan.sectors.iter().map(|sector| sector.sector_id.as_uuid()).collect();
    let names: Vec<&str> = plan.sectors.iter().map(|sector| sector.name.as_str()).collect();
    let capacities: Vec<i32> =
        plan.sectors.iter().map(|sector| sql_count(sector.capacity)).collect::<Result<_, _>>()?;
    let saved = transaction.execute(SAVE_SECTORS, &[&event_id, &ids, &names, &capacities]).await?;
    if usize::try_from(saved).ok() != Some(ids.len()) {
        return Err(Error::Corrupt { what: "a sector belongs to another event" });
    }
    transaction.execute(DROP_SECTORS, &[&event_id, &ids]).await?;
    transaction.execute(CLEAR_SEATS, &[&event_id]).await?;
    copy_seats(transaction, &plan.sectors).await
}

async fn copy_seats(transaction: &Transaction, sectors: &[SectorPlan]) -> Result<(), Error> {
    let count: usize = sectors.iter().map(|sector| sector.rows.len()).sum();
    if count == 0 {
        return Ok(());
    }
    let types = [Type::UUID, Type::INT4, Type::TEXT, Type::TEXT_ARRAY];
    let mut rows = CopyRows::of(&types, count);
    for sector in sectors {
        for row in &sector.rows {
            let first_unit = sql_count(row.first_unit)?;
            rows.push(&[&sector.sector_id.as_uuid(), &first_unit, &row.label, &row.seat_labels])?;
        }
    }
    transaction.copy_in(COPY_SEATS, rows).await?;
    Ok(())
}

/// Notes that the event is public; the first time counts.
pub async fn note_activation(
    transaction: &Transaction,
    event_id: EventId,
    time: Timestamp,
) -> Result<(), Error> {
    note(transaction, NOTE_ACTIVATION, event_id, time).await
}

/// Notes that the event's sale is over.
pub async fn note_end(transaction: &Transaction, event_id: EventId, time: Timestamp) -> Result<(), Error> {
    note(transaction, NOTE_END, event_id, time).await
}

async fn note(
    transaction: &Transaction,
    statement: &'static str,
    event_id: EventId,
    time: Timestamp,
) -> Result<(), Error> {
    let time = sql_time(time)?;
    transaction.execute(statement, &[&event_id.as_uuid(), &time]).await?;
    Ok(())
}

/// Whose event it is.
pub async fn owner(postgres: &Postgres, event_id: EventId) -> Result<Option<EventOwner>, Error> {
    let row = postgres.query_opt("owner of event", OWNER, &[&event_id.as_uuid()]).await?;
    let owner = |row: &Row| -> Result<EventOwner, postgres::Error> {
        Ok(EventOwner {
            event_id,
            organizer_id: OrganizerId::from_uuid(column(row, "organizer_id")?),
            is_public: column(row, "is_public")?,
        })
    };
    Ok(row.as_ref().map(owner).transpose()?)
}

/// The event in a row that has all columns of `event` but the revision.
pub(super) fn summary(row: &Row) -> Result<EventSummary, Error> {
    Ok(EventSummary {
        event_id: EventId::from_uuid(column(row, "event_id")?),
        name: column(row, "event_name")?,
        venue_name: column(row, "venue_name")?,
        venue_address: column(row, "venue_address")?,
        time_zone: column(row, "time_zone")?,
        start_time: time(row, "start_time")?,
    })
}
