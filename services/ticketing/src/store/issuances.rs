//! Confirmed claims, and what became of their tickets.

use std::time::Duration;

use onsale_storage::postgres::{Parameters, Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EventId, SectorId};
use uuid::Uuid;

use super::{count, from_sql_count, sql_units};
use crate::{
    domain::order::{IssuanceState, Order, OrderedUnit},
    error::Error,
};

const ENTER: &str = "INSERT INTO issuance
        (claim_id, state, event_id, customer_id, buyer_email, buyer_locale, sector_ids, units)
    VALUES ($1, 'PENDING', $2, $3, $4, $5, $6, $7) ON CONFLICT (claim_id) DO NOTHING";
const ENTER_VOID: &str = "INSERT INTO issuance (claim_id, state) VALUES ($1, 'VOID')
    ON CONFLICT (claim_id) DO NOTHING";
// What issues and what voids a claim's tickets meets here, one after the other.
const LOCK: &str = "SELECT state FROM issuance WHERE claim_id = $1 FOR UPDATE";
const MOVE: &str = "UPDATE issuance SET state = $2 WHERE claim_id = $1";
// Its next look is fixed before this one: an order that nobody can look at does not hold up the others.
const TAKE_DUE: &str = "UPDATE issuance SET
        next_attempt_time = now() + least($1::float8, power(2, least(attempt_count, 30))) * interval '1 second',
        attempt_count = attempt_count + 1
    WHERE claim_id = (SELECT claim_id FROM issuance WHERE state = 'PENDING' AND next_attempt_time <= now()
        ORDER BY next_attempt_time LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING claim_id, event_id, customer_id, buyer_email, buyer_locale, sector_ids, units, attempt_count";
const HASTEN: &str =
    "UPDATE issuance SET next_attempt_time = now() WHERE event_id = $1 AND state = 'PENDING'";
const COUNT_PENDING: &str = "SELECT count(*)::integer AS count FROM issuance WHERE state = 'PENDING'";

/// Enters a claim unless it is known, and locks it; answers its state.
pub async fn enter(transaction: &Transaction, order: &Order) -> Result<IssuanceState, Error> {
    let (sector_ids, units) = sql_units(&order.units)?;
    let (claim_id, event_id) = (order.claim_id.as_uuid(), order.event_id.as_uuid());
    let customer_id = order.customer_id.as_uuid();
    let values: Parameters<'_> =
        &[&claim_id, &event_id, &customer_id, &order.buyer_email, &order.buyer_locale, &sector_ids, &units];
    transaction.execute(ENTER, values).await?;
    lock(transaction, order.claim_id).await
}

/// Notes that the claim gets no tickets any more; to be followed by [`move_to`] if it was known.
pub async fn enter_void(transaction: &Transaction, claim_id: ClaimId) -> Result<IssuanceState, Error> {
    transaction.execute(ENTER_VOID, &[&claim_id.as_uuid()]).await?;
    lock(transaction, claim_id).await
}

async fn lock(transaction: &Transaction, claim_id: ClaimId) -> Result<IssuanceState, Error> {
    let row = transaction.query_one(LOCK, &[&claim_id.as_uuid()]).await?;
    match column(&row, "state")? {
        "PENDING" => Ok(IssuanceState::Pending),
        "ISSUED" => Ok(IssuanceState::Issued),
        "REFUSED" => Ok(IssuanceState::Refused),
        "VOID" => Ok(IssuanceState::Void),
        _ => Err(Error::Corrupt { what: "an issuance's state is unknown" }),
    }
}

/// Moves a claim that `transaction` has locked.
pub async fn move_to(
    transaction: &Transaction,
    claim_id: ClaimId,
    state: IssuanceState,
) -> Result<(), Error> {
    let name = match state {
        IssuanceState::Pending => "PENDING",
        IssuanceState::Issued => "ISSUED",
        IssuanceState::Refused => "REFUSED",
        IssuanceState::Void => "VOID",
    };
    transaction.execute(MOVE, &[&claim_id.as_uuid(), &name]).await?;
    Ok(())
}

/// Takes an order that waits for its tickets and is worth a look, with the number of that look. The next is twice as far
/// away as the last was, at most `pause_max`.
pub async fn take_due(
    postgres: &Postgres,
    pause_max: Duration,
) -> Result<Option<(ClaimId, Result<Order, Error>, u32)>, Error> {
    let row = postgres.query_opt("take waiting order", TAKE_DUE, &[&pause_max.as_secs_f64()]).await?;
    let Some(row) = row else { return Ok(None) };
    let claim_id = ClaimId::from_uuid(column(&row, "claim_id")?);
    Ok(Some((claim_id, order(&row), count(&row, "attempt_count")?)))
}

/// Makes all waiting orders of an event worth another look.
pub async fn hasten(transaction: &Transaction, event_id: EventId) -> Result<(), Error> {
    transaction.execute(HASTEN, &[&event_id.as_uuid()]).await?;
    Ok(())
}

/// How many orders wait.
pub async fn count_pending(postgres: &Postgres) -> Result<u32, Error> {
    count(&postgres.query_one("count pending orders", COUNT_PENDING, &[]).await?, "count")
}

fn order(row: &Row) -> Result<Order, Error> {
    let sector_ids: Vec<Uuid> = column(row, "sector_ids")?;
    let units: Vec<i32> = column(row, "units")?;
    let unit = |(sector_id, unit)| {
        Ok(OrderedUnit { sector_id: SectorId::from_uuid(sector_id), unit: from_sql_count(unit)? })
    };
    Ok(Order {
        claim_id: ClaimId::from_uuid(column(row, "claim_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        customer_id: CustomerId::from_uuid(column(row, "customer_id")?),
        buyer_email: column(row, "buyer_email")?,
        buyer_locale: column(row, "buyer_locale")?,
        units: sector_ids.into_iter().zip(units).map(unit).collect::<Result<_, Error>>()?,
    })
}
