//! Publishes events from the outbox to the streams. Any number of relays may run, and each may crash anywhere. One is
//! enough, so a lease usually selects one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use onsale_kit::backoff::BackoffConfig;
use onsale_kit::error::Chain;
use onsale_kit::tasks::Tasks;
use onsale_kit::worker::{Condition, Worker};
use onsale_proto::Topic;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Error, Outbox, metrics, retention, stream_key};
use crate::postgres::{Postgres, column};
use crate::redis::{Redis, Script};

static PUBLISH: LazyLock<Script> = LazyLock::new(|| Script::new("publish", include_str!("publish.lua")));

// Skips from topic to topic along the index, independent of the number of waiting events.
const WAITING_TOPICS: &str = "WITH RECURSIVE waiting AS (
        (SELECT topic FROM outbox WHERE position IS NULL ORDER BY topic LIMIT 1)
        UNION ALL
        SELECT (SELECT topic FROM outbox WHERE position IS NULL AND topic > waiting.topic ORDER BY topic LIMIT 1)
        FROM waiting WHERE waiting.topic IS NOT NULL)
    SELECT topic FROM waiting WHERE topic IS NOT NULL";
const ENSURE_TOPIC: &str = "INSERT INTO outbox_topic (topic) VALUES ($1) ON CONFLICT DO NOTHING";
const LOCK_TOPIC: &str = "SELECT last_position FROM outbox_topic WHERE topic = $1 FOR UPDATE";
const ASSIGN_POSITIONS: &str = "WITH chosen AS (
        SELECT event_id, row_number() OVER (ORDER BY seq) AS place
        FROM (SELECT event_id, seq FROM outbox
              WHERE topic = $1 AND position IS NULL ORDER BY seq LIMIT $3) AS oldest),
    numbered AS (
        UPDATE outbox SET position = $2 + chosen.place FROM chosen
        WHERE outbox.event_id = chosen.event_id RETURNING outbox.position)
    SELECT count(*) AS count FROM numbered";
const ADVANCE_TOPIC: &str = "UPDATE outbox_topic SET last_position = last_position + $2 WHERE topic = $1";
const TOPICS: &str = "SELECT topic FROM outbox_topic";
const LAST_POSITION: &str = "SELECT last_position FROM outbox_topic WHERE topic = $1";
// Limited by count and by bytes, but returns at least one event.
const NEXT: &str = "SELECT event_id, position, key, envelope
    FROM (SELECT *, sum(octet_length(envelope)) OVER (ORDER BY position) - octet_length(envelope) AS bytes_before
          FROM (SELECT event_id, position, key, envelope FROM outbox
                WHERE topic = $1 AND position > $2 ORDER BY position LIMIT $3) AS next) AS measured
    WHERE bytes_before < $4 ORDER BY position";

/// Settings of one relay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelayConfig {
    /// Interval between checks for new events without a hint (default 100 ms).
    #[serde(with = "humantime_serde")]
    pub poll_every: Duration,
    /// Interval between checks that Redis still has the published events (default 1 s).
    #[serde(with = "humantime_serde")]
    pub check_every: Duration,
    /// Maximum number of events per numbering transaction and per call to Redis (default 500).
    pub batch_max: u16,
    /// Minimum age of a deleted event (default 15 min). Every listener must have acknowledged it too.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// Interval between deletions of old events and measurements of the lag (default 5 s).
    #[serde(with = "humantime_serde")]
    pub retain_every: Duration,
    /// Time since its last appearance in Redis after which a group outside of the contract no longer retains events
    /// (default 7 days). Listeners in the contract always retain events.
    #[serde(with = "humantime_serde")]
    pub group_forgotten_after: Duration,
    /// Stream length above which the relay warns (default 1,000,000): a group lags.
    pub stream_length_alert: u64,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            poll_every: Duration::from_millis(100),
            check_every: Duration::from_secs(1),
            batch_max: 500,
            retention: Duration::from_secs(15 * 60),
            retain_every: Duration::from_secs(5),
            group_forgotten_after: Duration::from_secs(7 * 24 * 60 * 60),
            stream_length_alert: 1_000_000,
        }
    }
}

impl RelayConfig {
    fn validate(&self) -> Result<(), Error> {
        if self.batch_max == 0 || self.poll_every.is_zero() {
            return Err(Error::Config { message: "batch_max and poll_every must not be 0" });
        }
        Ok(())
    }
}

