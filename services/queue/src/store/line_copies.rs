//! Copies of lines from Postgres: a whole line, or everything that changed in it since a revision. Each is read by one
//! statement, and so in one snapshot.

use onsale_storage::postgres::{
    Postgres, Row,
    row::{RowExt as _, SqlCount},
};
use onsale_types::EventId;

use crate::{
    domain::{
        line_change::{LineChange, LineCopy},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
};

/// Largest number of changed entries that [`since`] reads; a copy that missed more is loaded again.
const CHANGES_MAX: usize = 100_000;

// The waiting numbers come as ranges without gaps: few rows for a line that few customers have left.
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

/// Reads the whole line.
pub(crate) async fn load(postgres: &Postgres, event_id: EventId) -> Result<LineCopy, Error> {
    let rows = postgres.query("load line", LOAD, &[&event_id.as_uuid()]).await?;
    let counters = read_counters(event_id, &rows)?;
    let mut islands = Vec::with_capacity(rows.len());
    // A WINDOWED queue stores no entries: every number that is given out and not admitted waits.
    let mode = rows.first().map(|row| row.read_named("mode")).transpose()?;
    if mode == Some(QueueMode::Windowed) && counters.waiting_count > 0 {
        islands.push((counters.last_admitted_seq.saturating_add(1), counters.last_seq));
    }
    for row in &rows {
        if let Some(first) = row.read_optional_count("first")? {
            islands.push((first, row.read_count("last")?));
        }
    }
    let copy = LineCopy::read(&counters, islands);
    let (counted, waiting) = (counters.waiting_count, copy.index().len());
    if waiting != counted {
        // Only a writer that ignored the lock can cause this. The entries are right, the counter is wrong.
        tracing::error!(%event_id, counted, waiting, "waiting count of a line differs from its entries, using the entries");
    }
    Ok(copy)
}

/// Reads everything that changed after `revision`, merged into one change. `None`: too many entries changed; load the line
/// again.
pub(crate) async fn since(
    postgres: &Postgres,
    event_id: EventId,
    revision: u64,
) -> Result<Option<LineChange>, Error> {
    let limit = SqlCount(CHANGES_MAX.saturating_add(1));
    let rows =
        postgres.query("line since", SINCE, &[&event_id.as_uuid(), &SqlCount(revision), &limit]).await?;
    if rows.len() > CHANGES_MAX {
        return Ok(None);
    }
    let mut change = read_counters(event_id, &rows)?;
    for row in &rows {
        change.gone.extend(row.read_optional_count::<u64>("seq")?);
    }
    // The list does not tell ended turns from entries that left the line. Both lists may have too many numbers: the index
    // ignores numbers that do not wait, and a watcher whose turn may have ended reads its entry again.
    change.ended.clone_from(&change.gone);
    change.is_controlled = true;
    Ok(Some(change))
}

fn read_counters(event_id: EventId, rows: &[Row]) -> Result<LineChange, Error> {
    let row = rows.first().ok_or(Refusal::EventNotFound { event_id })?;
    Ok(LineChange {
        revision: row.read_count("revision")?,
        last_seq: row.read_count("last_seq")?,
        last_admitted_seq: row.read_count("last_admitted_seq")?,
        waiting_count: row.read_count("waiting_count")?,
        admitted_count: row.read_count("last_fencing_number")?,
        ..LineChange::default()
    })
}
