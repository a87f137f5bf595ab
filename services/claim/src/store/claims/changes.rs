//! Claims into rows. Several at a time: a statement costs the same for one claim as for a hundred.

use onsale_storage::postgres::{CopyRows, Transaction, Type};
use onsale_types::{ClaimId, Timestamp};
use uuid::Uuid;

use super::super::{allowances, hold_attempts, row};
use crate::{
    domain::{Claim, CooldownRule, Item, Life, Lifetime, Origin, Stage, Transition},
    error::Error,
};

// By COPY: Postgres needs no plan for nineteen columns, and writes the rows of a page at once (ADR 0018).
const COPY: &str = "COPY claim (claim_id, event_id, customer_id, hold_id, fencing_number, quota_id, state, unit_count,
        total_minor, currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at,
        created_at, expires_at)
    FROM STDIN (FORMAT binary)";
const COPY_TYPES: [Type; 19] = [
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::INT8,
    Type::UUID,
    Type::TEXT,
    Type::INT4,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
];
const COPY_ITEMS: &str =
    "COPY claim_item (claim_id, place, sector_id, sector_name, unit_price_minor, group_count, units,
        row_labels, seat_labels)
    FROM STDIN (FORMAT binary)";
const COPY_ITEMS_TYPES: [Type; 9] = [
    Type::UUID,
    Type::INT4,
    Type::UUID,
    Type::TEXT,
    Type::INT8,
    Type::INT4,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
];
const INSERT_TRANSITIONS: &str =
    "INSERT INTO claim_transition (claim_id, number, state, release_reason, transitioned_at)
    SELECT claim_id, number, state, release_reason, $5
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS new (claim_id, number, state, release_reason)";
const UPDATE: &str = "UPDATE claim SET state = $2, release_reason = $3, payment_id = $4 WHERE claim_id = $1";
const UPDATE_HOLDS: &str = "UPDATE hold_attempt SET state = new.state, release_due_at = now()
    FROM unnest($1::uuid[], $2::text[]) AS new (hold_id, state)
    WHERE hold_attempt.hold_id = ANY ($1) AND hold_attempt.hold_id = new.hold_id";
const UPDATE_LIFETIME: &str = "UPDATE claim SET expires_at = $2, extended_at = $3 WHERE claim_id = $1";

fn push_claim(rows: &mut CopyRows<'_>, claim: &Claim) -> Result<(), Error> {
    let Claim { event, buyer, total, .. } = claim;
    let (state, _) = row::stage_columns(Stage::Claimed);
    rows.push(&[
        &claim.id.as_uuid(),
        &event.id.as_uuid(),
        &claim.customer.as_uuid(),
        &claim.hold.as_uuid(),
        &fencing_number(claim)?,
        &quota(claim),
        &state,
        &row::integer(claim.unit_count())?,
        &total.amount_minor(),
        &total.currency().code(),
        &buyer.email,
        &buyer.locale,
        &event.name,
        &event.venue_name,
        &event.venue_address,
        &event.time_zone,
        &row::system_time(event.start_time)?,
        &row::system_time(claim.lifetime.create_time)?,
        &row::system_time(claim.lifetime.expire_time)?,
    ])?;
    Ok(())
}

fn push_item(rows: &mut CopyRows<'_>, claim: ClaimId, place: i32, item: &Item) -> Result<(), Error> {
    let units = item.units.iter().map(|unit| row::integer(unit.number)).collect::<Result<Vec<_>, _>>()?;
    let seats = item.units.iter().filter_map(|unit| unit.seat.as_ref());
    let (row_labels, seat_labels): (Vec<&str>, Vec<&str>) =
        seats.map(|seat| (seat.row_label.as_str(), seat.seat_label.as_str())).unzip();
    rows.push(&[
        &claim.as_uuid(),
        &place,
        &item.sector.as_uuid(),
        &item.sector_name,
        &item.unit_price.amount_minor(),
        &row::integer(item.group_count)?,
        &units,
        &row_labels,
        &seat_labels,
    ])?;
    Ok(())
}

/// Adds new claims, whose holds and allowances are taken already.
pub async fn insert(tx: &Transaction, claims: &[Claim]) -> Result<(), Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let mut rows = CopyRows::of(&COPY_TYPES, claims.len());
    for claim in claims {
        push_claim(&mut rows, claim)?;
    }
    tx.copy_in(COPY, rows).await?;
    copy_items(tx, claims.iter().map(|claim| (claim.id, claim.items.as_slice()))).await
}

/// Adds the items of one claim that has none.
pub(super) async fn insert_items(tx: &Transaction, claim: ClaimId, items: &[Item]) -> Result<(), Error> {
    copy_items(tx, std::iter::once((claim, items))).await
}

