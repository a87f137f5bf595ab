//! Deletes old events that every listener of the contract has acknowledged, trims the streams to the rows that remain,
//! and reports the lag of each group. A listener that has never started retains all events.

use std::time::Duration;

use onsale_proto::Topic;

use super::{Error, RelayConfig, metrics, stream_key};
use crate::postgres::{Postgres, column};
use crate::redis::{GroupInfo, Redis, Stream, StreamId};

const TOPICS: &str = "SELECT topic, last_position FROM outbox_topic";
// An acknowledged event was handled, even if a failover loses the acknowledgement. So the position never decreases.
const RECORD_GROUP: &str = "INSERT INTO outbox_group (topic, consumer_group, acknowledged_position)
    VALUES ($1, $2, $3)
    ON CONFLICT (topic, consumer_group) DO UPDATE SET seen_at = now(),
        acknowledged_position = greatest(outbox_group.acknowledged_position, excluded.acknowledged_position)";
// Groups that retain events: the listeners of the contract always (position 0 until they first appear), other groups
// while they were seen recently.
const RETAINING_GROUPS: &str = "SELECT consumer_group, coalesce(acknowledged_position, 0) AS acknowledged_position
    FROM unnest($2::text[]) AS listener (consumer_group)
    FULL JOIN (SELECT consumer_group, acknowledged_position, seen_at FROM outbox_group WHERE topic = $1) AS seen
        USING (consumer_group)
    WHERE consumer_group = ANY ($2) OR seen_at > now() - make_interval(secs => $3)";
const DELETE: &str = "DELETE FROM outbox WHERE event_id IN (
        SELECT event_id FROM outbox
        WHERE topic = $1 AND position <= $2 AND created_at < now() - make_interval(secs => $3)
        ORDER BY position LIMIT $4)";
const OLDEST: &str = "SELECT min(position) AS oldest FROM outbox WHERE topic = $1 AND position IS NOT NULL";

/// Small enough for short locks, large enough to keep up with 20 deletes per round.
const DELETE_MAX: i64 = 5_000;
/// The rest waits for the next round, because publishing comes first.
const DELETES_PER_ROUND_MAX: u32 = 20;

/// Runs one round over all topics that ever had an event. `topics` names their listeners.
pub(super) async fn run(
    postgres: &Postgres,
    redis: &Redis,
    topics: &[Topic],
    config: &RelayConfig,
) -> Result<(), Error> {
    for row in postgres.query("topics", TOPICS, &[]).await? {
        let topic: String = column(&row, "topic")?;
        let last_position: i64 = column(&row, "last_position")?;
        let key = stream_key(redis, &topic)?;
        let stream = redis.stream(&key);
        let listeners = topics.iter().find(|known| known.name == topic).map_or(&[][..], |it| it.listeners);
        record_groups(postgres, &stream, &topic).await?;
        let floor = acknowledged_by_all(postgres, &topic, listeners, last_position, config).await?;
        remove_old(postgres, &topic, floor, config).await?;
        trim(postgres, &stream, &topic, last_position, config).await?;
    }
    Ok(())
}

async fn record_groups(postgres: &Postgres, stream: &Stream<'_>, topic: &str) -> Result<(), Error> {
    for group in stream.groups().await? {
        let seen = acknowledged(stream, &group).await?;
        postgres.execute("note group", RECORD_GROUP, &[&topic, &group.name, &seen]).await?;
    }
    Ok(())
}

/// Returns the last position up to which the group has acknowledged everything: before its oldest pending entry, or
/// else the last delivered one.
async fn acknowledged(stream: &Stream<'_>, group: &GroupInfo) -> Result<i64, Error> {
    let oldest_pending = match group.pending {
        0 => None,
        _ => stream.pending_summary(&group.name).await?.span.map(|(oldest, _)| oldest),
    };
    Ok(match oldest_pending {
        Some(oldest) => position(oldest).saturating_sub(1),
        None => position(group.last_delivered),
    })
}

/// Returns the last position that all retaining groups have acknowledged, and reports the lag of each.
async fn acknowledged_by_all(
    postgres: &Postgres,
    topic: &str,
    listeners: &[&str],
    last_position: i64,
    config: &RelayConfig,
) -> Result<i64, Error> {
    let forgotten_after = seconds(config.group_forgotten_after);
    let mut floor = last_position;
    for row in
        postgres.query("holding groups", RETAINING_GROUPS, &[&topic, &listeners, &forgotten_after]).await?
    {
        let group: &str = column(&row, "consumer_group")?;
        let acknowledged: i64 = column(&row, "acknowledged_position")?;
        metrics::lag(topic, group, last_position.saturating_sub(acknowledged));
        floor = floor.min(acknowledged);
    }
    Ok(floor)
}

async fn remove_old(postgres: &Postgres, topic: &str, floor: i64, config: &RelayConfig) -> Result<(), Error> {
    let retention = seconds(config.retention);
    for _ in 0..DELETES_PER_ROUND_MAX {
        let deleted =
            postgres.execute("remove old events", DELETE, &[&topic, &floor, &retention, &DELETE_MAX]).await?;
        if deleted < DELETE_MAX.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

async fn trim(
    postgres: &Postgres,
    stream: &Stream<'_>,
    topic: &str,
    last_position: i64,
    config: &RelayConfig,
) -> Result<(), Error> {
    let row = postgres.query_one("oldest event", OLDEST, &[&topic]).await?;
    let oldest = column::<Option<i64>>(&row, "oldest")?.unwrap_or(last_position.saturating_add(1));
    stream.trim_before(StreamId::new(oldest.unsigned_abs(), 0)).await?;
    let length = stream.length().await?;
    metrics::stream_length(topic, length);
    if length > config.stream_length_alert {
        tracing::warn!(topic, length, "stream exceeds alert length, a consumer group lags");
    }
    Ok(())
}

/// Returns the position that an entry id encodes.
pub(super) fn position(id: StreamId) -> i64 {
    i64::try_from(id.millis).unwrap_or(i64::MAX)
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
