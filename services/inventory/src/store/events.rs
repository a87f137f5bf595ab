//! Events and sectors in Postgres.

use std::collections::{HashMap, HashSet};

use onsale_storage::postgres::{
    Json, Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime, uuids},
};
use onsale_types::{Currency, EventId, Money, Named as _, OrganizerId, Timestamp};

use crate::{
    domain::event::{Details, Event, EventState, Sector, Venue},
    error::Error,
};

/// A macro, because `concat!` takes literals only.
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
// Constraints of the table refuse a move back to DRAFT or out of ENDED.
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
// Includes sold-out events: when units become free, they are on sale again with the pools that they have then.
const LIST_ON_SALE: &str =
    "SELECT event_id FROM event WHERE state IN ('ON_SALE', 'PAUSED', 'SOLD_OUT') ORDER BY event_id";
// The subquery hides the length of the array from the planner, which would plan an array of one element again at each call.
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
    SELECT sector_id, $1, place - 1, name, price_minor, capacity, layout
    FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::integer[], $6::jsonb[])
        WITH ORDINALITY AS new (sector_id, name, price_minor, capacity, layout, place)";
const DELETE_SECTORS: &str = "DELETE FROM sector WHERE event_id = $1";
const SECTORS: &str = "SELECT sector_id, event_id, name, price_minor, capacity, layout
    FROM sector WHERE event_id = $1 ORDER BY place";
const SECTORS_WITHOUT_LAYOUT: &str =
    "SELECT sector_id, event_id, name, price_minor, capacity, NULL::jsonb AS layout
    FROM sector WHERE event_id = ANY ($1) ORDER BY event_id, place";
const BEGIN_SALE: &str = "INSERT INTO sector_sale (sector_id, event_id, capacity)
    SELECT sector_id, event_id, capacity FROM sector WHERE event_id = $1 ON CONFLICT DO NOTHING";

/// Filter and limit of a list of events.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Includes the drafts of all organizers.
    pub all_drafts: bool,
    /// Includes the drafts of this organizer.
    pub drafts_of: Option<OrganizerId>,
    /// `None`: events of all organizers.
    pub organizer_id: Option<OrganizerId>,
    /// Empty: all states.
    pub states: Vec<EventState>,
    /// Earliest start time.
    pub start_from: Option<Timestamp>,
    /// Start time before which listed events start.
    pub start_until: Option<Timestamp>,
    /// Start time and id of the event after which the list begins.
    pub after: Option<(Timestamp, EventId)>,
    pub rows_max: u32,
}

