//! Consumer of one topic for one group, in one process.
//!
//! Within a process, events with the same key are handled one after the other, in the order of their arrival. A failing
//! event delays only its own key until it succeeds or goes to the dead letters (while `held_max` leaves room for
//! others). There is no order between processes of a group, because Redis hands each event to any of them, nor between
//! an event that was taken over and later ones. A handler that depends on order compares the event with its stored
//! state.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use onsale_kit::backoff::{Backoff, BackoffConfig};
use onsale_kit::error::Chain;
use onsale_proto::EventPayload;
use onsale_types::Clock;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::delivery::Delivery;
use super::handling::DeliveryProcessor;
use super::per_key_queue::PerKeyQueue;
use super::{Error, Handler, metrics, stream_key};
use crate::postgres::{Parameters, Postgres, column};
use crate::redis::{Command, Entry, Key, Redis, Script, StreamId};

const REQUESTED_RETRIES: &str = "SELECT event_id FROM dead_letter
    WHERE consumer = $1 AND topic = $2 AND retry_requested_at IS NOT NULL
    ORDER BY retry_requested_at LIMIT $3";
const DELETE_OLD: &str = "DELETE FROM inbox WHERE ctid IN (
        SELECT ctid FROM inbox
        WHERE consumer = $1 AND handled_at < now() - make_interval(secs => $2) LIMIT $3 FOR UPDATE SKIP LOCKED)";

/// Maximum number of inbox rows that one cleaning deletes: at one a minute enough for 1,000 events a second.
const DELETE_MAX: i64 = 60_000;
const RETRIES_PER_ROUND_MAX: i64 = 16;
/// Inbox rows outlive `inbox_retention` by this margin, because clocks differ.
const INBOX_MARGIN: Duration = Duration::from_secs(60 * 60);

static DELETE_CONSUMERS: LazyLock<Script> =
    LazyLock::new(|| Script::new("forget_consumers", include_str!("delete_consumers.lua")));

/// Settings of one consumer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerConfig {
    /// Consumer group: the service's name. Its processes share the events.
    pub group: String,
    /// Maximum number of events handled in parallel.
    pub concurrency: usize,
    /// Maximum number of events held, including those that wait for another event with the same key.
    pub held_max: usize,
    /// Maximum wait of one read for new events (default 1 s).
    #[serde(with = "humantime_serde")]
    pub block: Duration,
    /// Idle time after which a consumer takes over another consumer's pending event (default 30 s).
    #[serde(with = "humantime_serde")]
    pub claim_idle: Duration,
    /// Maximum duration of one attempt (default 20 s).
    #[serde(with = "humantime_serde")]
    pub handler_timeout: Duration,
    /// Number of attempts before an event goes to the dead letters (default 8). Deliveries to consumers that crashed
    /// count too.
    pub attempts_max: u32,
    /// Waits between attempts. Its `attempts_max` has no effect.
    pub backoff: BackoffConfig,
    /// Interval between checks for dead letters to retry (default 1 s).
    #[serde(with = "humantime_serde")]
    pub letters_every: Duration,
    /// Maximum age of an event that is handled (default 30 days). Inbox rows are kept one hour longer; outbox rows must
    /// be deleted long before.
    #[serde(with = "humantime_serde")]
    pub inbox_retention: Duration,
    /// Interval between deletions of old inbox rows and dead consumers (default 1 min).
    #[serde(with = "humantime_serde")]
    pub clean_every: Duration,
    /// Idle time after which a consumer of the group counts as dead (default 1 h). It must exceed any pause of a live
    /// one.
    #[serde(with = "humantime_serde")]
    pub consumer_dead_after: Duration,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            group: String::new(),
            concurrency: 8,
            held_max: 256,
            block: Duration::from_secs(1),
            claim_idle: Duration::from_secs(30),
            handler_timeout: Duration::from_secs(20),
            attempts_max: 8,
            backoff: BackoffConfig {
                initial: Duration::from_millis(100),
                max: Duration::from_secs(10),
                multiplier: 3,
                attempts_max: u32::MAX,
            },
            letters_every: Duration::from_secs(1),
            inbox_retention: Duration::from_secs(30 * 24 * 60 * 60),
            clean_every: Duration::from_secs(60),
            consumer_dead_after: Duration::from_secs(60 * 60),
        }
    }
}