/// Maximum envelope bytes in one call to Redis, which serves no other client meanwhile (4 MiB).
const CALL_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// Waits after failed rounds, in addition to `poll_every`.
const FAILURES: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Relay of one service's outbox.
pub struct Relay {
    postgres: Postgres,
    redis: Redis,
    config: RelayConfig,
    /// Topics of the service, with their listeners.
    topics: Vec<Topic>,
    hint: Arc<Notify>,
    state: Mutex<RelayState>,
}

/// State that a round leaves to the next one.
#[derive(Default)]
struct RelayState {
    /// Topics with waiting events that are not this service's. Each is logged once.
    unknown_topics: HashSet<String>,
    /// Last known position of each topic's stream. Only a hint: the script compares.
    published: HashMap<String, i64>,
    /// Time of the last check of all streams. `None` after a failed round, so that the next one checks again.
    checked: Option<Instant>,
    /// Time of the last retention run.
    retained: Option<Instant>,
}

impl Relay {
    /// Creates the relay for `outbox`'s service, whose schema `postgres` uses. It publishes those of `topics` that
    /// belong to the service.
    pub fn new(
        postgres: Postgres,
        redis: Redis,
        outbox: &Outbox,
        topics: &[Topic],
        config: RelayConfig,
    ) -> Result<Self, Error> {
        metrics::describe();
        config.validate()?;
        Ok(Self {
            postgres,
            redis,
            config,
            topics: topics.iter().copied().filter(|topic| topic.source == outbox.source()).collect(),
            hint: outbox.hint(),
            state: Mutex::default(),
        })
    }

    /// Starts the rounds as a worker of `tasks`. [`Outbox::wake_relay`] starts a round early.
    pub fn start(self, tasks: &Tasks) {
        Arc::new(self).start_worker(tasks, |worker| worker);
    }

    /// Like [`Relay::start`], but runs rounds only while `condition` is met. This saves work; two concurrent relays are
    /// safe.
    pub fn start_while(self, condition: Condition, tasks: &Tasks) {
        let relay = Arc::new(self);
        let stopped = Arc::clone(&relay);
        let condition = condition.while_unmet(move || stopped.step_down());
        relay.start_worker(tasks, |worker| worker.only_while(condition));
    }

    fn start_worker(self: Arc<Self>, tasks: &Tasks, restrict: impl FnOnce(Worker) -> Worker) {
        let worker = Worker::every("outbox relay", self.config.poll_every)
            .backoff(FAILURES)
            .notified_by(Arc::clone(&self.hint));
        restrict(worker).start(tasks, move || {
            let relay = Arc::clone(&self);
            async move { relay.round().await.inspect_err(|_| metrics::relay_failed()) }
        });
    }

    /// Clears the stream positions, because another relay advances them, and sets its gauges to 0, because that relay
    /// reports them.
    fn step_down(&self) {
        let published = std::mem::take(&mut self.state.lock().published);
        if published.is_empty() {
            return;
        }
        for topic in &self.topics {
            topic.listeners.iter().for_each(|listener| metrics::lag(topic.name, listener, 0));
            metrics::stream_length(topic.name, 0);
        }
    }

