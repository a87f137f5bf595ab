//! Recent activity in a queue, counted in Postgres.

use std::time::Duration;

use onsale_storage::postgres::{Postgres, Row, row::RowExt as _};
use onsale_types::EventId;

use crate::{domain::stats::RecentActivity, error::Error};

/// Largest number of turns from which the percentiles are computed; the newest count.
const GRANTED_MAX: i64 = 20_000;

// Numbers have no gaps and rise with the join time, so a binary search finds the first entry of the last 10 s: about twenty
// lookups, however many customers joined. A number without an entry counts as old.
const READ: &str = "WITH RECURSIVE search (low, high) AS (
        SELECT 0::bigint, last_seq FROM line WHERE event_id = $1
        UNION ALL
        SELECT CASE WHEN is_old THEN middle ELSE low END, CASE WHEN is_old THEN high ELSE middle - 1 END
        FROM (SELECT low, high, middle, coalesce((SELECT join_time <= now() - interval '10 seconds'
                FROM entry WHERE event_id = $1 AND seq = middle), true) AS is_old
            FROM (SELECT low, high, (low + high + 1) / 2 AS middle FROM search WHERE low < high) halved) looked
    ), granted AS (
        SELECT (extract(epoch FROM grant_time - join_time) * 1000000)::bigint AS wait_micros
        FROM entry WHERE event_id = $1 AND grant_time > now() - interval '10 minutes'
        ORDER BY grant_time DESC LIMIT $2
    )
    SELECT coalesce((SELECT max(high) - max(low) FROM search), 0) AS joined,
        (SELECT count(*) FROM entry WHERE event_id = $1 AND grant_time > now() - interval '1 minute') AS admitted,
        percentile_disc(0.5) WITHIN GROUP (ORDER BY wait_micros) AS wait_p50,
        percentile_disc(0.95) WITHIN GROUP (ORDER BY wait_micros) AS wait_p95
    FROM granted";

/// Counts the recent activity in the event's queue.
pub(crate) async fn recent(postgres: &Postgres, event_id: EventId) -> Result<RecentActivity, Error> {
    let row = postgres.query_one("queue stats", READ, &[&event_id.as_uuid(), &GRANTED_MAX]).await?;
    Ok(RecentActivity {
        joined: row.read_count("joined")?,
        admitted: row.read_count("admitted")?,
        wait_p50: read_wait(&row, "wait_p50")?,
        wait_p95: read_wait(&row, "wait_p95")?,
    })
}

fn read_wait(row: &Row, name: &'static str) -> Result<Option<Duration>, Error> {
    Ok(row.read_optional_count(name)?.map(Duration::from_micros))
}
