//! Holds and their units in Postgres. One statement writes the rows of a whole batch.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    time::Duration,
};

use onsale_storage::postgres::{
    CopyRows, Row, ToSql, Transaction, Type,
    row::{RowExt as _, SqlCount, SqlTime, uuids},
};
use onsale_types::{HoldId, Named as _, SectorId, Timestamp};
use uuid::Uuid;

use super::unit_array;
use crate::{
    domain::hold::{Hold, HoldItem, HoldState, Invited},
    error::Error,
};

macro_rules! columns {
    () => {
        "hold_id, event_id, customer_id, state, unit_sectors, units, quota_id, invitation_id, create_time,
         expire_time"
    };
}

// COPY takes half the time of INSERT: it looks up no conflicting rows first and writes the rows of a page together.
const COPY: &str = "COPY hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time)
    FROM STDIN (FORMAT binary)";
const COPY_TYPES: [Type; 7] =
    [Type::UUID, Type::UUID, Type::UUID, Type::TEXT, Type::UUID_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ];
// Each row waits for a concurrent insert of the same hold and is skipped if that commits. Every transaction inserts holds in the
// order of their ids, so that two transactions cannot deadlock. Postgres has no arrays of arrays with different lengths, so the
// arrays of each hold come as text.
const INSERT: &str = "INSERT INTO hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, quota_id,
        invitation_id)
    SELECT hold_id, event_id, customer_id, 'HELD', unit_sectors::uuid[], units::integer[], expire_time, quota_id,
        invitation_id
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::uuid[], $8::uuid[])
        AS new (hold_id, event_id, customer_id, unit_sectors, units, expire_time, quota_id, invitation_id)
    ORDER BY hold_id
    ON CONFLICT DO NOTHING RETURNING hold_id";
// A tombstone: a hold that was released before it was made. A later reservation with its id finds it. Its event and customer are
// the nil UUID.
const INSERT_TOMBSTONES: &str =
    "INSERT INTO hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, end_time)
    SELECT hold_id, $2, $2, 'RELEASED', '{}', '{}', now() + interval '1 second', now()
    FROM unnest($1::uuid[]) AS new (hold_id) ORDER BY hold_id
    ON CONFLICT DO NOTHING";
// This and the next statements look up each id in the index; `OFFSET 0` keeps the planner from joining instead. Postgres plans
// them while the table is small, and a joining plan would read the whole table when it is large.
const FIND: &str = concat!(
    "SELECT found.* FROM unnest($1::uuid[]) AS asked (id) CROSS JOIN LATERAL (
         SELECT ",
    columns!(),
    " FROM hold WHERE hold.hold_id = asked.id OFFSET 0) AS found"
);
const LOCK: &str = concat!(
    "SELECT found.* FROM (SELECT DISTINCT id FROM unnest($1::uuid[]) AS asked (id) ORDER BY id) AS asked
     CROSS JOIN LATERAL (
         SELECT ",
    columns!(),
    " FROM hold WHERE hold.hold_id = asked.id FOR UPDATE) AS found"
);
const END: &str = "UPDATE hold SET state = $2, end_time = now() WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest($1::uuid[]) AS ended (id) CROSS JOIN LATERAL (
            SELECT ctid FROM hold WHERE hold.hold_id = ended.id AND state = 'HELD' OFFSET 0) AS found))";
// Skips a hold that another transaction commits or releases right now; the next round sees the result.
const EXPIRE: &str = concat!(
    "UPDATE hold SET state = 'RELEASED', end_time = now()
     WHERE ctid = ANY (ARRAY(
         SELECT ctid FROM hold WHERE state = 'HELD' AND expire_time <= now()
         ORDER BY expire_time LIMIT $1 FOR UPDATE SKIP LOCKED))
     RETURNING ",
    columns!()
);

const COPY_UNITS: &str = "COPY hold_unit (sector_id, unit, hold_id) FROM STDIN (FORMAT binary)";
const COPY_UNITS_TYPES: [Type; 3] = [Type::UUID, Type::INT4, Type::UUID];
// Every transaction inserts units in this order, so that two transactions cannot deadlock. If two holds of one statement want the
// same unit, the earlier one gets it.
const INSERT_UNITS: &str = "INSERT INTO hold_unit (sector_id, unit, hold_id)
    SELECT sector_id, unit, hold_id
    FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) WITH ORDINALITY AS new (sector_id, unit, hold_id, ordinal)
    ORDER BY sector_id, unit, ordinal
    ON CONFLICT DO NOTHING RETURNING sector_id, unit, hold_id";
const DELETE_UNITS: &str = "DELETE FROM hold_unit WHERE ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS gone (sector_id, unit, hold_id) CROSS JOIN LATERAL (
            SELECT ctid FROM hold_unit
            WHERE hold_unit.sector_id = gone.sector_id AND hold_unit.unit = gone.unit
                AND hold_unit.hold_id = gone.hold_id
            FOR UPDATE) AS found))";

