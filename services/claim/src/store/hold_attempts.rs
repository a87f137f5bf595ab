//! Attempts to obtain a hold. Each is stored before Inventory is called, so that a hold which a crash leaves behind is found and
//! released.
//!
//! The labels of statements are label values of metrics, so they keep older words than the functions.

use std::{collections::HashSet, time::Duration};

use onsale_storage::{
    due::{BackoffBounds, DueTable},
    postgres::{
        Postgres, Row, Transaction,
        row::{RowExt as _, SqlCount, uuids},
    },
};
use onsale_types::{ClaimId, HoldId, Named as _, Timestamp};
use uuid::Uuid;

use super::allowances;
use crate::{
    domain::{HoldAttempt, HoldState, LatestAttempt, PrecheckItem, PrecheckState},
    error::Error,
};

// Statements that name holds use `= ANY` and `IS TRUE`, which leave the planner only the plan by primary key. Without statistics,
// as for a table that a rush has just filled, it would read the whole table or all rows of one state.

// One index lookup each: `LIMIT` keeps the planner from joining with a whole table.
const PRECHECK: &str =
    "SELECT latest.attempt, latest.is_abandoned, latest.fingerprint, latest.claim_id,
        kept.units_max, kept.units_taken, kept.abandoned_count, kept.abandoned_at,
        open.claim_id AS open_claim_id, now() AS database_now
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS asked (hold_key, event_id, customer_id, place)
    LEFT JOIN LATERAL (SELECT attempt, state IN ('RELEASING', 'RELEASED') AS is_abandoned, fingerprint, claim_id
        FROM hold_attempt WHERE hold_key = asked.hold_key ORDER BY attempt DESC LIMIT 1) latest ON true
    LEFT JOIN LATERAL (SELECT units_max, units_taken, abandoned_count, abandoned_at FROM allowance
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id LIMIT 1) kept ON true
    LEFT JOIN LATERAL (SELECT claim_id FROM claim
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id AND state = 'CLAIMED' LIMIT 1) open ON true
    ORDER BY asked.place";
const LATEST: &str =
    "SELECT attempt, state IN ('RELEASING', 'RELEASED') AS is_abandoned, fingerprint, claim_id
    FROM hold_attempt WHERE hold_key = $1 ORDER BY attempt DESC LIMIT 1";
// Joins the attempt of a concurrent call unless it was abandoned.
const BEGIN: &str = "INSERT INTO hold_attempt (hold_id, hold_key, attempt, fingerprint, claim_id, state)
    SELECT hold_id, hold_key, attempt, fingerprint, claim_id, 'RESERVING'
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::uuid[], $5::uuid[])
        AS new (hold_id, hold_key, attempt, fingerprint, claim_id)
    ORDER BY hold_id
    ON CONFLICT (hold_id) DO UPDATE SET attempted_at = now()
        WHERE hold_attempt.state = 'RESERVING' AND hold_attempt.fingerprint = excluded.fingerprint
    RETURNING hold_id";
// Takes the row lock that ABANDON takes too: the later of the two finds another state.
const TAKE: &str = "UPDATE hold_attempt SET state = 'HELD', claim_id = new.claim_id
    FROM unnest($1::uuid[], $2::uuid[]) AS new (hold_id, claim_id)
    WHERE hold_attempt.hold_id = ANY ($1) AND hold_attempt.hold_id = new.hold_id
        AND (hold_attempt.state = 'RESERVING') IS TRUE
    RETURNING hold_attempt.claim_id, now() AS database_now";
const RELEASE_TAKEN: &str =
    "UPDATE hold_attempt SET state = 'RELEASING', claim_id = NULL, release_due_at = now()
    WHERE hold_id = ANY ($1) AND (state = 'HELD') IS TRUE";
const DELETE: &str =
    "DELETE FROM hold_attempt WHERE hold_id = $1 AND state = 'RESERVING' AND claim_id IS NULL";
