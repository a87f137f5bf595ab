//! How many units a customer has of an event. Whoever changes it holds its row's lock; who takes several takes them in the
//! order of their keys.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EventId, Timestamp};
use uuid::Uuid;

use super::row;
use crate::{
    domain::{Abandonment, Allowance},
    error::Error,
};

// Waits for whoever makes the same one right now, and leaves what is there as it is.
const OPEN: &str = "INSERT INTO allowance (event_id, customer_id, units_max, units_taken)
    SELECT event_id, customer_id, units_max, units_taken
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[]) AS new (event_id, customer_id, units_max, units_taken)
    ORDER BY event_id, customer_id
    ON CONFLICT (event_id, customer_id) DO NOTHING
    RETURNING event_id, customer_id";
// Each by its key and in the order of keys, whatever the planner knows of the table: `LIMIT` leaves it no other way.
const LOCK: &str = "SELECT kept.*
    FROM (SELECT event_id, customer_id FROM unnest($1::uuid[], $2::uuid[]) AS asked (event_id, customer_id)
        ORDER BY event_id, customer_id) asked
    CROSS JOIN LATERAL (SELECT event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at
        FROM allowance WHERE event_id = asked.event_id AND customer_id = asked.customer_id LIMIT 1 FOR UPDATE) kept";
// All of them are there. Said so, each is found by its key; said as an update, the planner may read the whole table.
const SAVE: &str =
    "INSERT INTO allowance (event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at)
    SELECT event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::timestamptz[])
        AS new (event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at)
    ON CONFLICT (event_id, customer_id) DO UPDATE SET units_taken = excluded.units_taken,
        abandoned_count = excluded.abandoned_count, abandoned_at = excluded.abandoned_at";
// One look at the index for each who asks: `LIMIT` keeps the planner from reading the whole table instead.
const OPEN_CLAIMS: &str = "SELECT asked.event_id, asked.customer_id, open.claim_id
    FROM unnest($1::uuid[], $2::uuid[]) AS asked (event_id, customer_id)
    CROSS JOIN LATERAL (SELECT claim_id FROM claim
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id AND state = 'CLAIMED' LIMIT 1) open";

/// Whose allowance, and in which event.
pub type Key = (EventId, CustomerId);

/// Makes the allowances that are not there yet, as they are given; says which those were. They are locked then.
pub async fn open(tx: &Transaction, new: &HashMap<Key, Allowance>) -> Result<HashSet<Key>, Error> {
    let keys: Vec<&Key> = new.keys().collect();
    let (events, customers) = columns(keys.iter().copied());
    let units_max = integers(new.values().map(|allowance| allowance.units_max))?;
    let units_taken = integers(new.values().map(|allowance| allowance.units_taken))?;
    let made = tx.query(OPEN, &[&events, &customers, &units_max, &units_taken]).await?;
    made.iter().map(key).collect()
}

/// Locks the allowances of `keys`, as far as there are any.
pub async fn lock(tx: &Transaction, keys: &[Key]) -> Result<HashMap<Key, Allowance>, Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let (events, customers) = columns(keys);
    let locked = tx.query(LOCK, &[&events, &customers]).await?;
    locked.iter().map(|locked| Ok((key(locked)?, allowance(locked)?))).collect()
}

/// Locks the allowance of a customer who has claimed before.
pub async fn lock_one(tx: &Transaction, key: Key) -> Result<Allowance, Error> {
    lock(tx, &[key]).await?.remove(&key).ok_or(Error::Stored { what: "allowance" })
}

/// Keeps allowances that are locked.
pub async fn save(tx: &Transaction, changed: &[(Key, Allowance)]) -> Result<(), Error> {
    if changed.is_empty() {
        return Ok(());
    }
    let (events, customers) = columns(changed.iter().map(|(key, _)| key));
    let units_max = integers(changed.iter().map(|(_, allowance)| allowance.units_max))?;
    let units_taken = integers(changed.iter().map(|(_, allowance)| allowance.units_taken))?;
    let counts = integers(changed.iter().map(|(_, allowance)| allowance.abandonment.count))?;
    let last =
        |(_, allowance): &(Key, Allowance)| allowance.abandonment.last.map(row::system_time).transpose();
    let lasts = changed.iter().map(last).collect::<Result<Vec<Option<SystemTime>>, Error>>()?;
    tx.execute(SAVE, &[&events, &customers, &units_max, &units_taken, &counts, &lasts]).await?;
    Ok(())
}

/// The open claims of these customers, exact while their allowances are locked.
pub async fn open_claims(tx: &Transaction, keys: &[Key]) -> Result<HashMap<Key, ClaimId>, Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let (events, customers) = columns(keys);
    let found = tx.query(OPEN_CLAIMS, &[&events, &customers]).await?;
    found.iter().map(|found| Ok((key(found)?, row::id(found, "claim_id", ClaimId::from_uuid)?))).collect()
}

/// The allowance in a row that has its columns.
pub(super) fn allowance(found: &Row) -> Result<Allowance, Error> {
    let last = column::<Option<SystemTime>>(found, "abandoned_at")?;
    let last =
        last.map(|time| Timestamp::from_system_time(time).ok_or(Error::Stored { what: "abandoned_at" }));
    Ok(Allowance {
        units_max: row::count(found, "units_max")?,
        units_taken: row::count(found, "units_taken")?,
        abandonment: Abandonment { count: row::count(found, "abandoned_count")?, last: last.transpose()? },
    })
}

fn key(found: &Row) -> Result<Key, Error> {
    let event = row::id(found, "event_id", EventId::from_uuid)?;
    Ok((event, row::id(found, "customer_id", CustomerId::from_uuid)?))
}

fn columns<'a>(keys: impl IntoIterator<Item = &'a Key>) -> (Vec<Uuid>, Vec<Uuid>) {
    keys.into_iter().map(|(event, customer)| (event.as_uuid(), customer.as_uuid())).unzip()
}

fn integers(counts: impl Iterator<Item = u32>) -> Result<Vec<i32>, Error> {
    counts.map(row::integer).collect()
}