    /// Numbers and publishes all waiting events, and checks the streams and deletes old events if that is due. A
    /// failing topic does not delay the others; the first failure is returned.
    pub async fn round(&self) -> Result<(), Error> {
        // Unset until this round succeeds: after a failure the next round must check all streams, because numbered but
        // unpublished events are found only there.
        let before = self.state.lock().checked.take();
        let check = is_due(before, self.config.check_every);
        let mut topics = self.assign_waiting().await?;
        if check {
            // Includes topics without new events: their streams may have lost entries.
            topics = self.known_topics().await?;
        }
        let mut failure = None;
        // In parallel: topics are few and on different nodes, one of which may be down.
        let published = join_all(topics.iter().map(|topic| self.publish(topic, check))).await;
        for (topic, published) in topics.into_iter().zip(published) {
            match published {
                Ok(position) => {
                    self.state.lock().published.insert(topic, position);
                }
                Err(error) => {
                    tracing::debug!(topic, error = %Chain(&error), "failed to publish the events of a topic");
                    failure.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let retained = {
            let mut state = self.state.lock();
            state.checked = if check { Some(Instant::now()) } else { before };
            state.retained
        };
        if is_due(retained, self.config.retain_every) {
            retention::run(&self.postgres, &self.redis, &self.topics, &self.config).await?;
            self.state.lock().retained = Some(Instant::now());
        }
        Ok(())
    }

    /// Assigns positions to all waiting events and returns their topics. Events of unknown topics wait for a relay that
    /// knows their listeners: that of a later release, during a rollout.
    async fn assign_waiting(&self) -> Result<Vec<String>, Error> {
        let rows = self.postgres.query("waiting topics", WAITING_TOPICS, &[]).await?;
        let mut topics = Vec::with_capacity(rows.len());
        for row in rows {
            let topic: String = column(&row, "topic")?;
            if self.topics.iter().all(|known| known.name != topic) {
                if self.state.lock().unknown_topics.insert(topic.clone()) {
                    tracing::warn!(topic, "events of an unknown topic wait in the outbox");
                }
                continue;
            }
            while self.assign_positions(&topic).await? == i64::from(self.config.batch_max) {}
            topics.push(topic);
        }
        Ok(topics)
    }

    async fn assign_positions(&self, topic: &str) -> Result<i64, Error> {
        let batch_max = i64::from(self.config.batch_max);
        self.postgres
            .transaction("number events", |transaction| async move {
                transaction.execute(ENSURE_TOPIC, &[&topic]).await?;
                // A separate statement: the next one must see the positions assigned by the last holder of the lock.
                let last: i64 =
                    column(&transaction.query_one(LOCK_TOPIC, &[&topic]).await?, "last_position")?;
                let row = transaction.query_one(ASSIGN_POSITIONS, &[&topic, &last, &batch_max]).await?;
                let count: i64 = column(&row, "count")?;
                if count > 0 {
                    transaction.execute(ADVANCE_TOPIC, &[&topic, &count]).await?;
                }
                Ok(count)
            })
            .await
    }

    async fn known_topics(&self) -> Result<Vec<String>, Error> {
        let rows = self.postgres.query("topics", TOPICS, &[]).await?;
        let topics: Result<Vec<String>, _> = rows.iter().map(|row| column(row, "topic")).collect();
        Ok(topics?)
    }

    /// Appends missing events to the stream and returns its last position. With `check`, reads the stream's position
    /// first.
    async fn publish(&self, topic: &str, check: bool) -> Result<i64, Error> {
        let known = self.state.lock().published.get(topic).copied();
        let mut after = match known {
            Some(after) if !check => after,
            // Without events the script only returns the stream's last position.
            Some(_) | None => self.append(topic, 0, &[]).await?,
        };
        loop {
            let events = self.load_after(topic, after).await?;
            let Some(end) = events.last().map(|event| event.position) else { break };
            let last = self.append(topic, after, &events).await?;
            if last > end {
                self.check_not_ahead(topic, last).await?;
            }
            after = last;
        }
        // A stream that is ahead of the outbox would swallow the next events.
        if check {
            self.check_not_ahead(topic, after).await?;
        }
        Ok(after)
    }

    async fn append(&self, topic: &str, after: i64, events: &[NumberedEvent]) -> Result<i64, Error> {
        let key = stream_key(&self.redis, topic)?;
        // Idempotent: the script skips positions that the stream has.
        let mut call = PUBLISH.call().key(&key).arg(after).idempotent();
        for event in events {
            let id = event.id.to_string();
            call = call.arg(event.position).arg(id).arg(&event.key).arg(&event.envelope);
        }
        let last = self.redis.run(call).await?;
        metrics::published(topic, last);
        Ok(last)
    }

    async fn load_after(&self, topic: &str, after: i64) -> Result<Vec<NumberedEvent>, Error> {
        let batch_max = i64::from(self.config.batch_max);
        let rows =
            self.postgres.query("next events", NEXT, &[&topic, &after, &batch_max, &CALL_BYTES_MAX]).await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            events.push(NumberedEvent {
                id: column(&row, "event_id")?,
                position: column(&row, "position")?,
                key: column(&row, "key")?,
                envelope: column(&row, "envelope")?,
            });
        }
        Ok(events)
    }

    async fn check_not_ahead(&self, topic: &str, stream: i64) -> Result<(), Error> {
        // Read after the stream, so that positions published by another relay meanwhile are included.
        let row = self.postgres.query_one("last position", LAST_POSITION, &[&topic]).await?;
        let outbox: i64 = column(&row, "last_position")?;
        if stream > outbox {
            return Err(Error::StreamAhead { topic: topic.to_owned(), stream, outbox });
        }
        Ok(())
    }
}

struct NumberedEvent {
    id: Uuid,
    position: i64,
    key: String,
    envelope: Vec<u8>,
}

fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}