const ABANDON: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id = $1 AND state = 'RESERVING'";
const ABANDON_OF_CLAIMS: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE claim_id = ANY ($1) AND state = 'RESERVING'";
const ABANDON_STALE: &str = "UPDATE hold_attempt SET state = 'RELEASING', release_due_at = now()
    WHERE hold_id IN (SELECT hold_id FROM hold_attempt
        WHERE state = 'RESERVING' AND claim_id IS NULL AND attempted_at < now() - make_interval(secs => $1)
        ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
const RELEASING_OF_CLAIM: &str =
    "SELECT hold_id FROM hold_attempt WHERE claim_id = $1 AND state = 'RELEASING'";
const FINISH: &str =
    "UPDATE hold_attempt SET state = $2 WHERE hold_id = ANY ($1) AND (state = 'RELEASING') IS TRUE";
const DELETE_OLD: &str = "DELETE FROM hold_attempt WHERE hold_id IN (SELECT hold_id FROM hold_attempt
    WHERE state = 'RELEASED' AND claim_id IS NULL AND attempted_at < now() - make_interval(secs => $1)
    ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED)";
const RELEASES: DueTable = onsale_storage::due_table! {
    table: "hold_attempt",
    id: "hold_id",
    due: "release_due_at",
    attempts: none,
    condition: "state = 'RELEASING'",
    make_due_by: "claim_id",
    returning: "hold_id",
};

/// Reads, without locks, the stored state that the precheck of each item needs, in the order of the items.
pub(crate) async fn precheck(
    postgres: &Postgres,
    items: &[PrecheckItem],
) -> Result<Vec<PrecheckState>, Error> {
    let keys: Vec<Uuid> = items.iter().map(|item| item.hold_request.hold_key).collect();
    let events = uuids(items.iter().map(|item| &item.event_id));
    let customers = uuids(items.iter().map(|item| &item.customer_id));
    let rows = postgres.query("look", PRECHECK, &[&keys, &events, &customers]).await?;
    rows.iter().map(read_state).collect()
}

fn read_state(row: &Row) -> Result<PrecheckState, Error> {
    let has_attempt = row.read::<Option<i32>>("attempt")?.is_some();
    let has_allowance = row.read::<Option<i32>>("units_max")?.is_some();
    Ok(PrecheckState {
        latest_attempt: if has_attempt { Some(read_latest(row)?) } else { None },
        open_claim_id: row.read_optional_id("open_claim_id")?,
        allowance: if has_allowance { Some(allowances::read(row)?) } else { None },
        now: row.read_time("database_now")?,
    })
}

fn read_latest(row: &Row) -> Result<LatestAttempt, Error> {
    Ok(LatestAttempt {
        number: row.read_count("attempt")?,
        is_abandoned: row.read("is_abandoned")?,
        fingerprint: row.read("fingerprint")?,
        claim_id: row.read_optional_id("claim_id")?,
    })
}

/// Reads the latest attempt of a hold key.
pub(crate) async fn latest(postgres: &Postgres, hold_key: Uuid) -> Result<Option<LatestAttempt>, Error> {
    let row = postgres.query_opt("latest hold", LATEST, &[&hold_key]).await?;
    row.as_ref().map(read_latest).transpose()
}

/// Stores attempts, whose hold ids are distinct, before Inventory is called. Returns the holds that may be reserved; the others
/// were abandoned or taken by a claim in the meantime.
pub(crate) async fn begin(postgres: &Postgres, attempts: &[HoldAttempt]) -> Result<HashSet<HoldId>, Error> {
    let holds = uuids(attempts.iter().map(|attempt| &attempt.hold_id));
    let keys: Vec<Uuid> = attempts.iter().map(|attempt| attempt.request.hold_key).collect();
    let numbers: Vec<SqlCount<u32>> = attempts.iter().map(|attempt| SqlCount(attempt.number)).collect();
    let fingerprints: Vec<Uuid> = attempts.iter().map(|attempt| attempt.request.fingerprint).collect();
    let claims: Vec<Option<Uuid>> =
        attempts.iter().map(|attempt| attempt.request.claim_id.map(|claim_id| claim_id.as_uuid())).collect();
    let rows =
        postgres.query("attempt holds", BEGIN, &[&holds, &keys, &numbers, &fingerprints, &claims]).await?;
    rows.iter().map(|row| Ok(row.read_id("hold_id")?)).collect()
}