/// A unit of a hold.
pub(crate) type HoldUnit = (SectorId, u32, HoldId);

/// Returns the expiry of a hold made at `now`. `release_after` is at most 24 h, so the sum overflows only at the end of the year
/// 9999.
#[must_use]
pub(crate) fn expire_time(now: Timestamp, release_after: Duration) -> Timestamp {
    now.checked_add(release_after).unwrap_or(now)
}

/// Inserts holds and returns the ids of those that did not exist.
pub(crate) async fn insert(transaction: &Transaction, holds: &[&Hold]) -> Result<HashSet<HoldId>, Error> {
    if holds.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = transaction.query(INSERT, &HoldColumns::of(holds).parameters()).await?;
    rows.iter().map(|row| Ok(row.read_id("hold_id")?)).collect()
}

/// Copies holds of the public sale and their units. One existing row of either table fails the transaction with a conflict.
/// Rows are written in the same order as by [`insert_units`] and [`insert`], so that two transactions cannot deadlock.
pub(crate) async fn copy(transaction: &Transaction, holds: &[&Hold]) -> Result<(), Error> {
    if holds.is_empty() {
        return Ok(());
    }
    let mut units = units_of(holds.iter().copied());
    units.sort_unstable();
    let mut rows = CopyRows::of(&COPY_UNITS_TYPES, units.len());
    for (sector_id, unit, hold_id) in units {
        rows.push(&[&sector_id.as_uuid(), &SqlCount(unit), &hold_id.as_uuid()])?;
    }
    transaction.copy_in(COPY_UNITS, rows).await?;
    let mut holds = holds.to_vec();
    holds.sort_unstable_by_key(|hold| hold.id);
    let mut rows = CopyRows::of(&COPY_TYPES, holds.len());
    for hold in holds {
        let (sectors, units) = unit_columns(hold);
        let units = unit_array(&units);
        let (hold_id, event_id) = (hold.id.as_uuid(), hold.event_id.as_uuid());
        let (customer_id, state) = (hold.customer_id.as_uuid(), hold.state.name());
        let expire_time = SqlTime(hold.expire_time);
        rows.push(&[&hold_id, &event_id, &customer_id, &state, &sectors, &units, &expire_time])?;
    }
    transaction.copy_in(COPY, rows).await?;
    Ok(())
}

/// Inserts tombstones for `hold_ids`. Waits for concurrent inserts of the same holds and leaves existing ones unchanged.
pub(crate) async fn insert_tombstones(transaction: &Transaction, hold_ids: &[HoldId]) -> Result<(), Error> {
    if !hold_ids.is_empty() {
        transaction.execute(INSERT_TOMBSTONES, &[&uuids(hold_ids), &Uuid::nil()]).await?;
    }
    Ok(())
}

/// Inserts units of holds and returns those that were free.
pub(crate) async fn insert_units(
    transaction: &Transaction,
    units: &[HoldUnit],
) -> Result<HashSet<HoldUnit>, Error> {
    if units.is_empty() {
        return Ok(HashSet::new());
    }
    let (sectors, numbers, holds) = hold_unit_columns(units);
    let rows = transaction.query(INSERT_UNITS, &[&sectors, &numbers, &holds]).await?;
    rows.iter()
        .map(|row| Ok((row.read_id("sector_id")?, row.read_count("unit")?, row.read_id("hold_id")?)))
        .collect()
}

/// Deletes the rows of units that still belong to the given holds.
pub(crate) async fn delete_units(transaction: &Transaction, units: &[HoldUnit]) -> Result<(), Error> {
    if !units.is_empty() {
        let (sectors, numbers, holds) = hold_unit_columns(units);
        transaction.execute(DELETE_UNITS, &[&sectors, &numbers, &holds]).await?;
    }
    Ok(())
}

/// Returns the existing holds of `hold_ids`.
pub(crate) async fn find(
    transaction: &Transaction,
    hold_ids: &[HoldId],
) -> Result<HashMap<HoldId, Hold>, Error> {
    if hold_ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&transaction.query(FIND, &[&uuids(hold_ids)]).await?)
}

/// Returns the existing holds of `hold_ids`, locked until the transaction ends.
pub(crate) async fn lock(
    transaction: &Transaction,
    hold_ids: &[HoldId],
) -> Result<HashMap<HoldId, Hold>, Error> {
    if hold_ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&transaction.query(LOCK, &[&uuids(hold_ids)]).await?)
}

/// Moves locked holds from HELD to `state`.
pub(crate) async fn end(transaction: &Transaction, holds: &[Hold], state: HoldState) -> Result<(), Error> {
    if !holds.is_empty() {
        let ids = uuids(holds.iter().map(|hold| &hold.id));
        transaction.execute(END, &[&ids, &state.name()]).await?;
    }
    Ok(())
}