async fn copy_items(
    tx: &Transaction,
    claims: impl ExactSizeIterator<Item = (ClaimId, &[Item])>,
) -> Result<(), Error> {
    let placed = |(claim, items)| (1_i32..).zip(items).map(move |(place, item)| (claim, place, item));
    let mut rows = CopyRows::of(&COPY_ITEMS_TYPES, claims.len());
    for (claim, place, item) in claims.flat_map(placed) {
        push_item(&mut rows, claim, place, item)?;
    }
    tx.copy_in(COPY_ITEMS, rows).await?;
    Ok(())
}

/// Brings locked claims to another life, with all that hangs on them: holds, allowances, history. Answers them as they are
/// then, in their order.
pub async fn save(
    tx: &Transaction,
    changes: &[(Claim, Life)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<Vec<Claim>, Error> {
    update(tx, changes).await?;
    update_holds(tx, changes).await?;
    update_allowances(tx, changes, now, rule).await?;
    let mut saved = Vec::with_capacity(changes.len());
    let mut moved = Vec::new();
    for (claim, life) in changes {
        let mut claim = Claim { life: *life, ..claim.clone() };
        if claim.history.last().is_none_or(|last| last.stage != life.stage()) {
            claim.history.push(Transition { stage: life.stage(), time: now });
            moved.push(saved.len());
        }
        saved.push(claim);
    }
    let moved: Vec<&Claim> = moved.into_iter().filter_map(|index| saved.get(index)).collect();
    insert_transitions(tx, &moved, now).await?;
    let settled: Vec<ClaimId> = saved.iter().filter(|it| it.life.is_final()).map(|it| it.id).collect();
    hold_attempts::abandon_of_claims(tx, &settled).await?;
    Ok(saved)
}

/// Gives a locked claim another lifetime.
pub async fn save_lifetime(tx: &Transaction, claim: ClaimId, lifetime: Lifetime) -> Result<(), Error> {
    let expire_time = row::system_time(lifetime.expire_time)?;
    let extend_time = lifetime.extend_time.map(row::system_time).transpose()?;
    tx.execute(UPDATE_LIFETIME, &[&claim.as_uuid(), &expire_time, &extend_time]).await?;
    Ok(())
}

/// One statement each, sent one behind the other: in one for all of them the planner may read the whole table.
async fn update(tx: &Transaction, changes: &[(Claim, Life)]) -> Result<(), Error> {
    let updates = changes.iter().map(|(claim, life)| async move {
        let (state, reason) = row::stage_columns(life.stage());
        let payment = life.payment().map(|payment| payment.as_uuid());
        tx.execute(UPDATE, &[&claim.id.as_uuid(), &state, &reason, &payment]).await
    });
    futures_util::future::try_join_all(updates).await?;
    Ok(())
}

async fn update_holds(tx: &Transaction, changes: &[(Claim, Life)]) -> Result<(), Error> {
    let changed = changes.iter().filter(|(claim, life)| life.hold != claim.life.hold);
    let (ids, states): (Vec<Uuid>, Vec<&str>) =
        changed.map(|(claim, life)| (claim.hold.as_uuid(), row::hold_column(life.hold))).unzip();
    if !ids.is_empty() {
        tx.execute(UPDATE_HOLDS, &[&ids, &states]).await?;
    }
    Ok(())
}

async fn update_allowances(
    tx: &Transaction,
    changes: &[(Claim, Life)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<(), Error> {
    let keys: Vec<_> = changes.iter().map(|(claim, _)| (claim.event.id, claim.customer)).collect();
    let mut allowances = allowances::lock(tx, &keys).await?;
    let before = allowances.clone();
    for ((claim, life), key) in changes.iter().zip(&keys) {
        let kept = allowances.get_mut(key).ok_or(Error::Stored { what: "allowance" })?;
        *kept = kept.after(claim.life, *life, claim.unit_count(), now, rule);
    }
    let changed: Vec<_> =
        allowances.into_iter().filter(|(key, kept)| before.get(key) != Some(kept)).collect();
    allowances::save(tx, &changed).await
}

async fn insert_transitions(tx: &Transaction, moved: &[&Claim], now: Timestamp) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = moved.iter().map(|claim| claim.id.as_uuid()).collect();
    let numbers: Vec<i32> =
        moved.iter().map(|claim| i32::try_from(claim.history.len()).unwrap_or(i32::MAX)).collect();
    let (states, reasons): (Vec<&str>, Vec<Option<&str>>) =
        moved.iter().map(|claim| row::stage_columns(claim.life.stage())).unzip();
    tx.execute(INSERT_TRANSITIONS, &[&ids, &numbers, &states, &reasons, &row::system_time(now)?]).await?;
    Ok(())
}

fn fencing_number(claim: &Claim) -> Result<Option<i64>, Error> {
    match claim.origin {
        Origin::Turn { fencing_number } => {
            i64::try_from(fencing_number).map(Some).map_err(|_large| Error::Stored { what: "fencing_number" })
        }
        Origin::Invitation { .. } => Ok(None),
    }
}

fn quota(claim: &Claim) -> Option<Uuid> {
    match claim.origin {
        Origin::Turn { .. } => None,
        Origin::Invitation { quota } => Some(quota.as_uuid()),
    }
}
