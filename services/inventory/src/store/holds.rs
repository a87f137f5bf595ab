//! Holds and their units in Postgres. What many callers ask for at the same time is written by one statement for all.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    time::{Duration, SystemTime},
};

use onsale_storage::postgres::{CopyRows, Row, ToSql, Transaction, Type, column};
use onsale_types::{CustomerId, EventId, HoldId, InvitationId, QuotaId, SectorId, Timestamp};
use uuid::Uuid;

use super::{database_number, database_time, number, time};
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

// Half of what INSERT takes: no row is looked for first, and Postgres writes those of a page at once.
const COPY: &str = "COPY hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time)
    FROM STDIN (FORMAT binary)";
const COPY_TYPES: [Type; 7] =
    [Type::UUID, Type::UUID, Type::UUID, Type::TEXT, Type::UUID_ARRAY, Type::INT4_ARRAY, Type::TIMESTAMPTZ];
// Each waits for a transaction that makes the same hold right now, and then finds it made. In one order for everybody: two
// that make the same two holds must not wait for each other. There are no arrays of arrays in Postgres, so those of each hold
// come as text.
const INSERT: &str = "INSERT INTO hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, quota_id,
        invitation_id)
    SELECT hold_id, event_id, customer_id, 'HELD', unit_sectors::uuid[], units::integer[], expire_time, quota_id,
        invitation_id
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::uuid[], $8::uuid[])
        AS new (hold_id, event_id, customer_id, unit_sectors, units, expire_time, quota_id, invitation_id)
    ORDER BY hold_id
    ON CONFLICT DO NOTHING RETURNING hold_id";
// A hold that was given back before it was made: who makes it now finds it so. It is nobody's, and of no event.
const INSERT_RELEASED: &str =
    "INSERT INTO hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, end_time)
    SELECT hold_id, $2, $2, 'RELEASED', '{}', '{}', now() + interval '1 second', now()
    FROM unnest($1::uuid[]) AS new (hold_id) ORDER BY hold_id
    ON CONFLICT DO NOTHING";
// Here and below by one look into the index for each, which `OFFSET 0` keeps from becoming a join: Postgres makes its plan
// while the table is small, and would read all of it when it is large.
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
// Whoever releases or commits one of them right now decides about it; the next round sees what is left.
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
// In one order for everybody: two that want the same two units must not wait for each other. Of two in one statement that
// want the same unit, the one that came first gets it.
const INSERT_UNITS: &str = "INSERT INTO hold_unit (sector_id, unit, hold_id)
    SELECT sector_id, unit, hold_id
    FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) WITH ORDINALITY AS new (sector_id, unit, hold_id, place)
    ORDER BY sector_id, unit, place
    ON CONFLICT DO NOTHING RETURNING sector_id, unit, hold_id";
const DELETE_UNITS: &str = "DELETE FROM hold_unit WHERE ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS gone (sector_id, unit, hold_id) CROSS JOIN LATERAL (
            SELECT ctid FROM hold_unit
            WHERE hold_unit.sector_id = gone.sector_id AND hold_unit.unit = gone.unit
                AND hold_unit.hold_id = gone.hold_id
            FOR UPDATE) AS found))";

/// A unit of a hold.
pub type HoldUnit = (SectorId, u32, HoldId);

/// When a hold made at `now` is released by itself.
#[must_use]
pub fn expire_time(now: Timestamp, release_after: Duration) -> Timestamp {
    now.checked_add(release_after).unwrap_or(now)
}

/// Writes new holds; answers those that are new indeed. The others were there before.
pub async fn insert(transaction: &Transaction, holds: &[&Hold]) -> Result<HashSet<HoldId>, Error> {
    if holds.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = transaction.query(INSERT, &HoldColumns::of(holds).parameters()).await?;
    rows.iter().map(|row| Ok(HoldId::from_uuid(column(row, "hold_id")?))).collect()
}