impl ConsumerConfig {
    fn validate(&self) -> Result<(), Error> {
        let refuse = |message| Err(Error::Config { message });
        if self.group.is_empty() {
            return refuse("group must not be empty");
        }
        if self.concurrency == 0 || self.held_max == 0 || self.attempts_max == 0 {
            return refuse("concurrency, held_max and attempts_max must not be 0");
        }
        let spans = [self.block, self.claim_idle, self.handler_timeout, self.letters_every, self.clean_every];
        if spans.iter().any(Duration::is_zero) {
            return refuse("timeouts and intervals must not be 0");
        }
        Ok(())
    }
}

/// Consumer of one topic for one group.
pub struct Consumer<H> {
    processor: Arc<DeliveryProcessor<H>>,
    redis: Redis,
    key: Key,
    /// Name of this process in the group, new at every start. The events of a crashed process must be taken over.
    name: String,
}

enum Finished {
    Event { id: StreamId, key: String },
    Maintenance,
}

/// Background work of a consumer, one task at a time.
#[derive(Clone, Copy, Debug)]
enum MaintenanceTask {
    RetryDeadLetters,
    Clean,
}

// Not a `kit::worker`: `run` is an event loop over reads, finished tasks, heartbeats and shutdown.
impl<H: Handler> Consumer<H> {
    /// Creates a consumer of `P`'s topic whose handler writes to `postgres`. The contract must name the group as a
    /// listener.
    pub fn new<P: EventPayload>(
        postgres: Postgres,
        redis: Redis,
        clock: Arc<dyn Clock>,
        config: ConsumerConfig,
        handler: H,
    ) -> Result<Self, Error> {
        metrics::describe();
        config.validate()?;
        let topic = P::TOPIC;
        if !P::LISTENERS.contains(&config.group.as_str()) {
            return Err(Error::NotAListener { group: config.group, topic });
        }
        let key = stream_key(&redis, topic)?;
        let name = format!("{}-{}", config.group, Uuid::now_v7().simple());
        Ok(Self {
            processor: Arc::new(DeliveryProcessor { postgres, clock, topic, config, handler }),
            redis,
            key,
            name,
        })
    }

    /// Handles events until `shutdown`. Then finishes the events in progress and releases the others.
    pub async fn run(self, shutdown: CancellationToken) {
        let config = &self.processor.config;
        let mut reader = self.start_reader();
        let mut running: JoinSet<Finished> = JoinSet::new();
        let mut queue = PerKeyQueue::default();
        // A quarter of `claim_idle`, so that two heartbeats may fail.
        let mut heartbeat = ticks(config.claim_idle / 4);
        let mut letters = ticks(config.letters_every);
        let mut cleaning = ticks(config.clean_every);
        let mut is_maintaining = false;
        let mut take_over_from = StreamId::ZERO;
        while !shutdown.is_cancelled() {
            self.start_ready(&mut queue, &mut running);
            reader.request(config.held_max.saturating_sub(queue.len()));
            tokio::select! {
                () = shutdown.cancelled() => {}
                Some(read) = reader.entries.recv() => {
                    reader.is_reading = false;
                    self.enqueue(&mut queue, &read, 0);
                }
                Some(finished) = running.join_next() => match finished {
                    Ok(Finished::Event { id, key }) => queue.done(id, &key),
                    Ok(Finished::Maintenance) => is_maintaining = false,
                    Err(error) => tracing::error!(%error, topic = self.processor.topic, "consumer task failed"),
                },
                _ = heartbeat.tick() => tokio::select! {
                    // Redis may be unavailable, and shutdown must not wait for it. Events that were taken over here and
                    // dropped become claimable again.
                    () = shutdown.cancelled() => {}
                    next = self.heartbeat(&mut queue, take_over_from) => take_over_from = next,
                },
                _ = letters.tick(), if !is_maintaining => {
                    is_maintaining = true;
                    self.start_maintenance(&mut running, MaintenanceTask::RetryDeadLetters);
                }
                _ = cleaning.tick(), if !is_maintaining => {
                    is_maintaining = true;
                    self.start_maintenance(&mut running, MaintenanceTask::Clean);
                }
            }
        }
        self.drain(queue, running, reader).await;
    }

