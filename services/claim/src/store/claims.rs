//! Claims with their items and history. Only a transaction that holds the lock of a claim's row may change the claim.

use onsale_storage::postgres::{
    Isolation, Postgres, Row, Transaction,
    row::{RowExt as _, SqlTime},
};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Named as _, Timestamp};
use uuid::Uuid;

use super::{hold_attempts, new_claims};
use crate::{
    domain::{Claim, ClaimFilter, Item},
    error::Error,
};

mod changes;
mod rows;
mod stage;

pub(crate) use changes::{save, save_expiry};
use rows::read_claims;

// The columns of a claim; each statement that reads claims begins with them.
macro_rules! select_claims {
    ($rest:literal) => {
        concat!(
            "SELECT claim.claim_id, claim.event_id, customer_id, claim.hold_id,
                (SELECT hold_attempt.state FROM hold_attempt WHERE hold_attempt.hold_id = claim.hold_id) AS hold_state,
                fencing_number, quota_id, extended_at, claim.state, release_reason, payment_id, total_minor,
                currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at,
                created_at, expires_at, now() AS database_now
            FROM ",
            $rest
        )
    };
}

// One index lookup per id: `OFFSET 0` keeps the planner from reading the whole table.
const READ: &str = select_claims!(
    "unnest($1::uuid[]) AS asked (id)
    CROSS JOIN LATERAL (SELECT * FROM claim WHERE claim_id = asked.id OFFSET 0) claim
    ORDER BY created_at DESC, claim.claim_id DESC"
);
const LIST: &str = select_claims!(
    "claim WHERE customer_id = $1
        AND ($2::uuid IS NULL OR claim.event_id = $2)
        AND (cardinality($3::text[]) = 0 OR claim.state = ANY ($3))
        AND ($4::timestamptz IS NULL OR (created_at, claim.claim_id) < ($4, $5::uuid))
    ORDER BY created_at DESC, claim.claim_id DESC LIMIT $6"
);
// The lock and the read are two statements: a joined row would be read as it was before the wait for the lock.
const LOCK: &str = "SELECT claim_id FROM claim WHERE claim_id = $1 FOR UPDATE";
const LOCK_EXPIRED: &str = "SELECT claim_id FROM claim
    WHERE state = 'CLAIMED' AND payment_id IS NULL AND expires_at <= now()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED";
const LOCK_OPEN_OF_TURN: &str = "SELECT claim_id FROM claim
    WHERE event_id = $1 AND customer_id = $2 AND fencing_number = $3 AND state = 'CLAIMED' FOR UPDATE";
const DELETE_ITEMS: &str = "DELETE FROM claim_item WHERE claim_id = $1";
const REPLACE_HOLD: &str = "UPDATE claim SET hold_id = $2 WHERE claim_id = $1";

pub(crate) async fn find(postgres: &Postgres, claim_id: ClaimId) -> Result<Option<Claim>, Error> {
    // One snapshot for claim, items and history.
    postgres
        .transaction_at(Isolation::RepeatableRead, "find claim", |transaction| async move {
            let rows = transaction.query(READ, &[&[claim_id.as_uuid()].as_slice()]).await?;
            Ok(read_claims(&transaction, &rows).await?.pop())
        })
        .await
}

/// Lists the claims that pass `filter`, newest first.
pub(crate) async fn list(postgres: &Postgres, filter: &ClaimFilter) -> Result<Vec<Claim>, Error> {
    let customer_id = filter.customer_id.as_uuid();
    let event_id = filter.event_id.map(|event_id| event_id.as_uuid());
    let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
    let after_time = filter.after.map(|(time, _)| SqlTime(time));
    let after_id = filter.after.map(|(_, claim_id)| claim_id.as_uuid());
    let count = i64::from(filter.count_max);
    let (states, after_time, after_id) = (&states, &after_time, &after_id);
    postgres
        .transaction_at(Isolation::RepeatableRead, "list claims", |transaction| async move {
            let rows = transaction
                .query(LIST, &[&customer_id, &event_id, states, after_time, after_id, &count])
                .await?;
            read_claims(&transaction, &rows).await
        })
        .await
}

/// Locks one claim and returns it with the time by the database's clock.
pub(crate) async fn lock(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<Option<(Claim, Timestamp)>, Error> {
    let locked = transaction.query(LOCK, &[&claim_id.as_uuid()]).await?;
    Ok(read_locked(transaction, &locked).await?.pop())
}

/// Locks at most `count_max` unpaid claims whose time is over. Skips claims that other transactions have locked.
pub(crate) async fn lock_expired(
    transaction: &Transaction,
    count_max: u32,
) -> Result<Vec<(Claim, Timestamp)>, Error> {
    let locked = transaction.query(LOCK_EXPIRED, &[&i64::from(count_max)]).await?;
    read_locked(transaction, &locked).await
}

/// Locks the open claim that was created in a turn.
pub(crate) async fn lock_open_of_turn(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
    fencing_number: u64,
) -> Result<Option<(Claim, Timestamp)>, Error> {
    // No turn has a number beyond the range of the column.
    let Ok(fencing_number) = i64::try_from(fencing_number) else { return Ok(None) };
    let (event_id, customer_id) = (event_id.as_uuid(), customer_id.as_uuid());
    let locked = transaction.query(LOCK_OPEN_OF_TURN, &[&event_id, &customer_id, &fencing_number]).await?;
    Ok(read_locked(transaction, &locked).await?.pop())
}

/// Moves a locked claim to another hold and its units. Returns false if that hold's attempt was abandoned before.
pub(crate) async fn replace_hold(
    transaction: &Transaction,
    claim_id: ClaimId,
    hold_id: HoldId,
    items: &[Item],
) -> Result<bool, Error> {
    let (taken, _) = hold_attempts::take(transaction, &[(hold_id, claim_id)]).await?;
    if taken.is_empty() {
        return Ok(false);
    }
    transaction.execute(REPLACE_HOLD, &[&claim_id.as_uuid(), &hold_id.as_uuid()]).await?;
    transaction.execute(DELETE_ITEMS, &[&claim_id.as_uuid()]).await?;
    new_claims::insert_items(transaction, claim_id, items).await?;
    Ok(true)
}

async fn read_locked(transaction: &Transaction, locked: &[Row]) -> Result<Vec<(Claim, Timestamp)>, Error> {
    if locked.is_empty() {
        return Ok(Vec::new());
    }
    let ids = locked.iter().map(|row| row.read("claim_id")).collect::<Result<Vec<Uuid>, _>>()?;
    let rows = transaction.query(READ, &[&ids]).await?;
    let claims = read_claims(transaction, &rows).await?;
    let times = rows.iter().map(|row| row.read_time("database_now"));
    claims.into_iter().zip(times).map(|(claim, time)| Ok((claim, time?))).collect()
}
