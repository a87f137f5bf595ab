//! Holds and their units in Postgres. What many callers ask for at the same time is written by one statement for all.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, SystemTime},
};

use onsale_storage::postgres::{Row, ToSql, Transaction, column};
use onsale_types::{CustomerId, EventId, HoldId, InvitationId, QuotaId, SectorId, Timestamp};
use uuid::Uuid;

use super::{database_number, database_time, number, time};
use crate::{
    domain::hold::{Hold, HoldItem, HoldState, Invited},
    error::Error,
};

macro_rules! columns {
    () => {
        "hold_id, event_id, customer_id, state, items::text AS items, quota_id, invitation_id, create_time,
         expire_time"
    };
}

// Each waits for a transaction that makes the same hold right now, and then finds it made. In one order for everybody: two
// that make the same two holds must not wait for each other.
macro_rules! insert {
    () => {
        "INSERT INTO hold (hold_id, event_id, customer_id, state, items, create_time, expire_time,
            quota_id, invitation_id)
        SELECT hold_id, event_id, customer_id, 'HELD', items::jsonb, now(), expire_time, quota_id, invitation_id
        FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::uuid[], $7::uuid[])
            AS new (hold_id, event_id, customer_id, items, expire_time, quota_id, invitation_id)
        ORDER BY hold_id"
    };
}
const INSERT_ALL: &str = insert!();
const INSERT: &str = concat!(insert!(), " ON CONFLICT DO NOTHING RETURNING hold_id");
// A hold that was given back before it was made: who makes it now finds it so. It is nobody's, and of no event.
const INSERT_RELEASED: &str =
    "INSERT INTO hold (hold_id, event_id, customer_id, state, items, create_time, expire_time,
        end_time)
    SELECT hold_id, $2, $2, 'RELEASED', '[]', now(), now() + interval '1 second', now()
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

// In one order for everybody: two that want the same two units must not wait for each other. Of two in one statement that
// want the same unit, the one that came first gets it.
macro_rules! insert_units {
    () => {
        "INSERT INTO hold_unit (sector_id, unit, hold_id)
        SELECT sector_id, unit, hold_id
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) WITH ORDINALITY
            AS new (sector_id, unit, hold_id, place)
        ORDER BY sector_id, unit, place"
    };
}
const INSERT_ALL_UNITS: &str = insert_units!();
const INSERT_UNITS: &str =
    concat!(insert_units!(), " ON CONFLICT DO NOTHING RETURNING sector_id, unit, hold_id");
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
pub async fn insert(tx: &Transaction, holds: &[&Hold]) -> Result<HashSet<HoldId>, Error> {
    if holds.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = tx.query(INSERT, &HoldColumns::of(holds)?.parameters()).await?;
    rows.iter().map(|row| Ok(HoldId::from_uuid(column(row, "hold_id")?))).collect()
}

/// Writes new holds with their units. When one of either is there before, the transaction fails with a conflict. Where none is, that
/// is half the work for Postgres: it need not look for each row first, nor mark each as its own afterwards.
pub async fn insert_all(tx: &Transaction, holds: &[&Hold]) -> Result<(), Error> {
    if holds.is_empty() {
        return Ok(());
    }
    let (sectors, numbers, hold_ids) = hold_unit_columns(&units_of(holds.iter().copied()));
    tx.execute(INSERT_ALL_UNITS, &[&sectors, &numbers, &hold_ids]).await?;
    tx.execute(INSERT_ALL, &HoldColumns::of(holds)?.parameters()).await?;
    Ok(())
}

/// Notes holds that were never made as released, unless they are made right now.
pub async fn insert_released(tx: &Transaction, ids: &[HoldId]) -> Result<(), Error> {
    if !ids.is_empty() {
        tx.execute(INSERT_RELEASED, &[&uuids(ids), &Uuid::nil()]).await?;
    }
    Ok(())
}

/// Makes units their holds'. Answers those that are.
pub async fn insert_units(tx: &Transaction, units: &[HoldUnit]) -> Result<HashSet<HoldUnit>, Error> {
    if units.is_empty() {
        return Ok(HashSet::new());
    }
    let (sectors, numbers, holds) = hold_unit_columns(units);
    let rows = tx.query(INSERT_UNITS, &[&sectors, &numbers, &holds]).await?;
    rows.iter()
        .map(|row| {
            let sector_id = SectorId::from_uuid(column(row, "sector_id")?);
            Ok((sector_id, number(row, "unit")?, HoldId::from_uuid(column(row, "hold_id")?)))
        })
        .collect()
}