/// Inserts a draft and its sectors.
pub(crate) async fn insert(
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

/// Replaces the details and sectors of a locked draft.
pub(crate) async fn update(
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

/// Moves a locked event to `state`. The first move out of DRAFT inserts the counts of its sectors.
pub(crate) async fn move_to(
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

pub(crate) async fn find(transaction: &Transaction, event_id: EventId) -> Result<Option<Event>, Error> {
    transaction.query_opt(FIND, &[&event_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Returns the event and the database's time.
pub(crate) async fn find_now(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<Option<(Event, Timestamp)>, Error> {
    Ok(find_all_now(transaction, &[event_id]).await?.remove(&event_id))
}

/// Returns the existing events of `event_ids`, each with the database's time.
pub(crate) async fn find_all_now(
    transaction: &Transaction,
    event_ids: &[EventId],
) -> Result<HashMap<EventId, (Event, Timestamp)>, Error> {
    let rows = transaction.query(NOW_AND, &[&uuids(event_ids)]).await?;
    let found = |row: &Row| read(row).and_then(|event| Ok((event.id, (event, row.read_time("now")?))));
    rows.iter().map(found).collect()
}

/// Returns the event, locked until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction, event_id: EventId) -> Result<Option<Event>, Error> {
    transaction.query_opt(LOCK, &[&event_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Returns events by start time, without their sectors.
pub(crate) async fn list(transaction: &Transaction, filter: &Filter) -> Result<Vec<Event>, Error> {
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
                &filter.start_from.map(SqlTime),
                &filter.start_until.map(SqlTime),
                &after_time.map(SqlTime),
                &after_id.map(|id: EventId| id.as_uuid()),
                &i64::from(filter.rows_max),
            ],
        )
        .await?;
    rows.iter().map(read).collect()
}

/// Returns the events whose units may be reserved now or later.
pub(crate) async fn list_on_sale(transaction: &Transaction) -> Result<Vec<EventId>, Error> {
    let rows = transaction.query(LIST_ON_SALE, &[]).await?;
    rows.iter().map(|row| Ok(row.read_id("event_id")?)).collect()
}

/// Returns the sectors of an event with their layouts.
pub(crate) async fn sectors(transaction: &Transaction, event: &Event) -> Result<Vec<Sector>, Error> {
    let rows = transaction.query(SECTORS, &[&event.id.as_uuid()]).await?;
    rows.iter().map(|row| read_sector(row, event.details.currency)).collect()
}

/// Returns the sectors of each event without layouts.
pub(crate) async fn sectors_without_layout(
    transaction: &Transaction,
    events: &[Event],
) -> Result<HashMap<EventId, Vec<Sector>>, Error> {
    let currencies: HashMap<EventId, Currency> =
        events.iter().map(|event| (event.id, event.details.currency)).collect();
    let ids = uuids(currencies.keys());
    let mut sectors: HashMap<EventId, Vec<Sector>> = HashMap::new();
    for row in transaction.query(SECTORS_WITHOUT_LAYOUT, &[&ids]).await? {
        let event_id: EventId = row.read_id("event_id")?;
        if let Some(currency) = currencies.get(&event_id) {
            sectors.entry(event_id).or_default().push(read_sector(&row, *currency)?);
        }
    }
    Ok(sectors)
}

/// Records that all tickets of `revision` exist; does nothing if a newer revision is recorded.
pub(crate) async fn record_generation(
    transaction: &Transaction,
    event_id: EventId,
    revision: u64,
) -> Result<(), Error> {
    transaction.execute(GENERATED, &[&event_id.as_uuid(), &SqlCount(revision)]).await?;
    Ok(())
}

/// Returns the time zones that the database knows. Slow: Postgres reads one file per zone.
pub(crate) async fn time_zones(transaction: &Transaction) -> Result<HashSet<String>, Error> {
    transaction.query(TIME_ZONES, &[]).await?.iter().map(|row| Ok(row.read("name")?)).collect()
}

/// Runs `sql`, which is `INSERT` or `UPDATE` of the whole event.
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
                &SqlTime(details.start_time),
                &details.on_sale_time.map(SqlTime),
                &details.currency.code(),
                &SqlCount(details.units_per_customer_max),
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
    let ids = uuids(sectors.iter().map(|sector| &sector.id));
    let names: Vec<&str> = sectors.iter().map(|sector| sector.name.as_str()).collect();
    let prices: Vec<i64> = sectors.iter().map(|sector| sector.price.amount_minor()).collect();
    let capacities: Vec<_> = sectors.iter().map(|sector| SqlCount(sector.capacity)).collect();
    let layouts: Vec<_> = sectors.iter().map(|sector| sector.layout.as_ref().map(Json)).collect();
    let event_id = event_id.as_uuid();
    transaction.execute(INSERT_SECTORS, &[&event_id, &ids, &names, &prices, &capacities, &layouts]).await?;
    Ok(())
}

fn capacity(sectors: &[Sector]) -> SqlCount<u32> {
    SqlCount(sectors.iter().map(|sector| sector.capacity).fold(0, u32::saturating_add))
}

fn read(row: &Row) -> Result<Event, Error> {
    Ok(Event {
        id: row.read_id("event_id")?,
        organizer_id: row.read_id("organizer_id")?,
        state: row.read_named("state")?,
        details: Details {
            name: row.read("name")?,
            description: row.read("description")?,
            venue: Venue {
                name: row.read("venue_name")?,
                address: row.read("venue_address")?,
                time_zone: row.read("time_zone")?,
            },
            start_time: row.read_time("start_time")?,
            on_sale_time: row.read_optional_time("on_sale_time")?,
            currency: row.read_named("currency_code")?,
            units_per_customer_max: row.read_count("units_per_customer_max")?,
        },
        capacity: row.read_count("capacity")?,
        revision: row.read_count("revision")?,
        create_time: row.read_time("create_time")?,
        update_time: row.read_time("update_time")?,
        activate_time: row.read_optional_time("activate_time")?,
        end_time: row.read_optional_time("end_time")?,
    })
}

fn read_sector(row: &Row, currency: Currency) -> Result<Sector, Error> {
    Ok(Sector {
        id: row.read_id("sector_id")?,
        name: row.read("name")?,
        price: Money::new(row.read("price_minor")?, currency),
        capacity: row.read_count("capacity")?,
        layout: row.read_optional_json("layout")?,
    })
}
