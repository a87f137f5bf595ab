//! Milestone pushes in Postgres: the cursor of each milestone, and the entries between two cursors.

use std::collections::HashMap;

use onsale_storage::postgres::{
    Postgres, Row, Transaction,
    row::{RowExt as _, SqlCount},
};
use onsale_types::EventId;

use crate::{
    domain::{
        milestone::{MilestoneCandidate, PassedMilestone, SeqRange},
        policy::Policy,
    },
    error::Error,
};

const MOVING: &str = "SELECT event_id, revision FROM queue JOIN line USING (event_id)
    WHERE state IN ('OPEN', 'PAUSED') AND mode = 'TRACKED' AND waiting_count > 0
        AND coalesce(cardinality(milestones) > 0, $1)";
const CURSORS: &str = "SELECT milestone, last_seq FROM milestone WHERE event_id = $1";
const NTH_WAITING: &str =
    "SELECT seq FROM entry WHERE event_id = $1 AND state = 'WAITING' ORDER BY seq OFFSET $2 LIMIT 1";
// Entries older than the column `start_position` have NULL there. Their number is at least the position at which they joined.
const PAGE: &str = "SELECT entry_id, customer_id, seq, coalesce(start_position, seq) AS start_position,
        row_number() OVER (ORDER BY seq) + (SELECT count(*) FROM entry before
            WHERE before.event_id = $1 AND before.state = 'WAITING' AND before.seq <= $2) AS position
    FROM entry WHERE event_id = $1 AND state = 'WAITING' AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
const MOVE_CURSOR: &str = "INSERT INTO milestone (event_id, milestone, last_seq) VALUES ($1, $2, $3)
    ON CONFLICT (event_id, milestone) DO UPDATE SET last_seq = EXCLUDED.last_seq WHERE milestone.last_seq = $4";

/// Returns the events that have milestones and waiting entries, with the revisions of their lines.
pub(crate) async fn moving(postgres: &Postgres, defaults: &Policy) -> Result<Vec<(EventId, u64)>, Error> {
    let has_milestones = !defaults.milestones.is_empty();
    let rows = postgres.query("find moving", MOVING, &[&has_milestones]).await?;
    rows.iter().map(|row| Ok((row.read_id("event_id")?, row.read_count("revision")?))).collect()
}

/// Returns the cursor of each milestone that has one: the number up to which its pushes were sent.
pub(crate) async fn cursors(postgres: &Postgres, event_id: EventId) -> Result<HashMap<u64, u64>, Error> {
    let rows = postgres.query("told milestones", CURSORS, &[&event_id.as_uuid()]).await?;
    rows.iter().map(|row| Ok((row.read_count("milestone")?, row.read_count("last_seq")?))).collect()
}

/// Returns the number in line of the entry at `position`; `None` if the line is shorter.
pub(crate) async fn nth_waiting(
    postgres: &Postgres,
    event_id: EventId,
    position: u64,
) -> Result<Option<u64>, Error> {
    let before = SqlCount(position.saturating_sub(1));
    let row = postgres.query_opt("nth waiting", NTH_WAITING, &[&event_id.as_uuid(), &before]).await?;
    Ok(row.as_ref().map(|row| row.read_count("seq")).transpose()?)
}

/// Returns the first `entries_max` waiting entries of a range, with their positions.
pub(crate) async fn page(
    postgres: &Postgres,
    event_id: EventId,
    range: &SeqRange,
    entries_max: usize,
) -> Result<Vec<MilestoneCandidate>, Error> {
    let (after, upto, limit) = (SqlCount(range.after_seq), SqlCount(range.upto_seq), SqlCount(entries_max));
    let rows =
        postgres.query("page of a milestone", PAGE, &[&event_id.as_uuid(), &after, &upto, &limit]).await?;
    rows.iter().map(read_candidate).collect()
}

/// Moves the cursor of a milestone from `pushed_seq` to `upto_seq`; returns false if it was elsewhere.
pub(crate) async fn move_cursor(
    transaction: &Transaction,
    event_id: EventId,
    milestone: u64,
    pushed_seq: u64,
    upto_seq: u64,
) -> Result<bool, Error> {
    let moved = transaction
        .execute(
            MOVE_CURSOR,
            &[&event_id.as_uuid(), &SqlCount(milestone), &SqlCount(upto_seq), &SqlCount(pushed_seq)],
        )
        .await?;
    Ok(moved == 1)
}

fn read_candidate(row: &Row) -> Result<MilestoneCandidate, Error> {
    let passed = PassedMilestone {
        entry_id: row.read_id("entry_id")?,
        customer_id: row.read_id("customer_id")?,
        position: row.read_count("position")?,
    };
    let start_position = row.read_count("start_position")?;
    Ok(MilestoneCandidate { passed, seq: row.read_count("seq")?, start_position })
}