/// Writes new holds of the public sale with their units. When one of either is there before, the transaction fails with a
/// conflict. In the order in which [`insert_units`] and [`insert`] write, and for the same reason.
pub async fn copy(transaction: &Transaction, holds: &[&Hold]) -> Result<(), Error> {
    if holds.is_empty() {
        return Ok(());
    }
    let mut units = units_of(holds.iter().copied());
    units.sort_unstable();
    let mut rows = CopyRows::of(&COPY_UNITS_TYPES, units.len());
    for (sector_id, unit, hold_id) in units {
        rows.push(&[&sector_id.as_uuid(), &database_number(unit), &hold_id.as_uuid()])?;
    }
    transaction.copy_in(COPY_UNITS, rows).await?;
    let mut holds = holds.to_vec();
    holds.sort_unstable_by_key(|hold| hold.id);
    let mut rows = CopyRows::of(&COPY_TYPES, holds.len());
    for hold in holds {
        let (sectors, numbers) = unit_columns(hold);
        let (hold_id, event_id) = (hold.id.as_uuid(), hold.event_id.as_uuid());
        let (customer_id, state) = (hold.customer_id.as_uuid(), hold.state.name());
        let expire_time = database_time(hold.expire_time);
        rows.push(&[&hold_id, &event_id, &customer_id, &state, &sectors, &numbers, &expire_time])?;
    }
    transaction.copy_in(COPY, rows).await?;
    Ok(())
}

/// Notes holds that were never made as released, unless they are made right now.
pub async fn insert_released(transaction: &Transaction, ids: &[HoldId]) -> Result<(), Error> {
    if !ids.is_empty() {
        transaction.execute(INSERT_RELEASED, &[&uuids(ids), &Uuid::nil()]).await?;
    }
    Ok(())
}

/// Makes units their holds'. Answers those that are.
pub async fn insert_units(transaction: &Transaction, units: &[HoldUnit]) -> Result<HashSet<HoldUnit>, Error> {
    if units.is_empty() {
        return Ok(HashSet::new());
    }
    let (sectors, numbers, holds) = hold_unit_columns(units);
    let rows = transaction.query(INSERT_UNITS, &[&sectors, &numbers, &holds]).await?;
    rows.iter()
        .map(|row| {
            let sector_id = SectorId::from_uuid(column(row, "sector_id")?);
            Ok((sector_id, number(row, "unit")?, HoldId::from_uuid(column(row, "hold_id")?)))
        })
        .collect()
}

/// Makes units nobody's, as far as they are these holds'.
pub async fn delete_units(transaction: &Transaction, units: &[HoldUnit]) -> Result<(), Error> {
    if !units.is_empty() {
        let (sectors, numbers, holds) = hold_unit_columns(units);
        transaction.execute(DELETE_UNITS, &[&sectors, &numbers, &holds]).await?;
    }
    Ok(())
}

/// The holds with these ids, as far as there are.
pub async fn find(transaction: &Transaction, ids: &[HoldId]) -> Result<HashMap<HoldId, Hold>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&transaction.query(FIND, &[&uuids(ids)]).await?)
}

/// The holds with these ids, as far as there are, locked until the transaction ends.
pub async fn lock(transaction: &Transaction, ids: &[HoldId]) -> Result<HashMap<HoldId, Hold>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&transaction.query(LOCK, &[&uuids(ids)]).await?)
}

/// Ends locked holds that are HELD.
pub async fn end(transaction: &Transaction, holds: &[Hold], state: HoldState) -> Result<(), Error> {
    if !holds.is_empty() {
        let ids: Vec<Uuid> = holds.iter().map(|hold| hold.id.as_uuid()).collect();
        transaction.execute(END, &[&ids, &state.name()]).await?;
    }
    Ok(())
}

/// Releases holds past their time, at most `holds_max`. Their units are still theirs.
pub async fn expire(transaction: &Transaction, holds_max: u32) -> Result<Vec<Hold>, Error> {
    let rows = transaction.query(EXPIRE, &[&i64::from(holds_max)]).await?;
    rows.iter().map(read).collect()
}

