//! Quotas in Postgres. The units that a quota keeps are rows of `hold_unit` with the quota's id as their hold's, so nobody
//! else can have them; a row is moved or removed only under the lock of its quota, or of the hold that has it.

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{EventId, HoldId, QuotaId, SectorId, Timestamp};
use uuid::Uuid;

use super::{database_number, database_time, number, time};
use crate::{
    domain::{
        event::Sector,
        quota::{KeptSector, Quota, QuotaState},
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
// Whoever invites or reserves right now goes first; the next round sees what is left.
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
// The sale of a draft has not begun, so its stock is counted from its first quota on.
const BEGIN_COUNT: &str = "INSERT INTO sector_sale (sector_id, event_id, capacity) VALUES ($1, $2, $3)
    ON CONFLICT DO NOTHING";

// In the order in which everybody takes units.
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

/// Writes a new quota of `units`, which it keeps already.
pub async fn insert(
    transaction: &Transaction,
    quota_id: QuotaId,
    (event_id, sector_id): (EventId, SectorId),
    name: &str,
    units: &[u32],
    return_time: Timestamp,
) -> Result<Quota, Error> {
    let (id, event_id, sector_id) = (quota_id.as_uuid(), event_id.as_uuid(), sector_id.as_uuid());
    let units = database_numbers(units);
    let return_time = database_time(return_time);
    read(&transaction.query_one(INSERT, &[&id, &event_id, &sector_id, &name, &units, &return_time]).await?)
}

/// The quota.
pub async fn find(transaction: &Transaction, quota_id: QuotaId) -> Result<Option<Quota>, Error> {
    transaction.query_opt(FIND, &[&quota_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// The quota, locked until the transaction ends.
pub async fn lock(transaction: &Transaction, quota_id: QuotaId) -> Result<Option<Quota>, Error> {
    transaction.query_opt(LOCK, &[&quota_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// One open quota whose time has come, locked.
pub async fn lock_due(transaction: &Transaction) -> Result<Option<Quota>, Error> {
    transaction.query_opt(LOCK_DUE, &[]).await?.as_ref().map(read).transpose()
}

/// Quotas of an event, oldest first.
pub async fn list(
    transaction: &Transaction,
    event_id: EventId,
    after: Option<(Timestamp, QuotaId)>,
    rows_max: u32,
) -> Result<Vec<Quota>, Error> {
    let (after_time, after_id) = after.unzip();
    let after_id = after_id.map(|id: QuotaId| id.as_uuid());
    let rows = transaction
        .query(LIST, &[&event_id.as_uuid(), &after_time.map(database_time), &after_id, &i64::from(rows_max)])
        .await?;
    rows.iter().map(read).collect()
}

/// The sectors of an event that a quota keeps units of, or kept.
pub async fn kept_sectors(transaction: &Transaction, event_id: EventId) -> Result<Vec<KeptSector>, Error> {
    let kept = |row: &Row| {
        let sector_id = SectorId::from_uuid(column(row, "sector_id")?);
        Ok(KeptSector { sector_id, return_time: time(row, "return_time")? })
    };
    transaction.query(KEPT_SECTORS, &[&event_id.as_uuid()]).await?.iter().map(kept).collect()
}

/// Writes what may change of a locked quota.
pub async fn save(transaction: &Transaction, quota: &Quota) -> Result<(), Error> {
    let (invited, used) = (database_number(quota.invited_count), database_number(quota.used_count));
    transaction.execute(SAVE, &[&quota.id.as_uuid(), &invited, &used, &quota.state.name()]).await?;
    Ok(())
}

/// Begins to count the stock of `sector`, unless that has begun.
pub async fn begin_count(transaction: &Transaction, event_id: EventId, sector: &Sector) -> Result<(), Error> {
    let capacity = database_number(sector.capacity);
    transaction.execute(BEGIN_COUNT, &[&sector.id.as_uuid(), &event_id.as_uuid(), &capacity]).await?;
    Ok(())
}

/// Makes `units` the quota's. Answers those that are another's: then the transaction must not commit.
pub async fn keep_units(
    transaction: &Transaction,
    quota_id: QuotaId,
    sector: &Sector,
    units: &[u32],
) -> Result<Vec<u32>, Error> {
    let parameters = (sector.id.as_uuid(), quota_id.as_uuid(), database_numbers(units));
    let row = transaction.query_one(KEEP_UNITS, &[&parameters.0, &parameters.1, &parameters.2]).await?;
    let kept = set(&read_units(&row)?, sector.capacity);
    Ok(units.iter().copied().filter(|unit| !kept.contains(*unit)).collect())
}

/// The units that a locked quota keeps and nobody holds or bought.
pub async fn kept_units(transaction: &Transaction, quota: &Quota, sector: &Sector) -> Result<UnitSet, Error> {
    let row = transaction.query_one(KEPT_UNITS, &[&quota.sector_id.as_uuid(), &quota.id.as_uuid()]).await?;
    Ok(set(&read_units(&row)?, sector.capacity))
}

/// Gives kept units of a locked quota to a hold.
pub async fn give(
    transaction: &Transaction,
    quota: &Quota,
    hold_id: HoldId,
    units: &[u32],
) -> Result<(), Error> {
    move_units(transaction, quota.sector_id, quota.id.as_uuid(), hold_id.as_uuid(), units).await
}

/// Gives the units of a hold back to its quota, both locked.
pub async fn take_back(
    transaction: &Transaction,
    quota: &Quota,
    hold_id: HoldId,
    units: &[u32],
) -> Result<(), Error> {
    move_units(transaction, quota.sector_id, hold_id.as_uuid(), quota.id.as_uuid(), units).await
}

/// Makes the units that a locked quota keeps nobody's; answers them in rising order.
pub async fn drop_units(transaction: &Transaction, quota: &Quota) -> Result<Vec<u32>, Error> {
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
    let numbers = database_numbers(units);
    let moved = transaction.execute(MOVE_UNITS, &[&sector_id.as_uuid(), &from, &to, &numbers]).await?;
    if usize::try_from(moved) == Ok(units.len()) {
        Ok(())
    } else {
        // They were read under the same lock.
        Err(Error::Stored { what: "units of a quota", source: None })
    }
}

fn set(units: &[u32], capacity: u32) -> UnitSet {
    let mut set = UnitSet::empty(capacity);
    for unit in units {
        set.insert(*unit);
    }
    set
}

fn database_numbers(units: &[u32]) -> Vec<i32> {
    units.iter().map(|unit| database_number(*unit)).collect()
}

/// The numbers in the array `units`; null: none.
fn read_units(row: &Row) -> Result<Vec<u32>, Error> {
    let negative = |_| Error::Stored { what: "units", source: None };
    let units = column::<Option<Vec<i32>>>(row, "units")?.unwrap_or_default();
    units.into_iter().map(|unit| u32::try_from(unit).map_err(negative)).collect()
}

fn read(row: &Row) -> Result<Quota, Error> {
    let state = QuotaState::from_name(column(row, "state")?);
    Ok(Quota {
        id: QuotaId::from_uuid(column(row, "quota_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        sector_id: SectorId::from_uuid(column(row, "sector_id")?),
        name: column(row, "name")?,
        unit_count: number(row, "unit_count")?,
        invited_count: number(row, "invited_count")?,
        used_count: number(row, "used_count")?,
        state: state.ok_or(Error::Stored { what: "state", source: None })?,
        return_time: time(row, "return_time")?,
        create_time: time(row, "create_time")?,
    })
}
