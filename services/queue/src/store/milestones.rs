//! How far down the line each milestone has been told, and who stands there.

use std::collections::HashMap;

use onsale_storage::postgres::{Postgres, Transaction};
use onsale_types::{CustomerId, EntryId, EventId};

use super::{count, sql_count, uuid};
use crate::{
    domain::{milestone::SeqRange, policy::Policy},
    error::Error,
};

const MOVING: &str = "SELECT event_id, revision FROM queue JOIN line USING (event_id)
    WHERE state IN ('OPEN', 'PAUSED') AND mode = 'TRACKED' AND waiting_count > 0
        AND coalesce(cardinality(milestones) > 0, $1)";
const TOLD: &str = "SELECT milestone, last_seq FROM milestone WHERE event_id = $1";
const NTH_WAITING: &str =
    "SELECT seq FROM entry WHERE event_id = $1 AND state = 'WAITING' ORDER BY seq OFFSET $2 LIMIT 1";
// Entries older than the column: their number in line is no lower than the position they began with.
const PAGE: &str = "SELECT entry_id, customer_id, seq, coalesce(start_position, seq) AS start_position,
        row_number() OVER (ORDER BY seq) + (SELECT count(*) FROM entry before
            WHERE before.event_id = $1 AND before.state = 'WAITING' AND before.seq <= $2) AS position
    FROM entry WHERE event_id = $1 AND state = 'WAITING' AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
const TELL: &str = "INSERT INTO milestone (event_id, milestone, last_seq) VALUES ($1, $2, $3)
    ON CONFLICT (event_id, milestone) DO UPDATE SET last_seq = EXCLUDED.last_seq WHERE milestone.last_seq = $4";

/// Somebody who passed a milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedMilestone {
    /// Their entry.
    pub(crate) entry_id: EntryId,
    /// Who.
    pub(crate) customer_id: CustomerId,
    /// Where they stand now.
    pub(crate) position: u64,
}

/// Somebody who waits at a milestone or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MilestoneCandidate {
    /// Who, and where.
    pub(crate) passed: PassedMilestone,
    /// Their number in line.
    pub(crate) seq: u64,
    /// Where they began.
    pub(crate) start_position: u64,
}

/// Events with milestones in which somebody waits, and the revisions of their lines.
pub(crate) async fn moving(postgres: &Postgres, defaults: &Policy) -> Result<Vec<(EventId, u64)>, Error> {
    let has_milestones = !defaults.milestones.is_empty();
    let rows = postgres.query("find moving", MOVING, &[&has_milestones]).await?;
    let event = |row| Ok((EventId::from_uuid(uuid(row, "event_id")?), count(row, "revision")?));
    rows.iter().map(event).collect()
}

/// Up to which number in line each milestone has been told.
pub(crate) async fn told(postgres: &Postgres, event_id: EventId) -> Result<HashMap<u64, u64>, Error> {
    let rows = postgres.query("told milestones", TOLD, &[&event_id.as_uuid()]).await?;
    rows.iter().map(|row| Ok((count(row, "milestone")?, count(row, "last_seq")?))).collect()
}

/// The number in line of who stands at `position`; none when the line is shorter.
pub(crate) async fn nth_waiting(
    postgres: &Postgres,
    event_id: EventId,
    position: u64,
) -> Result<Option<u64>, Error> {
    let before = sql_count(position.saturating_sub(1));
    let row = postgres.query_opt("nth waiting", NTH_WAITING, &[&event_id.as_uuid(), &before]).await?;
    row.as_ref().map(|row| count(row, "seq")).transpose()
}

/// The first who wait in a span, with their positions.
pub(crate) async fn page(
    postgres: &Postgres,
    event_id: EventId,
    span: &SeqRange,
    entries_max: usize,
) -> Result<Vec<MilestoneCandidate>, Error> {
    let (event, limit) = (event_id.as_uuid(), i64::try_from(entries_max).unwrap_or(i64::MAX));
    let (after, upto) = (sql_count(span.after_seq), sql_count(span.upto_seq));
    let rows = postgres.query("page of a milestone", PAGE, &[&event, &after, &upto, &limit]).await?;
    let candidate = |row| {
        let passed = PassedMilestone {
            entry_id: EntryId::from_uuid(uuid(row, "entry_id")?),
            customer_id: CustomerId::from_uuid(uuid(row, "customer_id")?),
            position: count(row, "position")?,
        };
        Ok(MilestoneCandidate {
            passed,
            seq: count(row, "seq")?,
            start_position: count(row, "start_position")?,
        })
    };
    rows.iter().map(candidate).collect()
}

/// Notes that a milestone has been told up to `upto_seq`. Answers false when it had not come as far as was thought.
pub(crate) async fn tell(
    transaction: &Transaction,
    event_id: EventId,
    milestone: u64,
    told_seq: u64,
    upto_seq: u64,
) -> Result<bool, Error> {
    let told = transaction
        .execute(
            TELL,
            &[&event_id.as_uuid(), &sql_count(milestone), &sql_count(upto_seq), &sql_count(told_seq)],
        )
        .await?;
    Ok(told == 1)
}