/// Releases at most `holds_max` holds past their expiry and returns them. Their units still have rows.
pub(crate) async fn expire(transaction: &Transaction, holds_max: u32) -> Result<Vec<Hold>, Error> {
    let rows = transaction.query(EXPIRE, &[&i64::from(holds_max)]).await?;
    rows.iter().map(read).collect()
}

/// Returns the units of `holds`.
#[must_use]
pub(crate) fn units_of<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> Vec<HoldUnit> {
    let of_item =
        |hold: HoldId, item: &'a HoldItem| item.units.iter().map(move |unit| (item.sector_id, *unit, hold));
    holds
        .into_iter()
        .flat_map(|hold| hold.items.iter().flat_map(move |item| of_item(hold.id, item)))
        .collect()
}

/// Inserted holds, column by column.
struct HoldColumns {
    ids: Vec<Uuid>,
    events: Vec<Uuid>,
    customers: Vec<Uuid>,
    unit_sectors: Vec<String>,
    units: Vec<String>,
    expire_times: Vec<SqlTime>,
    quotas: Vec<Option<Uuid>>,
    invitations: Vec<Option<Uuid>>,
}

impl HoldColumns {
    fn of(holds: &[&Hold]) -> Self {
        let of = |pick: fn(&Hold) -> Uuid| -> Vec<Uuid> { holds.iter().map(|hold| pick(hold)).collect() };
        let invited = |pick: fn(Invited) -> Uuid| -> Vec<Option<Uuid>> {
            holds.iter().map(|hold| hold.invited.map(pick)).collect()
        };
        let (unit_sectors, units) = holds
            .iter()
            .map(|hold| unit_columns(hold))
            .map(|(sectors, numbers)| (array_text(&sectors), array_text(&numbers)))
            .unzip();
        Self {
            ids: of(|hold| hold.id.as_uuid()),
            events: of(|hold| hold.event_id.as_uuid()),
            customers: of(|hold| hold.customer_id.as_uuid()),
            unit_sectors,
            units,
            expire_times: holds.iter().map(|hold| SqlTime(hold.expire_time)).collect(),
            quotas: invited(|it| it.quota_id.as_uuid()),
            invitations: invited(|it| it.invitation_id.as_uuid()),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        let Self { ids, events, customers, unit_sectors, units, expire_times, quotas, invitations } = self;
        [ids, events, customers, unit_sectors, units, expire_times, quotas, invitations]
    }
}

fn hold_unit_columns(units: &[HoldUnit]) -> (Vec<Uuid>, Vec<SqlCount<u32>>, Vec<Uuid>) {
    let holds = units.iter().map(|(_, _, hold_id)| hold_id.as_uuid()).collect();
    let columns = units.iter().map(|(sector_id, unit, _)| (sector_id.as_uuid(), SqlCount(*unit)));
    let (sectors, numbers) = columns.unzip();
    (sectors, numbers, holds)
}

/// Returns the sector and the number of each unit of a hold, as two columns.
fn unit_columns(hold: &Hold) -> (Vec<Uuid>, Vec<u32>) {
    let of_item = |item: &HoldItem| {
        let sector_id = item.sector_id.as_uuid();
        item.units.iter().map(|unit| (sector_id, *unit)).collect::<Vec<_>>()
    };
    hold.items.iter().flat_map(of_item).unzip()
}

/// Writes an array in the text form of Postgres.
fn array_text<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(T::to_string).collect();
    format!("{{{}}}", values.join(","))
}

fn by_id(rows: &[Row]) -> Result<HashMap<HoldId, Hold>, Error> {
    rows.iter().map(|row| read(row).map(|hold| (hold.id, hold))).collect()
}

fn read(row: &Row) -> Result<Hold, Error> {
    let invited = row.read_optional_id("quota_id")?.zip(row.read_optional_id("invitation_id")?);
    Ok(Hold {
        id: row.read_id("hold_id")?,
        event_id: row.read_id("event_id")?,
        customer_id: row.read_id("customer_id")?,
        state: row.read_named("state")?,
        items: read_items(row)?,
        invited: invited.map(|(quota_id, invitation_id)| Invited { quota_id, invitation_id }),
        create_time: row.read_time("create_time")?,
        expire_time: row.read_time("expire_time")?,
    })
}

fn read_items(row: &Row) -> Result<Vec<HoldItem>, Error> {
    let sector_ids: Vec<SectorId> = row.read_ids("unit_sectors")?;
    let units: Vec<u32> = row.read_counts("units")?;
    let mut items: Vec<HoldItem> = Vec::new();
    for (sector_id, unit) in sector_ids.into_iter().zip(units) {
        match items.last_mut() {
            Some(item) if item.sector_id == sector_id => item.units.push(unit),
            Some(_) | None => items.push(HoldItem { sector_id, units: vec![unit] }),
        }
    }
    Ok(items)
}