    fn start_ready(&self, queue: &mut PerKeyQueue, running: &mut JoinSet<Finished>) {
        while running.len() < self.processor.config.concurrency {
            let Some(delivery) = queue.next() else { break };
            let processor = Arc::clone(&self.processor);
            let (redis, stream) = (self.redis.clone(), self.key.clone());
            running.spawn(async move {
                processor.process(&delivery).await;
                // After the commit only. If acknowledging fails, the event is delivered again and the inbox recognizes
                // it.
                let acknowledged =
                    redis.stream(&stream).acknowledge(&processor.config.group, &[delivery.id]).await;
                if let Err(error) = acknowledged {
                    tracing::warn!(error = %Chain(&error), "failed to acknowledge an event, it will be delivered again");
                }
                Finished::Event { id: delivery.id, key: delivery.key }
            });
        }
    }

    fn enqueue(&self, queue: &mut PerKeyQueue, entries: &[Entry], crash_count: u32) {
        for entry in entries {
            queue.push(Delivery::read(self.processor.topic, entry, crash_count));
        }
    }

    /// Renews the claims of held events and takes over idle ones from `start` on. Returns the start of the next scan.
    async fn heartbeat(&self, queue: &mut PerKeyQueue, start: StreamId) -> StreamId {
        self.renew_claims(queue).await;
        self.take_over(queue, start).await
    }

    async fn renew_claims(&self, queue: &PerKeyQueue) {
        let held = queue.held();
        let renewed =
            self.redis.stream(&self.key).renew(&self.processor.config.group, &self.name, &held).await;
        if let Err(error) = renewed {
            tracing::debug!(error = %Chain(&error), "failed to renew the claims of held events");
        }
    }

    /// Takes over events that were idle for `claim_idle`, including own ones whose delivery was lost. One call scans
    /// only a few pending events, so the next one continues after them; otherwise many live events would hide an idle
    /// one.
    async fn take_over(&self, queue: &mut PerKeyQueue, start: StreamId) -> StreamId {
        let config = &self.processor.config;
        let stream = self.redis.stream(&self.key);
        let room = config.held_max.saturating_sub(queue.len()).min(config.concurrency);
        if room == 0 {
            return start;
        }
        let claimed = stream.auto_claim(&config.group, &self.name, config.claim_idle, start, room).await;
        let Ok(claimed) = claimed else { return start };
        for entry in claimed.entries {
            let pending = stream.pending(&config.group, entry.id, 1).await.unwrap_or_default();
            // The current delivery does not count as crashed.
            let handed_out = pending.first().filter(|it| it.id == entry.id).map_or(0, |it| it.deliveries);
            self.enqueue(queue, &[entry], u32::try_from(handed_out.saturating_sub(1)).unwrap_or(u32::MAX));
        }
        claimed.next
    }

    fn start_maintenance(&self, running: &mut JoinSet<Finished>, task: MaintenanceTask) {
        let processor = Arc::clone(&self.processor);
        let (redis, key) = (self.redis.clone(), self.key.clone());
        running.spawn(async move {
            let done = match task {
                MaintenanceTask::RetryDeadLetters => retry_dead_letters(&processor).await,
                MaintenanceTask::Clean => clean(&processor, &redis, &key).await,
            };
            if let Err(error) = done {
                tracing::warn!(?task, error = %Chain(&error), "maintenance task of a consumer failed, retrying at its next interval");
            }
            Finished::Maintenance
        });
    }

    /// Finishes the events in progress and releases the others.
    async fn drain(self, mut queue: PerKeyQueue, mut running: JoinSet<Finished>, mut reader: ReaderHandle) {
        let end = Instant::now() + self.processor.config.handler_timeout;
        while let Ok(Some(finished)) = tokio::time::timeout_at(end, running.join_next()).await {
            if let Ok(Finished::Event { id, key }) = finished {
                queue.done(id, &key);
            }
        }
        // Wait as long as one read may take. Without Redis the reader would retry forever.
        let read_end = Instant::now() + self.processor.config.block + self.redis.config().command_timeout;
        if reader.is_reading
            && let Ok(Some(read)) = tokio::time::timeout_at(read_end.min(end), reader.entries.recv()).await
        {
            self.enqueue(&mut queue, &read, 0);
        }
        running.shutdown().await;
        for (crash_count, held) in queue.held_by_crash_count() {
            self.release(&held, crash_count).await;
        }
    }

