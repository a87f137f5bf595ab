//! Claims with their items and history. A claim is changed only by whoever has locked its row.

use onsale_storage::postgres::{Isolation, Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Timestamp};
use uuid::Uuid;

use super::{hold_attempts, row};
use crate::{
    domain::{Claim, Item},
    error::Error,
};

mod changes;
mod rows;

use changes::insert_items;
pub use changes::{insert, save, save_lifetime};
use rows::claims_of;

// The columns of a claim; each statement that reads claims begins with them.
macro_rules! select_claims {
    ($rest:literal) => {
        concat!(
            "SELECT claim.claim_id, claim.event_id, customer_id, claim.hold_id,
                (SELECT hold_attempt.state FROM hold_attempt WHERE hold_attempt.hold_id = claim.hold_id) AS hold_state, fencing_number,
                quota_id, extended_at, claim.state, release_reason, payment_id, total_minor, currency_code,
                buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at, created_at,
                expires_at, now() AS database_now
            FROM ",
            $rest
        )
    };
}

// One look at the index for each: `OFFSET 0` keeps the planner from reading the whole table instead.
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
// Locked first and read after: a joined row is read as it was before the wait for the lock.
const LOCK: &str = "SELECT claim_id FROM claim WHERE claim_id = $1 FOR UPDATE";
const LOCK_EXPIRED: &str = "SELECT claim_id FROM claim
    WHERE state = 'CLAIMED' AND payment_id IS NULL AND expires_at <= now()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED";
const LOCK_OF_TURN: &str = "SELECT claim_id FROM claim
    WHERE event_id = $1 AND customer_id = $2 AND fencing_number = $3 AND state = 'CLAIMED' FOR UPDATE";
const ITEMS: &str =
    "SELECT claim_id, sector_id, sector_name, unit_price_minor, group_count, units, row_labels,
        seat_labels
    FROM claim_item WHERE claim_id = ANY ($1) ORDER BY claim_id, place";
// The first one is in the claim's own row.
const HISTORY: &str = "SELECT claim_id, state, release_reason, transitioned_at
    FROM claim_transition WHERE claim_id = ANY ($1) AND number > 1 ORDER BY claim_id, number";
const DELETE_ITEMS: &str = "DELETE FROM claim_item WHERE claim_id = $1";
const REPLACE_HOLD: &str = "UPDATE claim SET hold_id = $2 WHERE claim_id = $1";

/// Which claims to list, newest first.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Whose.
    pub customer: CustomerId,
    /// Of which event; none: of all.
    pub event: Option<EventId>,
    /// In which states; none: in all.
    pub states: Vec<ListedState>,
    /// Only those after this one.
    pub after: Option<(Timestamp, ClaimId)>,
    /// How many.
    pub count_max: u32,
}

/// A state as lists know it, whatever its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedState {
    /// To be paid.
    Claimed,
    /// Paid.
    Confirmed,
    /// Given up.
    Released,
}

/// One claim.
pub async fn find(postgres: &Postgres, id: ClaimId) -> Result<Option<Claim>, Error> {
    // One moment for claim, items and history.
    postgres
        .transaction_at(Isolation::RepeatableRead, "find claim", |tx| async move {
            let found = tx.query(READ, &[&[id.as_uuid()].as_slice()]).await?;
            Ok(claims_of(&tx, &found).await?.pop())
        })
        .await
}

/// The claims that pass `filter`.
pub async fn list(postgres: &Postgres, filter: &Filter) -> Result<Vec<Claim>, Error> {
    let customer = filter.customer.as_uuid();
    let event = filter.event.map(|event| event.as_uuid());
    let states: Vec<&str> = filter.states.iter().map(|state| listed_column(*state)).collect();
    let after_time = filter.after.map(|(time, _)| row::system_time(time)).transpose()?;
    let after_id = filter.after.map(|(_, id)| id.as_uuid());
    let count = i64::from(filter.count_max);
    let (states, after_time, after_id) = (&states, &after_time, &after_id);
    postgres
        .transaction_at(Isolation::RepeatableRead, "list claims", |tx| async move {
            let found = tx.query(LIST, &[&customer, &event, states, after_time, after_id, &count]).await?;
            claims_of(&tx, &found).await
        })
        .await
}

/// Locks one claim; also says the time by the database's clock.
pub async fn lock(tx: &Transaction, id: ClaimId) -> Result<Option<(Claim, Timestamp)>, Error> {
    let locked = tx.query(LOCK, &[&id.as_uuid()]).await?;
    Ok(read_locked(tx, &locked).await?.pop())
}

/// Locks claims that nobody paid in time, at most `count_max`, passing over those that others have locked.
pub async fn lock_expired(tx: &Transaction, count_max: u32) -> Result<Vec<(Claim, Timestamp)>, Error> {
    let locked = tx.query(LOCK_EXPIRED, &[&i64::from(count_max)]).await?;
    read_locked(tx, &locked).await
}

/// Locks the open claim of a turn.
pub async fn lock_of_turn(
    tx: &Transaction,
    event: EventId,
    customer: CustomerId,
    fencing_number: u64,
) -> Result<Option<(Claim, Timestamp)>, Error> {
    // A number beyond the column's range is no turn's.
    let Ok(fencing_number) = i64::try_from(fencing_number) else { return Ok(None) };
    let locked = tx.query(LOCK_OF_TURN, &[&event.as_uuid(), &customer.as_uuid(), &fencing_number]).await?;
    Ok(read_locked(tx, &locked).await?.pop())
}

/// Puts a locked claim on the hold `new`, with its units; false when that was given up before.
pub async fn replace_hold(tx: &Transaction, id: ClaimId, new: HoldId, items: &[Item]) -> Result<bool, Error> {
    let (taken, _) = hold_attempts::take(tx, &[(new, id)]).await?;
    if taken.is_empty() {
        return Ok(false);
    }
    tx.execute(REPLACE_HOLD, &[&id.as_uuid(), &new.as_uuid()]).await?;
    tx.execute(DELETE_ITEMS, &[&id.as_uuid()]).await?;
    insert_items(tx, id, items).await?;
    Ok(true)
}

/// Reads the claims that `locked` names.
async fn read_locked(tx: &Transaction, locked: &[Row]) -> Result<Vec<(Claim, Timestamp)>, Error> {
    if locked.is_empty() {
        return Ok(Vec::new());
    }
    let ids = locked.iter().map(|locked| column(locked, "claim_id")).collect::<Result<Vec<Uuid>, _>>()?;
    let found = tx.query(READ, &[&ids]).await?;
    let claims = claims_of(tx, &found).await?;
    let times = found.iter().map(|found| row::timestamp(found, "database_now"));
    claims.into_iter().zip(times).map(|(claim, time)| Ok((claim, time?))).collect()
}

fn listed_column(state: ListedState) -> &'static str {
    match state {
        ListedState::Claimed => "CLAIMED",
        ListedState::Confirmed => "CONFIRMED",
        ListedState::Released => "RELEASED",
    }
}
