//! Compares Redis with Postgres: waiting entries and free units. Redis may lag and repairs itself, so a difference is a
//! violation only if it lasts.

use std::collections::BTreeSet;

use anyhow::Context;
use onsale_storage::redis::{Command, Redis};
use tokio_postgres::Transaction;

const WAITING: &str = "SELECT l.event_id::text, coalesce(array_agg(e.seq ORDER BY e.seq) FILTER
        (WHERE e.state = 'WAITING'), '{}') AS seqs
    FROM queue.line l LEFT JOIN queue.entry e USING (event_id) GROUP BY l.event_id";
const FREE: &str = "SELECT e.event_id::text, s.sector_id::text, s.capacity,
        coalesce(array_agg(u.unit) FILTER (WHERE u.unit IS NOT NULL), '{}') AS taken
    FROM inventory.sector s JOIN inventory.event e USING (event_id) LEFT JOIN inventory.hold_unit u USING (sector_id)
    WHERE e.state IN ('ON_SALE', 'SOLD_OUT') GROUP BY e.event_id, s.sector_id, s.capacity";

/// Returns each difference as invariant number, statement and description. A missing key is no difference: services build it
/// when they need it.
pub(super) async fn differences(
    transaction: &Transaction<'_>,
    redis: &Redis,
) -> anyhow::Result<Vec<(u8, &'static str, String)>> {
    let mut found = Vec::new();
    for row in transaction.query(WAITING, &[]).await.context("failed to read the lines from Postgres")? {
        let (event_id, seqs): (String, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(difference) = line(redis, &event_id, &seqs).await? {
            found.push((2, "the line in Redis has exactly the waiting entries", difference));
        }
    }
    for row in transaction.query(FREE, &[]).await.context("failed to read the free units from Postgres")? {
        let sector = Sector {
            event_id: row.try_get(0)?,
            sector_id: row.try_get(1)?,
            capacity: row.try_get(2)?,
            taken: row.try_get::<_, Vec<i32>>(3)?.into_iter().collect(),
        };
        if let Some(difference) = pool(redis, &sector).await? {
            found.push((1, "the pool in Redis offers exactly the free units", difference));
        }
    }
    Ok(found)
}

/// Compares the line in Redis with `seqs`, the waiting numbers in order. Returns `None` if they agree or no line is loaded.
async fn line(redis: &Redis, event_id: &str, seqs: &[i64]) -> anyhow::Result<Option<String>> {
    let keys = redis.keyspace("queue")?;
    let head = keys.key("line", event_id)?;
    let loaded: bool = redis.run(Command::new("HEXISTS").key(&head).arg("loaded").idempotent()).await?;
    if !loaded {
        return Ok(None);
    }
    let waiting = keys.key("waiting", event_id)?;
    let range = Command::new("ZRANGE").key(&waiting).arg(0).arg(-1).arg("WITHSCORES").idempotent();
    let members: Vec<(String, f64)> = redis.run(range).await?;
    // Scores are whole numbers. Compared as text, they need no float comparison.
    let cached: Vec<String> = members.into_iter().map(|(_, score)| score.to_string()).collect();
    let truth: Vec<String> = seqs.iter().map(i64::to_string).collect();
    let differs = cached != truth;
    Ok(differs.then(|| format!("event {event_id}: {} wait, Redis has {}", truth.len(), cached.len())))
}

struct Sector {
    event_id: String,
    sector_id: String,
    capacity: i32,
    taken: BTreeSet<i32>,
}

/// Compares the pool in Redis with the units that are not taken. Returns `None` if they agree or there is no pool.
async fn pool(redis: &Redis, sector: &Sector) -> anyhow::Result<Option<String>> {
    let tag = format!("{}:{}", sector.event_id, sector.sector_id);
    let key = redis.keyspace("inventory")?.key("free", tag)?;
    let Some(bitmap) = redis.run::<Option<Vec<u8>>>(Command::new("GET").key(&key).idempotent()).await? else {
        return Ok(None);
    };
    let is_offered = |unit: i32| {
        let bit = usize::try_from(unit.saturating_sub(1)).unwrap_or(usize::MAX);
        // Redis numbers bits from the most significant one of the first byte.
        bitmap.get(bit / 8).is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0)
    };
    let wrong = (1..=sector.capacity).filter(|unit| is_offered(*unit) == sector.taken.contains(unit)).count();
    Ok((wrong > 0).then(|| format!("sector {}: Redis is wrong about {wrong} units", sector.sector_id)))
}
