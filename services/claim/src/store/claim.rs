//! Claims with their items and history. A claim is changed only by whoever has locked its row.

use onsale_storage::postgres::{Isolation, Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Timestamp};
use uuid::Uuid;

use super::{allowance, hold, row};
use crate::{
    domain::{Claim, Item, Life, Transition},
    error::Error,
};

mod read;

use read::claims_of;

// The columns of a claim; each statement that reads claims begins with them.
macro_rules! select_claims {
    ($rest:literal) => {
        concat!(
            "SELECT claim.claim_id, claim.event_id, customer_id, claim.hold_id, hold.state AS hold_state,
                fencing_number, claim.state, release_reason, payment_id, total_minor, currency_code, buyer_email,
                buyer_locale, event_name, venue_name, venue_address, time_zone, start_at, created_at, expires_at,
                now() AS database_now
            FROM claim JOIN hold USING (hold_id) ",
            $rest
        )
    };
}

const READ: &str =
    select_claims!("WHERE claim.claim_id = ANY ($1) ORDER BY created_at DESC, claim.claim_id DESC");
const LIST: &str = select_claims!(
    "WHERE customer_id = $1
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
const HISTORY: &str = "SELECT claim_id, state, release_reason, transitioned_at
    FROM claim_transition WHERE claim_id = ANY ($1) ORDER BY claim_id, number";
const INSERT: &str = "INSERT INTO claim (claim_id, event_id, customer_id, hold_id, fencing_number, state, unit_count,
        total_minor, currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone,
        start_at, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, 'CLAIMED', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
const INSERT_ITEM: &str = "INSERT INTO claim_item (claim_id, place, sector_id, sector_name, unit_price_minor,
        group_count, units, row_labels, seat_labels)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const DELETE_ITEMS: &str = "DELETE FROM claim_item WHERE claim_id = $1";
const INSERT_TRANSITION: &str =
    "INSERT INTO claim_transition (claim_id, number, state, release_reason, transitioned_at)
    VALUES ($1, $2, $3, $4, $5)";
const UPDATE: &str = "UPDATE claim SET state = $2, release_reason = $3, payment_id = $4 WHERE claim_id = $1";
const UPDATE_HOLD: &str = "UPDATE hold SET state = $2, release_due_at = now() WHERE hold_id = $1";
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

/// Adds a new claim, whose hold and allowance are taken already.
pub async fn insert(tx: &Transaction, claim: &Claim) -> Result<(), Error> {
    let (id, event) = (claim.id.as_uuid(), &claim.event);
    let fencing_number =
        i64::try_from(claim.fencing_number).map_err(|_large| Error::Stored { what: "fencing_number" })?;
    tx.execute(
        INSERT,
        &[
            &id,
            &event.id.as_uuid(),
            &claim.customer.as_uuid(),
            &claim.hold.as_uuid(),
            &fencing_number,
            &row::integer(claim.unit_count())?,
            &claim.total.amount_minor(),
            &claim.total.currency().code(),
            &claim.buyer.email,
            &claim.buyer.locale,
            &event.name,
            &event.venue_name,
            &event.venue_address,
            &event.time_zone,
            &row::system_time(event.start_time)?,
            &row::system_time(claim.create_time)?,
            &row::system_time(claim.expire_time)?,
        ],
    )
    .await?;
    insert_items(tx, claim.id, &claim.items).await?;
    for (number, transition) in (1..).zip(&claim.history) {
        insert_transition(tx, claim.id, number, *transition).await?;
    }
    Ok(())
}

/// Brings a locked claim to `life`, with all that hangs on it: hold, allowance, history. Answers it as it is then.
pub async fn save(tx: &Transaction, claim: &Claim, life: Life, now: Timestamp) -> Result<Claim, Error> {
    let id = claim.id.as_uuid();
    let (state, reason) = row::stage_columns(life.stage());
    let payment = life.payment().map(|payment| payment.as_uuid());
    tx.execute(UPDATE, &[&id, &state, &reason, &payment]).await?;
    if life.hold != claim.life.hold {
        tx.execute(UPDATE_HOLD, &[&claim.hold.as_uuid(), &row::hold_column(life.hold)]).await?;
    }
    match (claim.life.is_counted(), life.is_counted()) {
        (false, true) => allowance::take(tx, claim.event.id, claim.customer, claim.unit_count()).await?,
        (true, false) => allowance::give_back(tx, claim.event.id, claim.customer, claim.unit_count()).await?,
        (true, true) | (false, false) => {}
    }
    let mut saved = Claim { life, ..claim.clone() };
    if life.stage() != claim.life.stage() {
        let transition = Transition { stage: life.stage(), time: now };
        let number = i32::try_from(claim.history.len()).unwrap_or(i32::MAX).saturating_add(1);
        insert_transition(tx, claim.id, number, transition).await?;
        saved.history.push(transition);
    }
    if life.is_final() {
        hold::abandon_of_claim(tx, claim.id).await?;
    }
    Ok(saved)
}

/// Puts a locked claim on the hold `new`, with its units; false when that was given up before.
pub async fn replace_hold(tx: &Transaction, id: ClaimId, new: HoldId, items: &[Item]) -> Result<bool, Error> {
    if !hold::hold(tx, new, id).await? {
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

async fn insert_items(tx: &Transaction, claim: ClaimId, items: &[Item]) -> Result<(), Error> {
    for (place, item) in (1_i32..).zip(items) {
        let seats = item.units.iter().filter_map(|unit| unit.seat.as_ref());
        let row_labels: Vec<&str> = seats.clone().map(|seat| seat.row_label.as_str()).collect();
        let seat_labels: Vec<&str> = seats.map(|seat| seat.seat_label.as_str()).collect();
        let units = item.units.iter().map(|unit| row::integer(unit.number)).collect::<Result<Vec<_>, _>>()?;
        let (claim_id, sector_id): (Uuid, Uuid) = (claim.as_uuid(), item.sector.as_uuid());
        let (price, groups) = (item.unit_price.amount_minor(), row::integer(item.group_count)?);
        tx.execute(
            INSERT_ITEM,
            &[
                &claim_id,
                &place,
                &sector_id,
                &item.sector_name,
                &price,
                &groups,
                &units,
                &row_labels,
                &seat_labels,
            ],
        )
        .await?;
    }
    Ok(())
}

async fn insert_transition(
    tx: &Transaction,
    claim: ClaimId,
    number: i32,
    transition: Transition,
) -> Result<(), Error> {
    let (state, reason) = row::stage_columns(transition.stage);
    let time = row::system_time(transition.time)?;
    tx.execute(INSERT_TRANSITION, &[&claim.as_uuid(), &number, &state, &reason, &time]).await?;
    Ok(())
}