    /// Makes held events claimable and restores their delivery count, because this consumer did not crash.
    async fn release(&self, held: &[StreamId], crash_count: u32) {
        // An idle time of `claim_idle` makes the events claimable immediately.
        let idle = self.processor.config.claim_idle.as_millis().to_string();
        let command = Command::new("XCLAIM").key(&self.key).arg(&self.processor.config.group).arg(&self.name);
        let command = command.arg(0).arg(held).arg("IDLE").arg(idle).arg("RETRYCOUNT").arg(crash_count);
        if let Err(error) = self.redis.run::<crate::redis::Value>(command.arg("JUSTID").idempotent()).await {
            tracing::debug!(error = %Chain(&error), "failed to release held events, others take them over when they are idle");
        }
    }

    /// Starts a task that reads. Dropping a read instead would leave its events pending until they are claimed.
    fn start_reader(&self) -> ReaderHandle {
        let (request, mut requests) = mpsc::channel::<usize>(1);
        let (found, entries) = mpsc::channel(1);
        let (redis, key) = (self.redis.clone(), self.key.clone());
        let (config, name) = (self.processor.config.clone(), self.name.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "ends when its consumer does, which the task set waits for"
        )]
        tokio::spawn(async move {
            let mut reader = redis.reader();
            let mut failures = Backoff::new(config.backoff);
            while let Some(count) = requests.recv().await {
                let read = reader.read_group(&key, &config.group, &name, count, config.block).await;
                let read = match read {
                    Ok(read) => {
                        failures.reset();
                        read
                    }
                    Err(error) => {
                        // The group does not exist: this is the first start, or Redis lost it. Read from the beginning;
                        // the inbox recognizes handled events.
                        let created = redis.stream(&key).create_group(&config.group, StreamId::ZERO).await;
                        if !matches!(created, Ok(true)) {
                            tracing::debug!(error = %Chain(&error), "failed to read events, retrying");
                            sleep(failures.next_delay().unwrap_or(config.backoff.max)).await;
                        }
                        Vec::new()
                    }
                };
                if found.send(read).await.is_err() {
                    break;
                }
            }
        });
        ReaderHandle { requests: request, entries, is_reading: false }
    }
}

struct ReaderHandle {
    requests: mpsc::Sender<usize>,
    entries: mpsc::Receiver<Vec<Entry>>,
    is_reading: bool,
}

impl ReaderHandle {
    /// Requests up to `count` events unless a read is running.
    fn request(&mut self, count: usize) {
        if !self.is_reading && count > 0 {
            self.is_reading = self.requests.try_send(count).is_ok();
        }
    }
}

async fn retry_dead_letters<H: Handler>(processor: &DeliveryProcessor<H>) -> Result<(), Error> {
    let (group, topic) = (&processor.config.group, &processor.topic);
    let parameters: Parameters<'_> = &[group, topic, &RETRIES_PER_ROUND_MAX];
    for row in processor.postgres.query("requested letters", REQUESTED_RETRIES, parameters).await? {
        processor.retry_dead_letter(column(&row, "event_id")?).await;
    }
    Ok(())
}

async fn clean<H>(processor: &DeliveryProcessor<H>, redis: &Redis, key: &Key) -> Result<(), Error> {
    let group = &processor.config.group;
    let remembered = (processor.config.inbox_retention + INBOX_MARGIN).as_secs_f64();
    processor.postgres.execute("forget inbox", DELETE_OLD, &[group, &remembered, &DELETE_MAX]).await?;
    let dead_after = processor.config.consumer_dead_after.as_millis().to_string();
    let call = DELETE_CONSUMERS.call().key(key).arg(group).arg(dead_after).idempotent();
    let _forgotten: u64 = redis.run(call).await?;
    Ok(())
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let every = every.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
