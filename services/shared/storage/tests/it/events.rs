//! Shared parts of the messaging tests: a producer, an effect that can be counted, and handlers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onsale_kit::backoff::BackoffConfig;
use onsale_kit::tasks::Tasks;
use onsale_proto::{EventPayload, Topic};
use onsale_storage::messaging::{
    Consumer, ConsumerConfig, DeadLetters, Handler, HandlerError, Message, NewEvent, Outbox, Relay,
    RelayConfig,
};
use onsale_storage::postgres::{Error, Postgres, Transaction, column};
use onsale_storage::redis::{Entry, Redis, RedisConfig, StreamId};
use onsale_testkit::stack::{self, RedisCluster, TestDatabase};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{run_sql, sandbox_with};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const GROUP: &str = "listener";

/// Payload of all events in these tests.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumberAdded {
    #[prost(int64, tag = "1")]
    pub(crate) number: i64,
}

impl EventPayload for NumberAdded {
    const TOPIC: &'static str = "test.noted";
    const TYPE: &'static str = "onsale.test.v1.NumberAdded";
    const SOURCE: &'static str = "producer";
    const LISTENERS: &'static [&'static str] = &[GROUP];
}

/// Stores of one test: a schema that is producer and listener, and a part of a cluster.
pub(crate) struct World {
    pub(crate) database: TestDatabase,
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) outbox: Outbox,
    /// Aborted when the world is dropped.
    tasks: JoinSet<()>,
}

impl World {
    /// Creates a world on the shared cluster.
    pub(crate) async fn new() -> Self {
        let shared = stack::redis().await.unwrap();
        Self::on(shared.urls, &shared.prefix).await
    }

    /// Creates a world on the test's own cluster.
    pub(crate) async fn on_private(cluster: &RedisCluster) -> Self {
        Self::on(cluster.urls(), "test").await
    }

    async fn on(urls: Vec<String>, prefix: &str) -> Self {
        let (database, postgres) = sandbox_with(|config| config.pool_max = 20).await;
        run_sql(
            &database,
            "CREATE TABLE effect (id bigserial PRIMARY KEY, number bigint NOT NULL);
             CREATE TABLE call (number bigint NOT NULL)",
        )
        .await;
        let redis = Redis::connect(&RedisConfig::new(urls, prefix)).await.unwrap();
        let outbox = Outbox::new(NumberAdded::SOURCE, Arc::new(SystemClock));
        Self { database, postgres, redis, outbox, tasks: JoinSet::new() }
    }

    /// Writes one event per number, all in one transaction.
    pub(crate) async fn produce(&self, key: &str, numbers: impl IntoIterator<Item = i64>) -> Vec<Uuid> {
        produce(&self.postgres, &self.outbox, key, numbers).await
    }

    pub(crate) fn relay(&self) -> Relay {
        self.relay_with(relay_config())
    }

    pub(crate) fn relay_with(&self, config: RelayConfig) -> Relay {
        self.relay_of(&[Topic::of::<NumberAdded>()], config)
    }

    pub(crate) fn relay_of(&self, topics: &[Topic], config: RelayConfig) -> Relay {
        Relay::new(self.postgres.clone(), self.redis.clone(), &self.outbox, topics, config).unwrap()
    }

    pub(crate) fn consumer<H: Handler>(&self, handler: H) -> Consumer<H> {
        self.consumer_with(consumer_config(), handler)
    }

    pub(crate) fn consumer_with<H: Handler>(&self, config: ConsumerConfig, handler: H) -> Consumer<H> {
        let clock = Arc::new(SystemClock);
        Consumer::new::<NumberAdded>(self.postgres.clone(), self.redis.clone(), clock, config, handler)
            .unwrap()
    }

    /// Runs a relay and a consumer until the end of the test.
    pub(crate) fn start<H: Handler>(&mut self, handler: H) {
        self.start_relay();
        self.start_consumer(self.consumer(handler));
    }

    /// Starts a relay in a task set of its own.
    pub(crate) fn start_relay(&self) -> Tasks {
        let tasks = Tasks::new();
        self.relay().start(&tasks);
        tasks
    }

    pub(crate) fn start_consumer<H: Handler>(&mut self, consumer: Consumer<H>) -> tokio::task::AbortHandle {
        self.spawn(consumer.run(CancellationToken::new()))
    }

