//! Carries events from the outbox to the streams. Any number may run, and any may die anywhere; one is enough, so a
//! lease usually picks one.

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

// Skips from topic to topic along the index, however many events wait.
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
// As many as fit into one call: by count and by bytes, at least one.
const NEXT: &str = "SELECT event_id, position, key, envelope
    FROM (SELECT *, sum(octet_length(envelope)) OVER (ORDER BY position) - octet_length(envelope) AS bytes_before
          FROM (SELECT event_id, position, key, envelope FROM outbox
                WHERE topic = $1 AND position > $2 ORDER BY position LIMIT $3) AS next) AS measured
    WHERE bytes_before < $4 ORDER BY position";

/// How a relay works.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelayConfig {
    /// How often it looks for new events when nobody hints at one.
    #[serde(with = "humantime_serde")]
    pub poll_every: Duration,
    /// How often it asks Redis whether what was published is still there.
    #[serde(with = "humantime_serde")]
    pub check_every: Duration,
    /// The most events numbered or published in one step.
    pub batch_max: u16,
    /// How old an event is at least when it goes. It stays longer, until every listener has acknowledged it.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// How often old events are removed and lag is measured.
    #[serde(with = "humantime_serde")]
    pub retain_every: Duration,
    /// After how long without a sign in Redis a group that the contract no longer names stops holding events back. The
    /// listeners that it names always do.
    #[serde(with = "humantime_serde")]
    pub group_forgotten_after: Duration,
    /// A stream longer than this is worth a warning: some group does not keep up.
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
            return Err(Error::Config { message: "batch_max and poll_every of a relay must not be 0" });
        }
        Ok(())
    }
}

/// The most envelope bytes in one call to Redis, which serves nobody else meanwhile.
const CALL_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// Waits after failed rounds, in addition to `poll_every`.
const FAILURES: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// The relay of one service.
pub struct Relay {
    postgres: Postgres,
    redis: Redis,
    config: RelayConfig,
    /// Those of the service, and who listens to each.
    topics: Vec<Topic>,
    hint: Arc<Notify>,
    state: Mutex<RelayState>,
}

/// State that the rounds of a relay leave to the next one.
#[derive(Default)]
struct RelayState {
    /// Topics with waiting events that are not this service's. Each is logged once.
    unknown_topics: HashSet<String>,
    /// Last known position of each topic's stream. Only a starting point: the script compares.
    published: HashMap<String, i64>,
    /// Time of the last check of all streams. `None` after a failed round, so that the next one checks again.
    checked: Option<Instant>,
    /// Time of the last retention run.
    retained: Option<Instant>,
}

impl Relay {
    /// The relay of `outbox`'s service, whose schema `postgres` is. Of `topics` it carries those of that service.
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

    /// Starts the rounds as a worker of `tasks`, with a hint from the outbox after each commit.
    pub fn start(self, tasks: &Tasks) {
        Arc::new(self).start_worker(tasks, |worker| worker);
    }

    /// Like [`Relay::start`], but runs rounds only while `condition` is met. This saves work; the stream stays correct when two
    /// relays run.
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

    /// Forgets the stream positions, because another relay moves on, and sets the gauges to 0, because that relay reports
    /// them now.
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

    /// Numbers and publishes all that waits, and looks after the streams when it is time. A topic that fails does not
    /// hold back the others; the first failure is the answer.
    pub async fn round(&self) -> Result<(), Error> {
        // Only a step that went well spares the next one the look at the streams: what was numbered and not published
        // waits in no list.
        let before = self.state.lock().checked.take();
        let check = is_due(before, self.config.check_every);
        let mut topics = self.assign_waiting().await?;
        if check {
            // Also topics without news: their stream may have been lost.
            topics = self.known_topics().await?;
        }
        let mut failure = None;
        // All at once: they are few, and lie on different nodes, of which one may be down.
        let published = join_all(topics.iter().map(|topic| self.publish(topic, check))).await;
        for (topic, published) in topics.into_iter().zip(published) {
            match published {
                Ok(position) => {
                    self.state.lock().published.insert(topic, position);
                }
                Err(error) => {
                    tracing::debug!(topic, error = %Chain(&error), "failed to publish");
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

    /// Gives every waiting event its position; answers the topics that had one. Events of a topic we do not know wait for
    /// a relay that knows who listens: that of a later release, while both run.
    async fn assign_waiting(&self) -> Result<Vec<String>, Error> {
        let rows = self.postgres.query("waiting topics", WAITING_TOPICS, &[]).await?;
        let mut topics = Vec::with_capacity(rows.len());
        for row in rows {
            let topic: String = column(&row, "topic")?;
            if self.topics.iter().all(|known| known.name != topic) {
                if self.state.lock().unknown_topics.insert(topic.clone()) {
                    tracing::warn!(topic, "events of a topic that is not this service's wait in its outbox");
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
                // A statement of its own: the next one must see what the last holder of the lock has numbered.
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

    /// Appends to the stream what it does not have yet, and answers how far it is. With `check`, asks the stream first.
    async fn publish(&self, topic: &str, check: bool) -> Result<i64, Error> {
        let known = self.state.lock().published.get(topic).copied();
        let mut after = match known {
            Some(after) if !check => after,
            // Without events the script only answers where the stream is.
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
        // With nothing left to publish, a stream that is ahead of us would swallow what comes next.
        if check {
            self.check_not_ahead(topic, after).await?;
        }
        Ok(after)
    }

    async fn append(&self, topic: &str, after: i64, events: &[NumberedEvent]) -> Result<i64, Error> {
        let key = stream_key(&self.redis, topic)?;
        // Idempotent: what is there is not appended again.
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
        // Asked after the stream was seen, so what another relay published meanwhile is counted.
        let row = self.postgres.query_one("last position", LAST_POSITION, &[&topic]).await?;
        let outbox: i64 = column(&row, "last_position")?;
        if stream > outbox {
            return Err(Error::StreamAhead { topic: topic.to_owned(), stream, outbox });
        }
        Ok(())
    }
}

/// An event with its place.
struct NumberedEvent {
    id: Uuid,
    position: i64,
    key: String,
    envelope: Vec<u8>,
}

fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}
