//! Whole lines and what changed in them, read in one moment each: one statement sees one moment.

use onsale_storage::postgres::{Postgres, Row, column};
use onsale_types::EventId;

use super::{count, named, sql_count};
use crate::{
    domain::{
        line_change::{LineChange, LineCopy},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
};

/// Changed entries read at once; a copy that missed more is read anew.
const CHANGES_MAX: usize = 100_000;

// Who waits as ranges of seqs that follow on each other: few rows for a line that few have left.
const LOAD: &str = "WITH waiting AS (
        SELECT seq, seq - row_number() OVER (ORDER BY seq) AS island FROM entry
        WHERE event_id = $1 AND state = 'WAITING'
    ), islands AS (SELECT min(seq) AS first, max(seq) AS last FROM waiting GROUP BY island)
    SELECT revision, last_seq, last_admitted_seq, waiting_count, last_fencing_number, mode, first, last
    FROM line JOIN queue USING (event_id) LEFT JOIN islands ON true WHERE event_id = $1 ORDER BY first";
const SINCE: &str =
    "SELECT line.revision, last_seq, last_admitted_seq, waiting_count, last_fencing_number, entry.seq
    FROM line LEFT JOIN entry
        ON entry.event_id = line.event_id AND entry.revision > $2 AND entry.state <> 'WAITING'
    WHERE line.event_id = $1 LIMIT $3";

/// The line as it is now.
pub(crate) async fn load(postgres: &Postgres, event_id: EventId) -> Result<LineCopy, Error> {
    let rows = postgres.query("load line", LOAD, &[&event_id.as_uuid()]).await?;
    let step = step(event_id, &rows)?;
    let mut islands = Vec::with_capacity(rows.len());
    // In a WINDOWED queue everybody waits whose number has not come; no entries say so.
    let mode = rows.first().map(|row| named(row, "mode", QueueMode::from_name)).transpose()?;
    if mode == Some(QueueMode::Windowed) && step.waiting_count > 0 {
        islands.push((step.last_admitted_seq.saturating_add(1), step.last_seq));
    }
    for row in &rows {
        if column::<Option<i64>>(row, "first")?.is_some() {
            islands.push((count(row, "first")?, count(row, "last")?));
        }
    }
    let copy = LineCopy::read(&step, islands);
    if copy.index().len() != step.waiting_count {
        // Only a writer that broke the rules can have done this; the entries are what counts.
        tracing::error!(%event_id, counted = step.waiting_count, waiting = copy.index().len(), "a line's count is wrong");
    }
    Ok(copy)
}

/// All that changed after `revision`, as one step. None: too much, read it anew.
pub(crate) async fn since(
    postgres: &Postgres,
    event_id: EventId,
    revision: u64,
) -> Result<Option<LineChange>, Error> {
    let limit = sql_count(u64::try_from(CHANGES_MAX).unwrap_or(u64::MAX).saturating_add(1));
    let rows =
        postgres.query("line since", SINCE, &[&event_id.as_uuid(), &sql_count(revision), &limit]).await?;
    if rows.len() > CHANGES_MAX {
        return Ok(None);
    }
    let mut step = step(event_id, &rows)?;
    for row in &rows {
        if column::<Option<i64>>(row, "seq")?.is_some() {
            step.gone.push(count(row, "seq")?);
        }
    }
    // Which of them had a turn makes no difference to who waits, and whoever watches one of them looks at it anyway.
    step.ended.clone_from(&step.gone);
    step.is_controlled = true;
    Ok(Some(step))
}

fn step(event_id: EventId, rows: &[Row]) -> Result<LineChange, Error> {
    let row = rows.first().ok_or(Refusal::EventNotFound { event_id })?;
    Ok(LineChange {
        revision: count(row, "revision")?,
        last_seq: count(row, "last_seq")?,
        last_admitted_seq: count(row, "last_admitted_seq")?,
        waiting_count: count(row, "waiting_count")?,
        admitted_count: count(row, "last_fencing_number")?,
        ..LineChange::default()
    })
}