/// The units of `holds`.
#[must_use]
pub fn units_of<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> Vec<HoldUnit> {
    let of_item =
        |hold: HoldId, item: &'a HoldItem| item.units.iter().map(move |unit| (item.sector_id, *unit, hold));
    holds
        .into_iter()
        .flat_map(|hold| hold.items.iter().flat_map(move |item| of_item(hold.id, item)))
        .collect()
}

/// The unit numbers in the rows' column `unit`.
pub(super) fn read_units(rows: &[Row]) -> Result<Vec<u32>, Error> {
    rows.iter().map(|row| number(row, "unit")).collect()
}

/// What is written of new holds, column by column.
struct HoldColumns {
    ids: Vec<Uuid>,
    events: Vec<Uuid>,
    customers: Vec<Uuid>,
    unit_sectors: Vec<String>,
    units: Vec<String>,
    expire_times: Vec<SystemTime>,
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
            expire_times: holds.iter().map(|hold| database_time(hold.expire_time)).collect(),
            quotas: invited(|it| it.quota_id.as_uuid()),
            invitations: invited(|it| it.invitation_id.as_uuid()),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        let Self { ids, events, customers, unit_sectors, units, expire_times, quotas, invitations } = self;
        [ids, events, customers, unit_sectors, units, expire_times, quotas, invitations]
    }
}

fn hold_unit_columns(units: &[HoldUnit]) -> (Vec<Uuid>, Vec<i32>, Vec<Uuid>) {
    let holds = units.iter().map(|(_, _, hold_id)| hold_id.as_uuid()).collect();
    let columns = units.iter().map(|(sector_id, unit, _)| (sector_id.as_uuid(), database_number(*unit)));
    let (sectors, numbers) = columns.unzip();
    (sectors, numbers, holds)
}

fn uuids(ids: &[HoldId]) -> Vec<Uuid> {
    ids.iter().map(HoldId::as_uuid).collect()
}

/// The units of a hold, each beside its sector.
fn unit_columns(hold: &Hold) -> (Vec<Uuid>, Vec<i32>) {
    let of_item = |item: &HoldItem| {
        let sector_id = item.sector_id.as_uuid();
        item.units.iter().map(|unit| (sector_id, database_number(*unit))).collect::<Vec<_>>()
    };
    hold.items.iter().flat_map(of_item).unzip()
}

/// An array as Postgres reads it from text.
fn array_text<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(T::to_string).collect();
    format!("{{{}}}", values.join(","))
}

fn by_id(rows: &[Row]) -> Result<HashMap<HoldId, Hold>, Error> {
    rows.iter().map(|row| read(row).map(|hold| (hold.id, hold))).collect()
}

fn read(row: &Row) -> Result<Hold, Error> {
    let state = HoldState::from_name(column(row, "state")?);
    let quota_id = column::<Option<Uuid>>(row, "quota_id")?.map(QuotaId::from_uuid);
    let invitation_id = column::<Option<Uuid>>(row, "invitation_id")?.map(InvitationId::from_uuid);
    let invited = quota_id.zip(invitation_id);
    Ok(Hold {
        id: HoldId::from_uuid(column(row, "hold_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        customer_id: CustomerId::from_uuid(column(row, "customer_id")?),
        state: state.ok_or(Error::Stored { what: "state", source: None })?,
        items: read_items(row)?,
        invited: invited.map(|(quota_id, invitation_id)| Invited { quota_id, invitation_id }),
        create_time: time(row, "create_time")?,
        expire_time: time(row, "expire_time")?,
    })
}

fn read_items(row: &Row) -> Result<Vec<HoldItem>, Error> {
    let sectors: Vec<Uuid> = column(row, "unit_sectors")?;
    let numbers: Vec<i32> = column(row, "units")?;
    let mut items: Vec<HoldItem> = Vec::new();
    for (sector_id, number) in sectors.into_iter().map(SectorId::from_uuid).zip(numbers) {
        let unit =
            u32::try_from(number).map_err(|_negative| Error::Stored { what: "units", source: None })?;
        match items.last_mut() {
            Some(item) if item.sector_id == sector_id => item.units.push(unit),
            Some(_) | None => items.push(HoldItem { sector_id, units: vec![unit] }),
        }
    }
    Ok(items)
}
