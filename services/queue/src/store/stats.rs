//! What happened in a queue lately, counted in Postgres.

use std::time::Duration;

use onsale_storage::postgres::{Postgres, Row, column};
use onsale_types::EventId;

use super::count;
use crate::error::Error;

/// The span of [`Lately::joined`].
pub(crate) const JOINED_SPAN: Duration = Duration::from_secs(10);

/// The newest turns that waits are taken from.
const GRANTED_MAX: i64 = 20_000;

// Seqs are gap-free and rise with the time of joining, so who joined lately is found by halving: a score of lookups, however
// many joined. An entry that is not there any more is an old one.
const LATELY: &str = "WITH RECURSIVE search (low, high) AS (
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

/// What happened in a queue lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentActivity {
    /// Who joined within [`JOINED_SPAN`].
    pub(crate) joined: u64,
    /// Turns granted within the last minute.
    pub(crate) admitted: u64,
    /// Half of those admitted within the last 10 min waited no longer; none: nobody was admitted.
    pub wait_p50: Option<Duration>,
    /// 95 % of them waited no longer.
    pub wait_p95: Option<Duration>,
}

/// What happened in the event's queue lately.
pub(crate) async fn lately(postgres: &Postgres, event_id: EventId) -> Result<RecentActivity, Error> {
    let row = postgres.query_one("queue stats", LATELY, &[&event_id.as_uuid(), &GRANTED_MAX]).await?;
    Ok(RecentActivity {
        joined: count(&row, "joined")?,
        admitted: count(&row, "admitted")?,
        wait_p50: wait(&row, "wait_p50")?,
        wait_p95: wait(&row, "wait_p95")?,
    })
}

fn wait(row: &Row, name: &'static str) -> Result<Option<Duration>, Error> {
    Ok(column::<Option<i64>>(row, name)?.map(|micros| Duration::from_micros(micros.unsigned_abs())))
}
