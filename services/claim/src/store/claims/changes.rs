//! Writes changes of locked claims. Each statement changes several claims, because it costs about the same for one as for a hundred.

use onsale_storage::postgres::{
    Transaction,
    row::{SqlCount, SqlTime, uuids},
};
use onsale_types::{ClaimId, Named as _, Timestamp};
use uuid::Uuid;

use super::stage;
use crate::{
    domain::{Claim, ClaimExpiry, ClaimLifecycle, CooldownRule, Transition},
    error::Error,
    store::{allowances, hold_attempts},
};

const INSERT_TRANSITIONS: &str =
    "INSERT INTO claim_transition (claim_id, number, state, release_reason, transitioned_at)
    SELECT claim_id, number, state, release_reason, $5
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS new (claim_id, number, state, release_reason)";
const UPDATE: &str = "UPDATE claim SET state = $2, release_reason = $3, payment_id = $4 WHERE claim_id = $1";
const UPDATE_HOLDS: &str = "UPDATE hold_attempt SET state = new.state, release_due_at = now()
    FROM unnest($1::uuid[], $2::text[]) AS new (hold_id, state)
    WHERE hold_attempt.hold_id = ANY ($1) AND hold_attempt.hold_id = new.hold_id";
const UPDATE_EXPIRY: &str = "UPDATE claim SET expires_at = $2, extended_at = $3 WHERE claim_id = $1";

/// Saves the new lifecycles of locked claims together with their holds, allowances and history. Returns the changed claims in
/// the order of `changes`.
pub(crate) async fn save(
    transaction: &Transaction,
    changes: &[(Claim, ClaimLifecycle)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<Vec<Claim>, Error> {
    update_claims(transaction, changes).await?;
    update_holds(transaction, changes).await?;
    update_allowances(transaction, changes, now, rule).await?;
    let mut saved = Vec::with_capacity(changes.len());
    let mut moved = Vec::new();
    for (claim, lifecycle) in changes {
        let mut claim = Claim { lifecycle: *lifecycle, ..claim.clone() };
        if claim.history.last().is_none_or(|last| last.stage != lifecycle.stage()) {
            claim.history.push(Transition { stage: lifecycle.stage(), time: now });
            moved.push(saved.len());
        }
        saved.push(claim);
    }
    let moved: Vec<&Claim> = moved.into_iter().filter_map(|index| saved.get(index)).collect();
    insert_transitions(transaction, &moved, now).await?;
    let settled: Vec<ClaimId> = saved.iter().filter(|it| it.lifecycle.is_final()).map(|it| it.id).collect();
    hold_attempts::abandon_of_claims(transaction, &settled).await?;
    Ok(saved)
}

/// Saves the new expiry of a locked claim.
pub(crate) async fn save_expiry(
    transaction: &Transaction,
    claim_id: ClaimId,
    expiry: ClaimExpiry,
) -> Result<(), Error> {
    let (expire_time, extend_time) = (SqlTime(expiry.expire_time), expiry.extend_time.map(SqlTime));
    transaction.execute(UPDATE_EXPIRY, &[&claim_id.as_uuid(), &expire_time, &extend_time]).await?;
    Ok(())
}

/// Updates each claim by a statement of its own, all sent without waiting: for one statement with an array of ids the planner
/// may read the whole table.
async fn update_claims(transaction: &Transaction, changes: &[(Claim, ClaimLifecycle)]) -> Result<(), Error> {
    let updates = changes.iter().map(|(claim, lifecycle)| async move {
        let (state, reason) = stage::columns(lifecycle.stage());
        let payment_id = lifecycle.payment_id().map(|payment_id| payment_id.as_uuid());
        transaction.execute(UPDATE, &[&claim.id.as_uuid(), &state, &reason, &payment_id]).await
    });
    futures_util::future::try_join_all(updates).await?;
    Ok(())
}

async fn update_holds(transaction: &Transaction, changes: &[(Claim, ClaimLifecycle)]) -> Result<(), Error> {
    let changed = changes.iter().filter(|(claim, lifecycle)| lifecycle.hold != claim.lifecycle.hold);
    let (ids, states): (Vec<Uuid>, Vec<&str>) =
        changed.map(|(claim, lifecycle)| (claim.hold_id.as_uuid(), lifecycle.hold.name())).unzip();
    if !ids.is_empty() {
        transaction.execute(UPDATE_HOLDS, &[&ids, &states]).await?;
    }
    Ok(())
}

async fn update_allowances(
    transaction: &Transaction,
    changes: &[(Claim, ClaimLifecycle)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<(), Error> {
    let keys: Vec<_> = changes.iter().map(|(claim, _)| (claim.event.id, claim.customer_id)).collect();
    let mut allowances = allowances::lock(transaction, &keys).await?;
    let before = allowances.clone();
    for ((claim, lifecycle), key) in changes.iter().zip(&keys) {
        let allowance = allowances.get_mut(key).ok_or(Error::Stored { what: "allowance" })?;
        *allowance = allowance.after(claim.lifecycle, *lifecycle, claim.unit_count(), now, rule);
    }
    let changed: Vec<_> =
        allowances.into_iter().filter(|(key, allowance)| before.get(key) != Some(allowance)).collect();
    allowances::save(transaction, &changed).await
}

async fn insert_transitions(
    transaction: &Transaction,
    moved: &[&Claim],
    now: Timestamp,
) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let ids = uuids(moved.iter().map(|claim| &claim.id));
    let numbers: Vec<SqlCount<usize>> = moved.iter().map(|claim| SqlCount(claim.history.len())).collect();
    let (states, reasons): (Vec<&str>, Vec<Option<&str>>) =
        moved.iter().map(|claim| stage::columns(claim.lifecycle.stage())).unzip();
    transaction.execute(INSERT_TRANSITIONS, &[&ids, &numbers, &states, &reasons, &SqlTime(now)]).await?;
    Ok(())
}
