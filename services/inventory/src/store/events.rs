//! Events and sectors in Postgres.

use std::collections::{HashMap, HashSet};

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{Currency, EventId, Money, OrganizerId, SectorId, Timestamp};
use uuid::Uuid;

use super::{database_number, database_time, number, optional_time, time};
use crate::{
    domain::event::{Details, Event, EventState, Sector, Venue},
    error::Error,
};

/// A macro, because statements are constants and only literals can be joined into one.
macro_rules! columns {
    () => {
        "event_id, organizer_id, state, name, description, venue_name, venue_address, time_zone, start_time,
         on_sale_time, currency_code, units_per_customer_max, capacity, revision, create_time, update_time,
         activate_time, end_time"
    };
}

const INSERT: &str = concat!(
    "INSERT INTO event (event_id, organizer_id, state, name, description, venue_name, venue_address, time_zone,
         start_time, on_sale_time, currency_code, units_per_customer_max, capacity)
     VALUES ($1, $2, 'DRAFT', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING ",
    columns!()
);
const UPDATE: &str = concat!(
    "UPDATE event SET name = $3, description = $4, venue_name = $5, venue_address = $6, time_zone = $7,
         start_time = $8, on_sale_time = $9, currency_code = $10, units_per_customer_max = $11, capacity = $12,
         revision = revision + 1, update_time = now()
     WHERE event_id = $1 AND organizer_id = $2 AND state = 'DRAFT' RETURNING ",
    columns!()
);
// The constraints of the table see to it that no move leads back to DRAFT or out of ENDED.
const MOVE: &str = concat!(
    "UPDATE event SET state = $2, revision = revision + 1, update_time = now(),
         activate_time = COALESCE(activate_time, now()), end_time = CASE WHEN $2 = 'ENDED' THEN now() END
     WHERE event_id = $1 RETURNING ",
    columns!()
);
const FIND: &str = concat!("SELECT ", columns!(), " FROM event WHERE event_id = $1");
const LOCK: &str = concat!("SELECT ", columns!(), " FROM event WHERE event_id = $1 FOR UPDATE");
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM event
     WHERE (state <> 'DRAFT' OR $1 OR organizer_id = $2)
       AND ($3::uuid IS NULL OR organizer_id = $3)
       AND (cardinality($4::text[]) = 0 OR state = ANY ($4))
       AND ($5::timestamptz IS NULL OR start_time >= $5)
       AND ($6::timestamptz IS NULL OR start_time < $6)
       AND ($7::timestamptz IS NULL OR (start_time, event_id) > ($7, $8))
     ORDER BY start_time, event_id LIMIT $9"
);
// Also what is sold out: units that come back put it on sale again, with the pools it has then.
const LIST_ON_SALE: &str =
    "SELECT event_id FROM event WHERE state IN ('ON_SALE', 'PAUSED', 'SOLD_OUT') ORDER BY event_id";
// The array stands behind a query, so that its length is not seen: an array of one would be planned anew each time.
const NOW_AND: &str = concat!(
    "SELECT now() AS now, ",
    columns!(),
    " FROM event WHERE event_id = ANY ((SELECT $1::uuid[])::uuid[])"
);
const GENERATED: &str = "UPDATE event SET generated_revision = $2
    WHERE event_id = $1 AND COALESCE(generated_revision, 0) < $2";
const TIME_ZONES: &str = "SELECT name FROM pg_timezone_names";

const INSERT_SECTORS: &str =
    "INSERT INTO sector (sector_id, event_id, place, name, price_minor, capacity, layout)
    SELECT sector_id, $1, place - 1, name, price_minor, capacity, layout::jsonb
    FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::integer[], $6::text[])
        WITH ORDINALITY AS new (sector_id, name, price_minor, capacity, layout, place)";
const DELETE_SECTORS: &str = "DELETE FROM sector WHERE event_id = $1";
const SECTORS: &str = "SELECT sector_id, event_id, name, price_minor, capacity, layout::text AS layout
    FROM sector WHERE event_id = $1 ORDER BY place";
const SECTORS_WITHOUT_LAYOUT: &str =
    "SELECT sector_id, event_id, name, price_minor, capacity, NULL::text AS layout
    FROM sector WHERE event_id = ANY ($1) ORDER BY event_id, place";
const BEGIN_SALE: &str = "INSERT INTO sector_sale (sector_id, event_id, capacity)
    SELECT sector_id, event_id, capacity FROM sector WHERE event_id = $1 ON CONFLICT DO NOTHING";

