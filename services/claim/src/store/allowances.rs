//! Allowances of customers by event. A transaction that changes an allowance holds the lock of its row. Several rows are locked in
//! the order of their keys, so that two transactions cannot deadlock.

use std::collections::{HashMap, HashSet};

use onsale_storage::postgres::{
    Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime},
};
use onsale_types::{ClaimId, CustomerId, EventId};
use uuid::Uuid;

use crate::{
    domain::{AbandonedStreak, Allowance, BatchCustomer},
    error::Error,
};

// Waits for a concurrent insert of the same row and leaves an existing row unchanged.
const OPEN: &str = "INSERT INTO allowance (event_id, customer_id, units_max, units_taken)
    SELECT event_id, customer_id, units_max, units_taken
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[]) AS new (event_id, customer_id, units_max, units_taken)
    ORDER BY event_id, customer_id
    ON CONFLICT (event_id, customer_id) DO NOTHING
    RETURNING event_id, customer_id";
// One index lookup per key, in the order of keys: `LIMIT` leaves the planner no other plan.
const LOCK: &str = "SELECT kept.*
    FROM (SELECT event_id, customer_id FROM unnest($1::uuid[], $2::uuid[]) AS asked (event_id, customer_id)
        ORDER BY event_id, customer_id) asked
    CROSS JOIN LATERAL (SELECT event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at
        FROM allowance WHERE event_id = asked.event_id AND customer_id = asked.customer_id LIMIT 1 FOR UPDATE) kept";
// All rows exist. An upsert finds each by its key; for an UPDATE the planner may read the whole table.
const SAVE: &str =
    "INSERT INTO allowance (event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at)
    SELECT event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::timestamptz[])
        AS new (event_id, customer_id, units_max, units_taken, abandoned_count, abandoned_at)
    ON CONFLICT (event_id, customer_id) DO UPDATE SET units_taken = excluded.units_taken,
        abandoned_count = excluded.abandoned_count, abandoned_at = excluded.abandoned_at";
// One index lookup per customer: `LIMIT` keeps the planner from reading the whole table.
const OPEN_CLAIMS: &str = "SELECT asked.event_id, asked.customer_id, open.claim_id
    FROM unnest($1::uuid[], $2::uuid[]) AS asked (event_id, customer_id)
    CROSS JOIN LATERAL (SELECT claim_id FROM claim
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id AND state = 'CLAIMED' LIMIT 1) open";

/// Key of an allowance.
pub(crate) type Key = (EventId, CustomerId);

/// Inserts the allowance of each new customer as given, locks the others, and returns all with the customers' open claims.
pub(crate) async fn open_or_lock(
    transaction: &Transaction,
    first: &HashMap<Key, Allowance>,
) -> Result<HashMap<Key, BatchCustomer>, Error> {
    let opened = open(transaction, first).await?;
    let known: Vec<Key> = first.keys().filter(|key| !opened.contains(key)).copied().collect();
    let locked = lock(transaction, &known).await?;
    let open_claims = open_claims(transaction, &known).await?;
    let new = first.iter().filter(|(key, _)| opened.contains(key));
    let new = new.map(|(key, stored)| (*key, BatchCustomer::new_customer(*stored)));
    let known = locked
        .into_iter()
        .map(|(key, stored)| (key, BatchCustomer::known_customer(stored, open_claims.get(&key).copied())));
    Ok(new.chain(known).collect())
}

/// Inserts the allowances that do not exist yet and returns their keys. The inserted rows are locked.
async fn open(transaction: &Transaction, first: &HashMap<Key, Allowance>) -> Result<HashSet<Key>, Error> {
    let (events, customers) = columns(first.keys());
    let units_max: Vec<_> = first.values().map(|allowance| SqlCount(allowance.units_max)).collect();
    let units_taken: Vec<_> = first.values().map(|allowance| SqlCount(allowance.units_taken)).collect();
    let rows = transaction.query(OPEN, &[&events, &customers, &units_max, &units_taken]).await?;
    rows.iter().map(read_key).collect()
}

/// Locks the allowances of `keys` that exist.
pub(crate) async fn lock(transaction: &Transaction, keys: &[Key]) -> Result<HashMap<Key, Allowance>, Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let (events, customers) = columns(keys);
    let rows = transaction.query(LOCK, &[&events, &customers]).await?;
    rows.iter().map(|row| Ok((read_key(row)?, read(row)?))).collect()
}

/// Locks the allowance of a customer who has a claim of the event.
pub(crate) async fn lock_one(transaction: &Transaction, key: Key) -> Result<Allowance, Error> {
    lock(transaction, &[key]).await?.remove(&key).ok_or(Error::Stored { what: "allowance" })
}

pub(crate) async fn save(transaction: &Transaction, changed: &[(Key, Allowance)]) -> Result<(), Error> {
    if changed.is_empty() {
        return Ok(());
    }
    let (events, customers) = columns(changed.iter().map(|(key, _)| key));
    let counts = |count: fn(&Allowance) -> u32| -> Vec<SqlCount<u32>> {
        changed.iter().map(|(_, allowance)| SqlCount(count(allowance))).collect()
    };
    let units_max = counts(|allowance| allowance.units_max);
    let units_taken = counts(|allowance| allowance.units_taken);
    let abandoned = counts(|allowance| allowance.abandoned.count);
    let last: Vec<Option<SqlTime>> =
        changed.iter().map(|(_, allowance)| allowance.abandoned.last.map(SqlTime)).collect();
    transaction.execute(SAVE, &[&events, &customers, &units_max, &units_taken, &abandoned, &last]).await?;
    Ok(())
}

/// Reads the open claims of customers. The result cannot change while their allowances are locked.
async fn open_claims(transaction: &Transaction, keys: &[Key]) -> Result<HashMap<Key, ClaimId>, Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let (events, customers) = columns(keys);
    let rows = transaction.query(OPEN_CLAIMS, &[&events, &customers]).await?;
    rows.iter().map(|row| Ok((read_key(row)?, row.read_id("claim_id")?))).collect()
}

/// Reads an allowance from a row with its columns.
pub(super) fn read(row: &Row) -> Result<Allowance, Error> {
    Ok(Allowance {
        units_max: row.read_count("units_max")?,
        units_taken: row.read_count("units_taken")?,
        abandoned: AbandonedStreak {
            count: row.read_count("abandoned_count")?,
            last: row.read_optional_time("abandoned_at")?,
        },
    })
}

fn read_key(row: &Row) -> Result<Key, Error> {
    Ok((row.read_id("event_id")?, row.read_id("customer_id")?))
}

fn columns<'a>(keys: impl IntoIterator<Item = &'a Key>) -> (Vec<Uuid>, Vec<Uuid>) {
    keys.into_iter().map(|(event_id, customer_id)| (event_id.as_uuid(), customer_id.as_uuid())).unzip()
}