    pub(crate) fn spawn(
        &mut self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::AbortHandle {
        self.tasks.spawn(task)
    }

    pub(crate) fn letters(&self) -> DeadLetters {
        DeadLetters::new(self.postgres.clone(), GROUP)
    }

    /// Returns the numbers whose effect was committed, in the order of the commits.
    pub(crate) async fn effects(&self) -> Vec<i64> {
        let rows =
            self.postgres.query("effects", "SELECT number FROM effect ORDER BY id", &[]).await.unwrap();
        rows.iter().map(|row| column(row, "number").unwrap()).collect()
    }

    pub(crate) async fn wait_for_effects(&self, count: usize) {
        wait_until("all effects are applied", SOON, async || self.effects().await.len() >= count).await;
    }

    pub(crate) async fn wait_for_letters(&self, count: usize) {
        let letters = self.letters();
        wait_until("the dead letters are stored", SOON, async || {
            letters.list(None, 100).await.unwrap().letters.len() == count
        })
        .await;
    }

    /// Waits until the group has no pending and no unread entries.
    pub(crate) async fn wait_until_idle(&self) {
        wait_until("the group is idle", SOON, async || {
            let Ok(groups) = self.stream(async |stream| stream.groups().await).await else { return false };
            let last = self.stream(async |stream| stream.last_id().await).await.ok().flatten();
            groups.iter().any(|it| it.name == GROUP && it.pending == 0 && Some(it.last_delivered) == last)
        })
        .await;
    }

    /// Returns all entries of the stream.
    pub(crate) async fn entries(&self) -> Vec<Entry> {
        self.stream(async |stream| stream.range(StreamId::ZERO, StreamId::MAX, 10_000).await).await.unwrap()
    }

    pub(crate) async fn positions(&self) -> Vec<u64> {
        self.entries().await.iter().map(|entry| entry.id.millis).collect()
    }

    pub(crate) async fn stream<T>(
        &self,
        work: impl AsyncFnOnce(onsale_storage::redis::Stream<'_>) -> T,
    ) -> T {
        let key = self.redis.keyspace("events").unwrap().key("stream", NumberAdded::TOPIC).unwrap();
        work(self.redis.stream(&key)).await
    }
}

pub(crate) async fn produce(
    postgres: &Postgres,
    outbox: &Outbox,
    key: &str,
    numbers: impl IntoIterator<Item = i64>,
) -> Vec<Uuid> {
    let events: &Vec<_> =
        &numbers.into_iter().map(|number| NewEvent::new(key, &NumberAdded { number })).collect();
    let ids = postgres
        .transaction("produce", |transaction| async move { outbox.append(&transaction, events).await })
        .await
        .unwrap();
    outbox.wake_relay();
    ids
}

pub(crate) fn relay_config() -> RelayConfig {
    RelayConfig {
        poll_every: Duration::from_millis(20),
        check_every: Duration::from_millis(50),
        batch_max: 50,
        ..RelayConfig::default()
    }
}

/// Short times, so that takeovers are fast.
pub(crate) fn consumer_config() -> ConsumerConfig {
    ConsumerConfig {
        group: GROUP.to_owned(),
        block: Duration::from_millis(100),
        claim_idle: Duration::from_millis(400),
        attempts_max: 4,
        backoff: BackoffConfig {
            initial: Duration::from_millis(10),
            max: Duration::from_millis(100),
            multiplier: 2,
            attempts_max: u32::MAX,
        },
        letters_every: Duration::from_millis(50),
        ..ConsumerConfig::default()
    }
}

pub(crate) async fn apply(transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
    let number = message.payload::<NumberAdded>()?.number;
    transaction.execute("INSERT INTO effect (number) VALUES ($1)", &[&number]).await?;
    Ok(())
}

/// Records outside of the handler's transaction that the handler was called.
pub(crate) async fn record_call(postgres: &Postgres, message: &Message) -> Result<(), HandlerError> {
    let number = message.payload::<NumberAdded>()?.number;
    postgres.execute("calls", "INSERT INTO call (number) VALUES ($1)", &[&number]).await?;
    Ok(())
}

pub(crate) async fn calls(postgres: &Postgres) -> i64 {
    let row = postgres.query_one("calls", "SELECT count(*) AS count FROM call", &[]).await.unwrap();
    column(&row, "count").unwrap()
}

/// Handler that applies the effect.
pub(crate) struct Apply;

impl Handler for Apply {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        apply(transaction, message).await
    }
}

/// Handler that applies the effect and then returns `before`'s result; `before` gets the number and how often it was
/// called with it.
pub(crate) struct Guarded<F> {
    calls: std::sync::Mutex<std::collections::HashMap<i64, u32>>,
    before: F,
}

impl<F> Guarded<F>
where
    F: Fn(i64, u32) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    pub(crate) fn new(before: F) -> Self {
        Self { calls: std::sync::Mutex::default(), before }
    }
}

impl<F> Handler for Guarded<F>
where
    F: Fn(i64, u32) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let number = message.payload::<NumberAdded>()?.number;
        let calls = {
            let mut calls = self.calls.lock().unwrap();
            let calls = calls.entry(number).or_default();
            *calls += 1;
            *calls
        };
        // First, so that a failure has an effect to roll back.
        apply(transaction, message).await?;
        (self.before)(number, calls)
    }
}

/// Handler that applies the effect, records its call, and keeps the transaction open for `hold`.
pub(crate) struct Slow {
    pub(crate) postgres: Postgres,
    pub(crate) hold: Duration,
}

impl Handler for Slow {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        apply(transaction, message).await?;
        record_call(&self.postgres, message).await?;
        tokio::time::sleep(self.hold).await;
        Ok(())
    }
}

pub(crate) fn retry(text: &str) -> HandlerError {
    HandlerError::Retry(text.into())
}

/// Returns an error for a transaction that must fail.
pub(crate) fn refused() -> Error {
    Error::Url
}