/// Takes each hold for its claim unless its attempt was abandoned. Returns the claims that obtained their hold and, if there are
/// any, the time by the database's clock.
pub(crate) async fn take(
    transaction: &Transaction,
    holds: &[(HoldId, ClaimId)],
) -> Result<(HashSet<ClaimId>, Option<Timestamp>), Error> {
    let (ids, claims): (Vec<Uuid>, Vec<Uuid>) =
        holds.iter().map(|(hold_id, claim_id)| (hold_id.as_uuid(), claim_id.as_uuid())).unzip();
    let rows = transaction.query(TAKE, &[&ids, &claims]).await?;
    let now = rows.first().map(|row| row.read_time("database_now")).transpose()?;
    let claims = rows.iter().map(|row| Ok(row.read_id("claim_id")?));
    Ok((claims.collect::<Result<_, Error>>()?, now))
}

/// Marks holds for release that this transaction has taken for claims which were then refused.
pub(crate) async fn release_taken(transaction: &Transaction, holds: &[HoldId]) -> Result<(), Error> {
    if !holds.is_empty() {
        transaction.execute(RELEASE_TAKEN, &[&uuids(holds)]).await?;
    }
    Ok(())
}

/// Deletes an attempt that Inventory refused for good. There is no hold to release.
pub(crate) async fn delete(postgres: &Postgres, hold_id: HoldId) -> Result<(), Error> {
    postgres.execute("discard attempt", DELETE, &[&hold_id.as_uuid()]).await?;
    Ok(())
}

/// Abandons an attempt, so that its hold is due for release. Returns false if a claim has taken it or it was abandoned before.
pub(crate) async fn abandon(postgres: &Postgres, hold_id: HoldId) -> Result<bool, Error> {
    Ok(postgres.execute("abandon hold", ABANDON, &[&hold_id.as_uuid()]).await? == 1)
}

/// Abandons the attempts to replace the holds of settled claims.
pub(crate) async fn abandon_of_claims(transaction: &Transaction, claims: &[ClaimId]) -> Result<(), Error> {
    if !claims.is_empty() {
        transaction.execute(ABANDON_OF_CLAIMS, &[&uuids(claims)]).await?;
    }
    Ok(())
}

/// Abandons at most `count_max` attempts older than `age` without a claim, and returns their number.
pub(crate) async fn abandon_stale(postgres: &Postgres, age: Duration, count_max: u32) -> Result<u64, Error> {
    let parameters = (age.as_secs_f64(), i64::from(count_max));
    Ok(postgres.execute("abandon stale holds", ABANDON_STALE, &[&parameters.0, &parameters.1]).await?)
}

/// Leases at most `count_max` holds that are due for release. Other workers skip them until `retry_after` has passed.
pub(crate) async fn lease_releases(
    postgres: &Postgres,
    retry_after: Duration,
    count_max: u32,
) -> Result<Vec<HoldId>, Error> {
    let lease = BackoffBounds::fixed(retry_after);
    let rows = RELEASES.lease(postgres, "take due holds", lease, count_max).await?;
    rows.iter().map(|row| Ok(row.read_id("hold_id")?)).collect()
}

/// Returns the holds of a claim that are due for release.
pub(crate) async fn releasing_of_claim(postgres: &Postgres, claim_id: ClaimId) -> Result<Vec<HoldId>, Error> {
    let rows = postgres.query("releasing holds", RELEASING_OF_CLAIM, &[&claim_id.as_uuid()]).await?;
    rows.iter().map(|row| Ok(row.read_id("hold_id")?)).collect()
}

/// Records the outcome of releases. `is_committed`: Inventory reported the holds as committed, that is, sold.
pub(crate) async fn finish_releases(
    postgres: &Postgres,
    holds: &[HoldId],
    is_committed: bool,
) -> Result<(), Error> {
    if !holds.is_empty() {
        let state = if is_committed { HoldState::Committed } else { HoldState::Released }.name();
        postgres.execute("finish release", FINISH, &[&uuids(holds), &state]).await?;
    }
    Ok(())
}

/// Deletes at most `count_max` released attempts older than `age` that no claim uses.
pub(crate) async fn delete_old(postgres: &Postgres, age: Duration, count_max: u32) -> Result<(), Error> {
    let parameters = (age.as_secs_f64(), i64::from(count_max));
    postgres.execute("forget holds", DELETE_OLD, &[&parameters.0, &parameters.1]).await?;
    Ok(())
}
