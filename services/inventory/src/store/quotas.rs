//! Quotas in Postgres. The units that a quota keeps are rows of `hold_unit` with the quota's id in `hold_id`, so no hold can take
//! them. Such a row is changed or deleted only under the lock of its quota, or of the hold that has it.

use onsale_storage::postgres::{
    Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime},
};
use onsale_types::{EventId, HoldId, Named as _, QuotaId, SectorId, Timestamp};
use uuid::Uuid;

use super::unit_array;
use crate::{
    domain::{
        event::Sector,
        quota::{KeptSector, Quota},
        unit_set::UnitSet,
    },
    error::Error,
};

macro_rules! columns {
    () => {
        "quota_id, event_id, sector_id, name, cardinality(units) AS unit_count, invited_count, used_count, state,
         return_time, create_time"
    };
}

const INSERT: &str = concat!(
    "INSERT INTO quota (quota_id, event_id, sector_id, name, units, state, return_time)
     VALUES ($1, $2, $3, $4, $5, 'OPEN', $6) RETURNING ",
    columns!()
);
const FIND: &str = concat!("SELECT ", columns!(), " FROM quota WHERE quota_id = $1");
const LOCK: &str = concat!("SELECT ", columns!(), " FROM quota WHERE quota_id = $1 FOR UPDATE");
// Skips a quota that another transaction invites to or reserves from right now; the next round sees it.
const LOCK_DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM quota WHERE state = 'OPEN' AND return_time <= now() ORDER BY return_time LIMIT 1 FOR UPDATE SKIP LOCKED"
);
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM quota WHERE event_id = $1 AND ($2::timestamptz IS NULL OR (create_time, quota_id) > ($2, $3))
     ORDER BY create_time, quota_id LIMIT $4"
);
const KEPT_SECTORS: &str = "SELECT sector_id, max(return_time) AS return_time FROM quota
    WHERE event_id = $1 GROUP BY sector_id";
const SAVE: &str = "UPDATE quota SET invited_count = $2, used_count = $3, state = $4 WHERE quota_id = $1";
// A draft has no counts until its first quota.
const BEGIN_COUNT: &str = "INSERT INTO sector_sale (sector_id, event_id, capacity) VALUES ($1, $2, $3)
    ON CONFLICT DO NOTHING";

// Every transaction inserts units in rising order, so that two transactions cannot deadlock.
const KEEP_UNITS: &str = "WITH kept AS (
        INSERT INTO hold_unit (sector_id, unit, hold_id)
        SELECT $1, unit, $2 FROM unnest($3::integer[]) AS new (unit) ORDER BY unit
        ON CONFLICT DO NOTHING RETURNING unit)
    SELECT array_agg(unit) AS units FROM kept";
const KEPT_UNITS: &str =
    "SELECT array_agg(unit) AS units FROM hold_unit WHERE sector_id = $1 AND hold_id = $2";
const MOVE_UNITS: &str = "UPDATE hold_unit SET hold_id = $3
    WHERE sector_id = $1 AND unit = ANY ($4) AND hold_id = $2";
const DELETE_UNITS: &str = "WITH gone AS (
        DELETE FROM hold_unit WHERE sector_id = $1 AND hold_id = $2 RETURNING unit)
    SELECT array_agg(unit ORDER BY unit) AS units FROM gone";

/// Inserts a quota of `units`, which it already keeps.
pub(crate) async fn insert(
    transaction: &Transaction,
    quota_id: QuotaId,
    (event_id, sector_id): (EventId, SectorId),
    name: &str,
    units: &[u32],
    return_time: Timestamp,
) -> Result<Quota, Error> {
    let (id, event_id, sector_id) = (quota_id.as_uuid(), event_id.as_uuid(), sector_id.as_uuid());
    let (units, return_time) = (unit_array(units), SqlTime(return_time));
    read(&transaction.query_one(INSERT, &[&id, &event_id, &sector_id, &name, &units, &return_time]).await?)
}

