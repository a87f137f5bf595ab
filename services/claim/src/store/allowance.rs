//! How many units a customer has of an event. Whoever changes it holds its row's lock.

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EventId, Timestamp};
use uuid::Uuid;

use super::row;
use crate::{domain::Allowance, error::Error};

// The update changes nothing and locks the row, whoever made it.
const ENTER: &str = "INSERT INTO allowance (event_id, customer_id, units_max, units_taken)
    VALUES ($1, $2, $3, 0)
    ON CONFLICT (event_id, customer_id) DO UPDATE SET units_max = allowance.units_max
    RETURNING units_max, units_taken, now() AS database_now";
const LOCK: &str = "SELECT units_max, units_taken FROM allowance
    WHERE event_id = $1 AND customer_id = $2 FOR UPDATE";
const MOVE: &str = "UPDATE allowance SET units_taken = units_taken + $3
    WHERE event_id = $1 AND customer_id = $2";
const LOOK: &str = "SELECT
        (SELECT claim_id FROM claim WHERE event_id = $1 AND customer_id = $2 AND state = 'CLAIMED') AS open_claim_id,
        (SELECT units_max FROM allowance WHERE event_id = $1 AND customer_id = $2) AS units_max,
        (SELECT units_taken FROM allowance WHERE event_id = $1 AND customer_id = $2) AS units_taken";
const OPEN_CLAIM: &str = "SELECT claim_id FROM claim
    WHERE event_id = $1 AND customer_id = $2 AND state = 'CLAIMED'";

/// What a customer has of an event, as far as anybody knows without a lock.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The open claim.
    pub open_claim: Option<ClaimId>,
    /// The allowance; none before the first claim.
    pub allowance: Option<Allowance>,
}

/// Looks without a lock: good enough to refuse early, never to allow.
pub async fn glance(postgres: &Postgres, event: EventId, customer: CustomerId) -> Result<Glance, Error> {
    let row = postgres.query_one("glance", LOOK, &[&event.as_uuid(), &customer.as_uuid()]).await?;
    let open_claim = column::<Option<Uuid>>(&row, "open_claim_id")?.map(ClaimId::from_uuid);
    let has_allowance = column::<Option<i32>>(&row, "units_max")?.is_some();
    Ok(Glance { open_claim, allowance: if has_allowance { Some(allowance(&row)?) } else { None } })
}

/// Locks the allowance, making it with `units_max` if there is none; also says the time by the database's clock.
pub async fn enter(
    tx: &Transaction,
    event: EventId,
    customer: CustomerId,
    units_max: u32,
) -> Result<(Allowance, Timestamp), Error> {
    let units_max = row::integer(units_max)?;
    let found = tx.query_one(ENTER, &[&event.as_uuid(), &customer.as_uuid(), &units_max]).await?;
    Ok((allowance(&found)?, row::timestamp(&found, "database_now")?))
}

/// Locks the allowance of a customer who has claimed before.
pub async fn lock(tx: &Transaction, event: EventId, customer: CustomerId) -> Result<Allowance, Error> {
    allowance(&tx.query_one(LOCK, &[&event.as_uuid(), &customer.as_uuid()]).await?)
}

/// Counts `units` more.
pub async fn take(tx: &Transaction, event: EventId, customer: CustomerId, units: u32) -> Result<(), Error> {
    move_by(tx, event, customer, row::integer(units)?).await
}

/// Counts `units` less.
pub async fn give_back(
    tx: &Transaction,
    event: EventId,
    customer: CustomerId,
    units: u32,
) -> Result<(), Error> {
    // A count is never the least integer, so it can be negated.
    move_by(tx, event, customer, row::integer(units)?.saturating_neg()).await
}

/// The customer's open claim, exact while the allowance is locked.
pub async fn open_claim(
    tx: &Transaction,
    event: EventId,
    customer: CustomerId,
) -> Result<Option<ClaimId>, Error> {
    let found = tx.query_opt(OPEN_CLAIM, &[&event.as_uuid(), &customer.as_uuid()]).await?;
    found.map(|found| row::id(&found, "claim_id", ClaimId::from_uuid)).transpose()
}

async fn move_by(
    tx: &Transaction,
    event: EventId,
    customer: CustomerId,
    difference: i32,
) -> Result<(), Error> {
    tx.execute(MOVE, &[&event.as_uuid(), &customer.as_uuid(), &difference]).await?;
    Ok(())
}

fn allowance(found: &Row) -> Result<Allowance, Error> {
    Ok(Allowance {
        units_max: row::count(found, "units_max")?,
        units_taken: row::count(found, "units_taken")?,
    })
}
