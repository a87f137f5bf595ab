//! The holds asked of Inventory, written before the asking. What a crash leaves is found and given back from here.

use std::{collections::HashSet, time::Duration};

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, HoldId, Timestamp};
use uuid::Uuid;

use super::row;
use crate::error::Error;

// Where a statement names holds, `= ANY` and `IS TRUE` leave the planner one way to find them, by their key: of a table that a
// rush has just filled it knows nothing, and reads all of it, or all of one state.
const LATEST: &str = "SELECT attempt, state, fingerprint, claim_id FROM hold_attempt
    WHERE hold_key = $1 ORDER BY attempt DESC LIMIT 1";
// An attempt that another call began is joined as long as nobody has given it up.
const ATTEMPT: &str = "INSERT INTO hold_attempt (hold_id, hold_key, attempt, fingerprint, claim_id, state)
    SELECT hold_id, hold_key, attempt, fingerprint, claim_id, 'RESERVING'
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::uuid[], $5::uuid[])
        AS new (hold_id, hold_key, attempt, fingerprint, claim_id)
    ORDER BY hold_id
    ON CONFLICT (hold_id) DO UPDATE SET attempted_at = now()
        WHERE hold_attempt.state = 'RESERVING' AND hold_attempt.fingerprint = excluded.fingerprint
    RETURNING hold_id";
// The lock that the insert of a claim and its abandonment both take: whoever is second finds another state.
const TAKE: &str = "UPDATE hold_attempt SET state = 'HELD', claim_id = new.claim_id
    FROM unnest($1::uuid[], $2::uuid[]) AS new (hold_id, claim_id)
    WHERE hold_attempt.hold_id = ANY ($1) AND hold_attempt.hold_id = new.hold_id AND (hold_attempt.state = 'RESERVING') IS TRUE
    RETURNING hold_attempt.claim_id, now() AS database_now";
const GIVE_UP: &str = "UPDATE hold_attempt SET state = 'RELEASING', claim_id = NULL, release_due_at = now()
    WHERE hold_id = ANY ($1) AND (state = 'HELD') IS TRUE";
const DISCARD: &str =
    "DELETE FROM hold_attempt WHERE hold_id = $1 AND state = 'RESERVING' AND claim_id IS NULL";
