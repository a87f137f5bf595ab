//! The reading end: one topic, one group, one process of it.
//!
//! Within a process the events of one key are handled one after the other, in the order they reach it, and one that fails
//! holds back only its own key until it succeeds or is dead (as long as there is room to hold others). Between processes of
//! a group there is no order, as Redis hands events to whoever asks; nor between an event that was taken over and later
//! ones. A handler for which order matters compares with what it has stored.

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

/// How much of the inbox one round forgets: enough to keep up with a thousand events a second.
const DELETE_MAX: i64 = 60_000;
const RETRIES_PER_ROUND_MAX: i64 = 16;
/// An event is remembered this much longer than it may be handled: clocks differ.
const INBOX_MARGIN: Duration = Duration::from_secs(60 * 60);

static DELETE_CONSUMERS: LazyLock<Script> =
    LazyLock::new(|| Script::new("forget_consumers", include_str!("delete_consumers.lua")));

/// How a consumer works.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerConfig {
    /// The group: the service's name. Every process of it reads a share.
    pub group: String,
    /// How many events are handled at once.
    pub concurrency: usize,
    /// How many events are held at most, those that wait for another of their key included.
    pub held_max: usize,
    /// How long a read waits for something new.
    #[serde(with = "humantime_serde")]
    pub block: Duration,
    /// After how long without a heartbeat another's event is taken over.
    #[serde(with = "humantime_serde")]
    pub claim_idle: Duration,
    /// The longest a single try may take.
    #[serde(with = "humantime_serde")]
    pub handler_timeout: Duration,
    /// How often an event is tried before it is dead, hand-outs whose consumer died included.
    pub attempts_max: u32,
    /// The pauses between tries; its own number of attempts does not count.
    pub backoff: BackoffConfig,
    /// How often requested dead letters are looked for.
    #[serde(with = "humantime_serde")]
    pub letters_every: Duration,
    /// How old an event may be when it is handled. The inbox remembers a little longer than that; outbox rows must go
    /// long before.
    #[serde(with = "humantime_serde")]
    pub inbox_retention: Duration,
    /// How often the inbox forgets and the group drops its dead consumers.
    #[serde(with = "humantime_serde")]
    pub clean_every: Duration,
    /// After how long without a sign a consumer of the group is dead: longer than any pause of a living one.
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
            return refuse("a consumer needs the name of its group");
        }
        if self.concurrency == 0 || self.held_max == 0 || self.attempts_max == 0 {
            return refuse("concurrency, held_max and attempts_max must not be 0");
        }
        let spans = [self.block, self.claim_idle, self.handler_timeout, self.letters_every, self.clean_every];
        if spans.iter().any(Duration::is_zero) {
            return refuse("no span of a consumer must be 0");
        }
        Ok(())
    }
}

/// Reads one topic for one group.
pub struct Consumer<H> {
    processor: Arc<DeliveryProcessor<H>>,
    redis: Redis,
    key: Key,
    /// This process's name in the group; new with every start, so a dead one's events are nobody's but by claim.
    name: String,
}

/// What a task of the consumer reports when it ends.
enum Finished {
    Event { id: StreamId, key: String },
    Maintenance,
}

/// Work beside the events, one at a time.
#[derive(Clone, Copy, Debug)]
enum MaintenanceTask {
    RetryDeadLetters,
    Clean,
}

// Not a `kit::worker`: `run` is an event loop over reads, finished tasks, heartbeats and shutdown.
impl<H: Handler> Consumer<H> {
    /// A consumer of the topic of `P`, whose handler writes to `postgres`. The contract must name the group as a listener.
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