pub(crate) async fn find(transaction: &Transaction, quota_id: QuotaId) -> Result<Option<Quota>, Error> {
    transaction.query_opt(FIND, &[&quota_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Returns the quota, locked until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction, quota_id: QuotaId) -> Result<Option<Quota>, Error> {
    transaction.query_opt(LOCK, &[&quota_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Returns one open quota past its return time, locked.
pub(crate) async fn lock_due(transaction: &Transaction) -> Result<Option<Quota>, Error> {
    transaction.query_opt(LOCK_DUE, &[]).await?.as_ref().map(read).transpose()
}

/// Returns quotas of an event, oldest first.
pub(crate) async fn list(
    transaction: &Transaction,
    event_id: EventId,
    after: Option<(Timestamp, QuotaId)>,
    rows_max: u32,
) -> Result<Vec<Quota>, Error> {
    let (after_time, after_id) = after.unzip();
    let after_id = after_id.map(|id: QuotaId| id.as_uuid());
    let rows = transaction
        .query(LIST, &[&event_id.as_uuid(), &after_time.map(SqlTime), &after_id, &i64::from(rows_max)])
        .await?;
    rows.iter().map(read).collect()
}

/// Returns the sectors of an event that have had quotas.
pub(crate) async fn kept_sectors(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<Vec<KeptSector>, Error> {
    let kept = |row: &Row| {
        let (sector_id, return_time) = (row.read_id("sector_id")?, row.read_time("return_time")?);
        Ok(KeptSector { sector_id, return_time })
    };
    transaction.query(KEPT_SECTORS, &[&event_id.as_uuid()]).await?.iter().map(kept).collect()
}

/// Writes the changeable columns of a locked quota.
pub(crate) async fn save(transaction: &Transaction, quota: &Quota) -> Result<(), Error> {
    let (invited, used) = (SqlCount(quota.invited_count), SqlCount(quota.used_count));
    transaction.execute(SAVE, &[&quota.id.as_uuid(), &invited, &used, &quota.state.name()]).await?;
    Ok(())
}

/// Inserts the counts of `sector`, if it has none.
pub(crate) async fn begin_count(
    transaction: &Transaction,
    event_id: EventId,
    sector: &Sector,
) -> Result<(), Error> {
    let capacity = SqlCount(sector.capacity);
    transaction.execute(BEGIN_COUNT, &[&sector.id.as_uuid(), &event_id.as_uuid(), &capacity]).await?;
    Ok(())
}

/// Inserts `units` as the quota's. Returns the units that were taken before; if there are any, the transaction must not commit.
pub(crate) async fn keep_units(
    transaction: &Transaction,
    quota_id: QuotaId,
    sector: &Sector,
    units: &[u32],
) -> Result<Vec<u32>, Error> {
    let parameters = (sector.id.as_uuid(), quota_id.as_uuid(), unit_array(units));
    let row = transaction.query_one(KEEP_UNITS, &[&parameters.0, &parameters.1, &parameters.2]).await?;
    let kept = set(&read_units(&row)?, sector.capacity);
    Ok(units.iter().copied().filter(|unit| !kept.contains(*unit)).collect())
}

/// Returns the units that a locked quota keeps, without those that invitees hold or have bought.
pub(crate) async fn kept_units(
    transaction: &Transaction,
    quota: &Quota,
    sector: &Sector,
) -> Result<UnitSet, Error> {
    let row = transaction.query_one(KEPT_UNITS, &[&quota.sector_id.as_uuid(), &quota.id.as_uuid()]).await?;
    Ok(set(&read_units(&row)?, sector.capacity))
}

/// Moves kept units of a locked quota to a hold.
pub(crate) async fn give_units(
    transaction: &Transaction,
    quota: &Quota,
    hold_id: HoldId,
    units: &[u32],
) -> Result<(), Error> {
    move_units(transaction, quota.sector_id, quota.id.as_uuid(), hold_id.as_uuid(), units).await
}

/// Moves the units of a hold back to its quota; both must be locked.
pub(crate) async fn release_units(
    transaction: &Transaction,
    quota: &Quota,
    hold_id: HoldId,
    units: &[u32],
) -> Result<(), Error> {
    move_units(transaction, quota.sector_id, hold_id.as_uuid(), quota.id.as_uuid(), units).await
}

/// Deletes the rows of the units that a locked quota keeps, and returns the units in rising order.
pub(crate) async fn free_units(transaction: &Transaction, quota: &Quota) -> Result<Vec<u32>, Error> {
    read_units(
        &transaction.query_one(DELETE_UNITS, &[&quota.sector_id.as_uuid(), &quota.id.as_uuid()]).await?,
    )
}

async fn move_units(
    transaction: &Transaction,
    sector_id: SectorId,
    from: Uuid,
    to: Uuid,
    units: &[u32],
) -> Result<(), Error> {
    let numbers = unit_array(units);
    let moved = transaction.execute(MOVE_UNITS, &[&sector_id.as_uuid(), &from, &to, &numbers]).await?;
    if usize::try_from(moved) == Ok(units.len()) {
        Ok(())
    } else {
        // They were read under the same lock.
        Err(Error::Inconsistent { what: "units of a quota" })
    }
}

fn set(units: &[u32], capacity: u32) -> UnitSet {
    let mut set = UnitSet::empty(capacity);
    for unit in units {
        set.insert(*unit);
    }
    set
}

/// Reads the array `units`; NULL: none.
fn read_units(row: &Row) -> Result<Vec<u32>, Error> {
    let units = row.read::<Option<Vec<SqlCount<u32>>>>("units")?.unwrap_or_default();
    Ok(units.into_iter().map(|unit| unit.0).collect())
}

fn read(row: &Row) -> Result<Quota, Error> {
    Ok(Quota {
        id: row.read_id("quota_id")?,
        event_id: row.read_id("event_id")?,
        sector_id: row.read_id("sector_id")?,
        name: row.read("name")?,
        unit_count: row.read_count("unit_count")?,
        invited_count: row.read_count("invited_count")?,
        used_count: row.read_count("used_count")?,
        state: row.read_named("state")?,
        return_time: row.read_time("return_time")?,
        create_time: row.read_time("create_time")?,
    })
}