/// Makes units nobody's, as far as they are these holds'.
pub async fn delete_units(tx: &Transaction, units: &[HoldUnit]) -> Result<(), Error> {
    if !units.is_empty() {
        let (sectors, numbers, holds) = hold_unit_columns(units);
        tx.execute(DELETE_UNITS, &[&sectors, &numbers, &holds]).await?;
    }
    Ok(())
}

/// The holds with these ids, as far as there are.
pub async fn find(tx: &Transaction, ids: &[HoldId]) -> Result<HashMap<HoldId, Hold>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&tx.query(FIND, &[&uuids(ids)]).await?)
}

/// The holds with these ids, as far as there are, locked until the transaction ends.
pub async fn lock(tx: &Transaction, ids: &[HoldId]) -> Result<HashMap<HoldId, Hold>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    by_id(&tx.query(LOCK, &[&uuids(ids)]).await?)
}

/// Ends locked holds that are HELD.
pub async fn end(tx: &Transaction, holds: &[Hold], state: HoldState) -> Result<(), Error> {
    if !holds.is_empty() {
        let ids: Vec<Uuid> = holds.iter().map(|hold| hold.id.as_uuid()).collect();
        tx.execute(END, &[&ids, &state.name()]).await?;
    }
    Ok(())
}

/// Releases holds past their time, at most `holds_max`. Their units are still theirs.
pub async fn expire(tx: &Transaction, holds_max: u32) -> Result<Vec<Hold>, Error> {
    let rows = tx.query(EXPIRE, &[&i64::from(holds_max)]).await?;
    rows.iter().map(read).collect()
}

/// The units of `holds`.
#[must_use]
pub fn units_of<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> Vec<HoldUnit> {
    let of_item = |hold: HoldId, item: &'a HoldItem| {
        item.units.iter().map(move |unit| (item.sector_id, unit.number, hold))
    };
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
    items: Vec<String>,
    expire_times: Vec<SystemTime>,
    quotas: Vec<Option<Uuid>>,
    invitations: Vec<Option<Uuid>>,
}

impl HoldColumns {
    fn of(holds: &[&Hold]) -> Result<Self, Error> {
        let of = |pick: fn(&Hold) -> Uuid| -> Vec<Uuid> { holds.iter().map(|hold| pick(hold)).collect() };
        let invited = |pick: fn(Invited) -> Uuid| -> Vec<Option<Uuid>> {
            holds.iter().map(|hold| hold.invited.map(pick)).collect()
        };
        Ok(Self {
            ids: of(|hold| hold.id.as_uuid()),
            events: of(|hold| hold.event_id.as_uuid()),
            customers: of(|hold| hold.customer_id.as_uuid()),
            items: holds.iter().map(|hold| items_text(&hold.items)).collect::<Result<_, _>>()?,
            expire_times: holds.iter().map(|hold| database_time(hold.expire_time)).collect(),
            quotas: invited(|it| it.quota_id.as_uuid()),
            invitations: invited(|it| it.invitation_id.as_uuid()),
        })
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 7] {
        let Self { ids, events, customers, items, expire_times, quotas, invitations } = self;
        [ids, events, customers, items, expire_times, quotas, invitations]
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

fn items_text(items: &[HoldItem]) -> Result<String, Error> {
    serde_json::to_string(items).map_err(|source| Error::Stored { what: "items", source: Some(source) })
}

fn by_id(rows: &[Row]) -> Result<HashMap<HoldId, Hold>, Error> {
    rows.iter().map(|row| read(row).map(|hold| (hold.id, hold))).collect()
}

fn read(row: &Row) -> Result<Hold, Error> {
    let items = serde_json::from_str(column(row, "items")?)
        .map_err(|source| Error::Stored { what: "items", source: Some(source) })?;
    let state = HoldState::from_name(column(row, "state")?);
    let quota_id = column::<Option<Uuid>>(row, "quota_id")?.map(QuotaId::from_uuid);
    let invitation_id = column::<Option<Uuid>>(row, "invitation_id")?.map(InvitationId::from_uuid);
    let invited = quota_id.zip(invitation_id);
    Ok(Hold {
        id: HoldId::from_uuid(column(row, "hold_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        customer_id: CustomerId::from_uuid(column(row, "customer_id")?),
        state: state.ok_or(Error::Stored { what: "state", source: None })?,
        items,
        invited: invited.map(|(quota_id, invitation_id)| Invited { quota_id, invitation_id }),
        create_time: time(row, "create_time")?,
        expire_time: time(row, "expire_time")?,
    })
}