/// Which events to list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Drafts of everybody too.
    pub all_drafts: bool,
    /// Drafts of this organizer too.
    pub drafts_of: Option<OrganizerId>,
    /// Only this organizer's events.
    pub organizer_id: Option<OrganizerId>,
    /// Only events in one of these states; none: all.
    pub states: Vec<EventState>,
    /// Only events that start then or later.
    pub start_from: Option<Timestamp>,
    /// Only events that start before.
    pub start_until: Option<Timestamp>,
    /// Only events after this one, in the order of the list.
    pub after: Option<(Timestamp, EventId)>,
    /// At most so many.
    pub rows_max: u32,
}

/// Writes a new draft.
pub async fn insert(
    transaction: &Transaction,
    event_id: EventId,
    organizer_id: OrganizerId,
    details: &Details,
    sectors: &[Sector],
) -> Result<Event, Error> {
    let event = write(transaction, INSERT, event_id, organizer_id, details, sectors).await?;
    insert_sectors(transaction, event_id, sectors).await?;
    Ok(event)
}

/// Replaces what a locked draft says.
pub async fn update(
    transaction: &Transaction,
    draft: &Event,
    details: &Details,
    sectors: &[Sector],
) -> Result<Event, Error> {
    let event = write(transaction, UPDATE, draft.id, draft.organizer_id, details, sectors).await?;
    transaction.execute(DELETE_SECTORS, &[&draft.id.as_uuid()]).await?;
    insert_sectors(transaction, draft.id, sectors).await?;
    Ok(event)
}

/// Moves a locked event to `state`. The first move out of DRAFT begins the count of what is sold.
pub async fn move_to(
    transaction: &Transaction,
    event_id: EventId,
    state: EventState,
) -> Result<Event, Error> {
    let event = read(&transaction.query_one(MOVE, &[&event_id.as_uuid(), &state.name()]).await?)?;
    if state == EventState::OnSale {
        transaction.execute(BEGIN_SALE, &[&event_id.as_uuid()]).await?;
    }
    Ok(event)
}

