//! The holds asked of Inventory, written before the asking. What a crash leaves is found and given back from here.

use std::time::Duration;

use onsale_storage::postgres::{Postgres, Transaction, column};
use onsale_types::{ClaimId, HoldId};
use uuid::Uuid;

use super::row;
use crate::error::Error;

const LATEST: &str = "SELECT attempt, state, fingerprint, claim_id FROM hold
    WHERE cause_id = $1 ORDER BY attempt DESC LIMIT 1";
// An attempt that another call began is joined as long as nobody has given it up.
const ATTEMPT: &str = "INSERT INTO hold (hold_id, cause_id, attempt, fingerprint, claim_id, state)
    VALUES ($1, $2, $3, $4, $5, 'RESERVING')
    ON CONFLICT (hold_id) DO UPDATE SET attempted_at = now()
        WHERE hold.state = 'RESERVING' AND hold.fingerprint = excluded.fingerprint
    RETURNING hold_id";
// The lock that the insert of a claim and its abandonment both take: whoever is second finds another state.
const HOLD: &str = "UPDATE hold SET state = 'HELD', claim_id = $2 WHERE hold_id = $1 AND state = 'RESERVING'";
const ABANDON: &str = "UPDATE hold SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id = $1 AND state = 'RESERVING'";
const ABANDON_OF_CLAIM: &str = "UPDATE hold SET state = 'RELEASING', release_due_at = now()
    WHERE claim_id = $1 AND state = 'RESERVING'";
const ABANDON_STALE: &str = "UPDATE hold SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id IN (SELECT hold_id FROM hold
        WHERE state = 'RESERVING' AND claim_id IS NULL AND attempted_at < now() - make_interval(secs => $1)
        ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
// Taking one puts its next try off, so that others pass it over while it is worked on and after it failed.
const TAKE_DUE: &str = "UPDATE hold SET release_due_at = now() + make_interval(secs => $1)
    WHERE hold_id IN (SELECT hold_id FROM hold
        WHERE state = 'RELEASING' AND release_due_at <= now()
        ORDER BY release_due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING hold_id";
const RELEASING_OF_CLAIM: &str = "SELECT hold_id FROM hold WHERE claim_id = $1 AND state = 'RELEASING'";
const FINISH: &str = "UPDATE hold SET state = $2 WHERE hold_id = $1 AND state = 'RELEASING'";
const FORGET: &str = "DELETE FROM hold WHERE hold_id IN (SELECT hold_id FROM hold
    WHERE state = 'RELEASED' AND claim_id IS NULL AND attempted_at < now() - make_interval(secs => $1)
    ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// The last hold asked for on behalf of a cause.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    attempt: i32,
    is_given_up: bool,
    /// Of the body it was asked for with.
    pub fingerprint: Uuid,
    /// The claim that stands on it, or that it was asked for again for.
    pub claim: Option<ClaimId>,
}

/// What a hold is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Names the wish: the same for every try.
    pub cause: Uuid,
    /// Of what is asked for.
    pub fingerprint: Uuid,
    /// The claim it is for, if there is one already.
    pub claim: Option<ClaimId>,
}

/// The last hold asked for on behalf of `cause`.
pub async fn latest(postgres: &Postgres, cause: Uuid) -> Result<Option<Latest>, Error> {
    let Some(found) = postgres.query_opt("latest hold", LATEST, &[&cause]).await? else { return Ok(None) };
    Ok(Some(Latest {
        attempt: column(&found, "attempt")?,
        is_given_up: matches!(column::<&str>(&found, "state")?, "RELEASING" | "RELEASED"),
        fingerprint: column(&found, "fingerprint")?,
        claim: column::<Option<Uuid>>(&found, "claim_id")?.map(ClaimId::from_uuid),
    }))
}

/// Notes that Inventory is about to be asked, and under which id: that of the last try, as long as nobody gave it up, for
/// a hold that went back cannot be had again. None: it was given up or used just now.
pub async fn attempt(
    postgres: &Postgres,
    want: Want,
    latest: Option<Latest>,
) -> Result<Option<HoldId>, Error> {
    let number = latest.map_or(1, |latest| latest.attempt.saturating_add(i32::from(latest.is_given_up)));
    let hold_id = Uuid::new_v5(&want.cause, &number.to_be_bytes());
    let claim_id = want.claim.map(|claim| claim.as_uuid());
    let noted = postgres
        .query_opt("attempt hold", ATTEMPT, &[&hold_id, &want.cause, &number, &want.fingerprint, &claim_id])
        .await?;
    noted.map(|noted| row::id(&noted, "hold_id", HoldId::from_uuid)).transpose()
}

/// Makes the hold that of a claim; false when it was given up before.
pub async fn hold(tx: &Transaction, hold: HoldId, claim: ClaimId) -> Result<bool, Error> {
    Ok(tx.execute(HOLD, &[&hold.as_uuid(), &claim.as_uuid()]).await? == 1)
}

/// Gives an attempt up: from here on it has to be given back. False when a claim stands on it, or it was given up before.
pub async fn abandon(postgres: &Postgres, hold: HoldId) -> Result<bool, Error> {
    Ok(postgres.execute("abandon hold", ABANDON, &[&hold.as_uuid()]).await? == 1)
}

/// Gives up every attempt made for a claim that is settled.
pub async fn abandon_of_claim(tx: &Transaction, claim: ClaimId) -> Result<(), Error> {
    tx.execute(ABANDON_OF_CLAIM, &[&claim.as_uuid()]).await?;
    Ok(())
}

/// Gives up attempts that became no claim in `after`, at most `count_max`; says how many.
pub async fn abandon_stale(postgres: &Postgres, after: Duration, count_max: u32) -> Result<u64, Error> {
    let parameters = (after.as_secs_f64(), i64::from(count_max));
    Ok(postgres.execute("abandon stale holds", ABANDON_STALE, &[&parameters.0, &parameters.1]).await?)
}

/// Takes holds that are to be given back, at most `count_max`; nobody else takes them before `again_after`.
pub async fn take_due(
    postgres: &Postgres,
    again_after: Duration,
    count_max: u32,
) -> Result<Vec<HoldId>, Error> {
    let parameters = (again_after.as_secs_f64(), i64::from(count_max));
    let due = postgres.query("take due holds", TAKE_DUE, &[&parameters.0, &parameters.1]).await?;
    due.iter().map(|due| row::id(due, "hold_id", HoldId::from_uuid)).collect()
}

/// The holds of a claim that are to be given back.
pub async fn releasing_of_claim(postgres: &Postgres, claim: ClaimId) -> Result<Vec<HoldId>, Error> {
    let found = postgres.query("releasing holds", RELEASING_OF_CLAIM, &[&claim.as_uuid()]).await?;
    found.iter().map(|found| row::id(found, "hold_id", HoldId::from_uuid)).collect()
}

/// Notes how giving a hold back ended; `is_committed`: Inventory says that it is sold.
pub async fn finish(postgres: &Postgres, hold: HoldId, is_committed: bool) -> Result<(), Error> {
    let state = if is_committed { "COMMITTED" } else { "RELEASED" };
    postgres.execute("finish release", FINISH, &[&hold.as_uuid(), &state]).await?;
    Ok(())
}

/// Forgets attempts that came to nothing longer ago than `after`, at most `count_max`; says how many.
pub async fn forget(postgres: &Postgres, after: Duration, count_max: u32) -> Result<u64, Error> {
    let parameters = (after.as_secs_f64(), i64::from(count_max));
    Ok(postgres.execute("forget holds", FORGET, &[&parameters.0, &parameters.1]).await?)
}