    /// Handles events until `shutdown`; then what is being handled is finished and the rest is given back.
    pub async fn run(self, shutdown: CancellationToken) {
        let config = &self.processor.config;
        let mut reader = self.start_reader();
        let mut running: JoinSet<Finished> = JoinSet::new();
        let mut queue = PerKeyQueue::default();
        // Often enough that two heartbeats may fail.
        let mut heartbeat = ticks(config.claim_idle / 4);
        let mut letters = ticks(config.letters_every);
        let mut cleaning = ticks(config.clean_every);
        let mut is_maintaining = false;
        let mut take_over_from = StreamId::ZERO;
        while !shutdown.is_cancelled() {
            self.start_ready(&mut queue, &mut running);
            reader.ask(config.held_max.saturating_sub(queue.len()));
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
                    // Redis may be away, and a shutdown must not wait for it. What is taken over and dropped here comes
                    // again to another.
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
                // Not before the commit. Should this fail, the event comes again and the inbox knows it.
                let acknowledged =
                    redis.stream(&stream).acknowledge(&processor.config.group, &[delivery.id]).await;
                if let Err(error) = acknowledged {
                    tracing::warn!(error = %Chain(&error), "failed to acknowledge an event, it will come again");
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

    /// Keeps what we hold, and takes over from `start` on what others left; answers where to go on.
    async fn heartbeat(&self, queue: &mut PerKeyQueue, start: StreamId) -> StreamId {
        self.renew_claims(queue).await;
        self.take_over(queue, start).await
    }

    /// The heartbeat: tells the group that what we hold is being worked on.
    async fn renew_claims(&self, queue: &PerKeyQueue) {
        let held = queue.held();
        let renewed =
            self.redis.stream(&self.key).renew(&self.processor.config.group, &self.name, &held).await;
        if let Err(error) = renewed {
            tracing::debug!(error = %Chain(&error), "failed to renew claims");
        }
    }

    /// Takes over what others, or we ourselves in a lost answer, have left alone for too long. One call looks at a few
    /// pending events only, so the next goes on where this one finished: else many that are well would hide one that is not.
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
            // This hand-out is not over yet.
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
                tracing::warn!(?task, error = %Chain(&error), "task of a consumer failed");
            }
            Finished::Maintenance
        });
    }

    /// Finishes what is being handled and lets others have the rest at once.
    async fn drain(self, mut queue: PerKeyQueue, mut running: JoinSet<Finished>, mut reader: ReaderHandle) {
        let end = Instant::now() + self.processor.config.handler_timeout;
        while let Ok(Some(finished)) = tokio::time::timeout_at(end, running.join_next()).await {
            if let Ok(Finished::Event { id, key }) = finished {
                queue.done(id, &key);
            }
        }
        // As long as a read may take, and no longer: without Redis the reader goes on trying.
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

    /// Lets others have events that we will not handle. We live, so having had them counts as no death.
    async fn release(&self, held: &[StreamId], crash_count: u32) {
        // An idle time of `claim_idle` makes them free to claim now.
        let idle = self.processor.config.claim_idle.as_millis().to_string();
        let command = Command::new("XCLAIM").key(&self.key).arg(&self.processor.config.group).arg(&self.name);
        let command = command.arg(0).arg(held).arg("IDLE").arg(idle).arg("RETRYCOUNT").arg(crash_count);
        if let Err(error) = self.redis.run::<crate::redis::Value>(command.arg("JUSTID").idempotent()).await {
            tracing::debug!(error = %Chain(&error), "failed to give back events");
        }
    }

    /// Reads on a task of its own: a read that is dropped would leave its events pending until they are claimed.
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
                        // No group: the first start, or Redis lost it. From the beginning: the inbox knows what is old.
                        let created = redis.stream(&key).create_group(&config.group, StreamId::ZERO).await;
                        if !matches!(created, Ok(true)) {
                            tracing::debug!(error = %Chain(&error), "failed to read events");
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
        ReaderHandle { request, entries, is_reading: false }
    }
}

/// The consumer's side of its reader.
struct ReaderHandle {
    request: mpsc::Sender<usize>,
    entries: mpsc::Receiver<Vec<Entry>>,
    is_reading: bool,
}

impl ReaderHandle {
    /// Asks for up to `count` events, unless it is reading already.
    fn ask(&mut self, count: usize) {
        if !self.is_reading && count > 0 {
            self.is_reading = self.request.try_send(count).is_ok();
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