/// The event.
pub async fn find(transaction: &Transaction, event_id: EventId) -> Result<Option<Event>, Error> {
    transaction.query_opt(FIND, &[&event_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// The event and the database's time.
pub async fn find_now(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<Option<(Event, Timestamp)>, Error> {
    Ok(find_all_now(transaction, &[event_id]).await?.remove(&event_id))
}

/// The events with these ids, as far as there are, each with the database's time.
pub async fn find_all_now(
    transaction: &Transaction,
    event_ids: &[EventId],
) -> Result<HashMap<EventId, (Event, Timestamp)>, Error> {
    let ids: Vec<Uuid> = event_ids.iter().map(EventId::as_uuid).collect();
    let rows = transaction.query(NOW_AND, &[&ids]).await?;
    let found = |row: &Row| read(row).and_then(|event| Ok((event.id, (event, time(row, "now")?))));
    rows.iter().map(found).collect()
}

/// The event, locked until the transaction ends.
pub async fn lock(transaction: &Transaction, event_id: EventId) -> Result<Option<Event>, Error> {
    transaction.query_opt(LOCK, &[&event_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Events by start time.
pub async fn list(transaction: &Transaction, filter: &Filter) -> Result<Vec<Event>, Error> {
    let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
    let (after_time, after_id) = filter.after.unzip();
    let rows = transaction
        .query(
            LIST,
            &[
                &filter.all_drafts,
                &filter.drafts_of.map(|id| id.as_uuid()),
                &filter.organizer_id.map(|id| id.as_uuid()),
                &states,
                &filter.start_from.map(database_time),
                &filter.start_until.map(database_time),
                &after_time.map(database_time),
                &after_id.map(|id: EventId| id.as_uuid()),
                &i64::from(filter.rows_max),
            ],
        )
        .await?;
    rows.iter().map(read).collect()
}

/// Events of which units may be reserved now or again.
pub async fn list_on_sale(transaction: &Transaction) -> Result<Vec<EventId>, Error> {
    let rows = transaction.query(LIST_ON_SALE, &[]).await?;
    rows.iter().map(|row| Ok(EventId::from_uuid(column(row, "event_id")?))).collect()
}

/// The sectors of an event, with their layouts.
pub async fn sectors(transaction: &Transaction, event: &Event) -> Result<Vec<Sector>, Error> {
    let rows = transaction.query(SECTORS, &[&event.id.as_uuid()]).await?;
    rows.iter().map(|row| read_sector(row, event.details.currency)).collect()
}

/// The sectors of each event, without layouts.
pub async fn sectors_without_layout(
    transaction: &Transaction,
    events: &[Event],
) -> Result<HashMap<EventId, Vec<Sector>>, Error> {
    let currencies: HashMap<Uuid, Currency> =
        events.iter().map(|event| (event.id.as_uuid(), event.details.currency)).collect();
    let ids: Vec<Uuid> = currencies.keys().copied().collect();
    let mut sectors: HashMap<EventId, Vec<Sector>> = HashMap::new();
    for row in transaction.query(SECTORS_WITHOUT_LAYOUT, &[&ids]).await? {
        let event_id: Uuid = column(&row, "event_id")?;
        if let Some(currency) = currencies.get(&event_id) {
            sectors.entry(EventId::from_uuid(event_id)).or_default().push(read_sector(&row, *currency)?);
        }
    }
    Ok(sectors)
}

/// Notes that all tickets of `revision` exist; an older one than known changes nothing.
pub async fn record_generation(
    transaction: &Transaction,
    event_id: EventId,
    revision: i64,
) -> Result<(), Error> {
    transaction.execute(GENERATED, &[&event_id.as_uuid(), &revision]).await?;
    Ok(())
}

/// The time zones that the database knows. It reads a file for each.
pub async fn time_zones(transaction: &Transaction) -> Result<HashSet<String>, Error> {
    transaction.query(TIME_ZONES, &[]).await?.iter().map(|row| Ok(column(row, "name")?)).collect()
}

/// Runs `sql`, which writes the event and takes all that is kept of it.
async fn write(
    transaction: &Transaction,
    sql: &'static str,
    event_id: EventId,
    organizer_id: OrganizerId,
    details: &Details,
    sectors: &[Sector],
) -> Result<Event, Error> {
    let row = transaction
        .query_one(
            sql,
            &[
                &event_id.as_uuid(),
                &organizer_id.as_uuid(),
                &details.name,
                &details.description,
                &details.venue.name,
                &details.venue.address,
                &details.venue.time_zone,
                &database_time(details.start_time),
                &details.on_sale_time.map(database_time),
                &details.currency.code(),
                &database_number(details.units_per_customer_max),
                &capacity(sectors),
            ],
        )
        .await?;
    read(&row)
}

async fn insert_sectors(
    transaction: &Transaction,
    event_id: EventId,
    sectors: &[Sector],
) -> Result<(), Error> {
    let ids: Vec<Uuid> = sectors.iter().map(|sector| sector.id.as_uuid()).collect();
    let names: Vec<&str> = sectors.iter().map(|sector| sector.name.as_str()).collect();
    let prices: Vec<i64> = sectors.iter().map(|sector| sector.price.amount_minor()).collect();
    let capacities: Vec<i32> = sectors.iter().map(|sector| database_number(sector.capacity)).collect();
    let layouts: Vec<Option<String>> = sectors
        .iter()
        .map(|sector| sector.layout.as_ref().map(serde_json::to_string).transpose())
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Stored { what: "layout", source: Some(source) })?;
    let event_id = event_id.as_uuid();
    transaction.execute(INSERT_SECTORS, &[&event_id, &ids, &names, &prices, &capacities, &layouts]).await?;
    Ok(())
}

fn capacity(sectors: &[Sector]) -> i32 {
    database_number(sectors.iter().map(|sector| sector.capacity).fold(0, u32::saturating_add))
}

fn read(row: &Row) -> Result<Event, Error> {
    let unknown = |what| Error::Stored { what, source: None };
    Ok(Event {
        id: EventId::from_uuid(column(row, "event_id")?),
        organizer_id: OrganizerId::from_uuid(column(row, "organizer_id")?),
        state: EventState::from_name(column(row, "state")?).ok_or(unknown("state"))?,
        details: Details {
            name: column(row, "name")?,
            description: column(row, "description")?,
            venue: Venue {
                name: column(row, "venue_name")?,
                address: column(row, "venue_address")?,
                time_zone: column(row, "time_zone")?,
            },
            start_time: time(row, "start_time")?,
            on_sale_time: optional_time(row, "on_sale_time")?,
            currency: Currency::parse(column(row, "currency_code")?).map_err(|_| unknown("currency_code"))?,
            units_per_customer_max: number(row, "units_per_customer_max")?,
        },
        capacity: number(row, "capacity")?,
        revision: u64::try_from(column::<i64>(row, "revision")?).map_err(|_| unknown("revision"))?,
        create_time: time(row, "create_time")?,
        update_time: time(row, "update_time")?,
        activate_time: optional_time(row, "activate_time")?,
        end_time: optional_time(row, "end_time")?,
    })
}

fn read_sector(row: &Row, currency: Currency) -> Result<Sector, Error> {
    let layout = column::<Option<&str>>(row, "layout")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|source| Error::Stored { what: "layout", source: Some(source) })?;
    Ok(Sector {
        id: SectorId::from_uuid(column(row, "sector_id")?),
        name: column(row, "name")?,
        price: Money::new(column(row, "price_minor")?, currency),
        capacity: number(row, "capacity")?,
        layout,
    })
}