const ABANDON: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id = $1 AND state = 'RESERVING'";
const ABANDON_OF_CLAIMS: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE claim_id = ANY ($1) AND state = 'RESERVING'";
const ABANDON_STALE: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id IN (SELECT hold_id FROM hold_attempt
        WHERE state = 'RESERVING' AND claim_id IS NULL AND attempted_at < now() - make_interval(secs => $1)
        ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
// Taking one puts its next try off, so that others pass it over while it is worked on and after it failed.
const TAKE_DUE: &str = "UPDATE hold_attempt SET release_due_at = now() + make_interval(secs => $1)
    WHERE hold_id IN (SELECT hold_id FROM hold_attempt
        WHERE state = 'RELEASING' AND release_due_at <= now()
        ORDER BY release_due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING hold_id";
const RELEASING_OF_CLAIM: &str =
    "SELECT hold_id FROM hold_attempt WHERE claim_id = $1 AND state = 'RELEASING'";
const FINISH: &str =
    "UPDATE hold_attempt SET state = $2 WHERE hold_id = ANY ($1) AND (state = 'RELEASING') IS TRUE";
const FORGET: &str = "DELETE FROM hold_attempt WHERE hold_id IN (SELECT hold_id FROM hold_attempt
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

/// One try to get a hold.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The id that Inventory is asked for.
    pub hold: HoldId,
    number: i32,
    want: Want,
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

impl Latest {
    /// From a row that has its columns.
    pub(super) fn read(found: &Row) -> Result<Self, Error> {
        Ok(Self {
            attempt: column(found, "attempt")?,
            is_given_up: matches!(column::<&str>(found, "state")?, "RELEASING" | "RELEASED"),
            fingerprint: column(found, "fingerprint")?,
            claim: column::<Option<Uuid>>(found, "claim_id")?.map(ClaimId::from_uuid),
        })
    }
}

impl Attempt {
    /// The next try of `want` after `latest`: the same, as long as nobody gave that up, for a hold that went back cannot be had
    /// again.
    #[must_use]
    pub fn after(latest: Option<Latest>, want: Want) -> Self {
        let number = latest.map_or(1, |latest| latest.attempt.saturating_add(i32::from(latest.is_given_up)));
        let hold = HoldId::from_uuid(Uuid::new_v5(&want.cause, &number.to_be_bytes()));
        Self { hold, number, want }
    }
}

/// The last hold asked for on behalf of `cause`.
pub async fn latest(postgres: &Postgres, cause: Uuid) -> Result<Option<Latest>, Error> {
    let found = postgres.query_opt("latest hold", LATEST, &[&cause]).await?;
    found.as_ref().map(Latest::read).transpose()
}

/// Notes that Inventory is about to be asked for these holds, each named once. Answers which may be asked for: not those that
/// were given up or used just now.
pub async fn attempt(postgres: &Postgres, attempts: &[Attempt]) -> Result<HashSet<HoldId>, Error> {
    let holds: Vec<Uuid> = attempts.iter().map(|it| it.hold.as_uuid()).collect();
    let causes: Vec<Uuid> = attempts.iter().map(|it| it.want.cause).collect();
    let numbers: Vec<i32> = attempts.iter().map(|it| it.number).collect();
    let fingerprints: Vec<Uuid> = attempts.iter().map(|it| it.want.fingerprint).collect();
    let claims: Vec<Option<Uuid>> =
        attempts.iter().map(|it| it.want.claim.map(|claim| claim.as_uuid())).collect();
    let noted = postgres
        .query("attempt holds", ATTEMPT, &[&holds, &causes, &numbers, &fingerprints, &claims])
        .await?;
    noted.iter().map(|noted| row::id(noted, "hold_id", HoldId::from_uuid)).collect()
}

/// Makes each hold that of its claim, unless it was given up before. Answers the claims that have theirs, and the time by the
/// database's clock if there are any.
pub async fn take(
    tx: &Transaction,
    holds: &[(HoldId, ClaimId)],
) -> Result<(HashSet<ClaimId>, Option<Timestamp>), Error> {
    let (ids, claims): (Vec<Uuid>, Vec<Uuid>) =
        holds.iter().map(|(hold, claim)| (hold.as_uuid(), claim.as_uuid())).unzip();
    let taken = tx.query(TAKE, &[&ids, &claims]).await?;
    let now = taken.first().map(|taken| row::timestamp(taken, "database_now")).transpose()?;
    let claims = taken.iter().map(|taken| row::id(taken, "claim_id", ClaimId::from_uuid));
    Ok((claims.collect::<Result<_, _>>()?, now))
}

/// Gives up holds that were just taken for claims that are not made: from here on they have to be given back.
pub async fn give_up(tx: &Transaction, holds: &[HoldId]) -> Result<(), Error> {
    if !holds.is_empty() {
        tx.execute(GIVE_UP, &[&uuids(holds)]).await?;
    }
    Ok(())
}

/// Forgets an attempt at what Inventory never had and never will have, so that nothing can be held for it.
pub async fn discard(postgres: &Postgres, hold: HoldId) -> Result<(), Error> {
    postgres.execute("discard attempt", DISCARD, &[&hold.as_uuid()]).await?;
    Ok(())
}

/// Gives an attempt up: from here on it has to be given back. False when a claim stands on it, or it was given up before.
pub async fn abandon(postgres: &Postgres, hold: HoldId) -> Result<bool, Error> {
    Ok(postgres.execute("abandon hold", ABANDON, &[&hold.as_uuid()]).await? == 1)
}

/// Gives up every attempt made for claims that are settled.
pub async fn abandon_of_claims(tx: &Transaction, claims: &[ClaimId]) -> Result<(), Error> {
    if !claims.is_empty() {
        let claims: Vec<Uuid> = claims.iter().map(ClaimId::as_uuid).collect();
        tx.execute(ABANDON_OF_CLAIMS, &[&claims]).await?;
    }
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

/// Notes how giving holds back ended; `is_committed`: Inventory says that they are sold.
pub async fn finish(postgres: &Postgres, holds: &[HoldId], is_committed: bool) -> Result<(), Error> {
    if !holds.is_empty() {
        let state = if is_committed { "COMMITTED" } else { "RELEASED" };
        postgres.execute("finish release", FINISH, &[&uuids(holds), &state]).await?;
    }
    Ok(())
}

/// Forgets attempts that came to nothing longer ago than `after`, at most `count_max`; says how many.
pub async fn forget(postgres: &Postgres, after: Duration, count_max: u32) -> Result<u64, Error> {
    let parameters = (after.as_secs_f64(), i64::from(count_max));
    Ok(postgres.execute("forget holds", FORGET, &[&parameters.0, &parameters.1]).await?)
}

fn uuids(holds: &[HoldId]) -> Vec<Uuid> {
    holds.iter().map(HoldId::as_uuid).collect()
}
