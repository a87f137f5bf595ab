//! The `join` benchmark: durable places in one hot line, beside an empty call through the same chassis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use onsale_proto::{
    auth::v1::Role,
    queue::v1::{JoinQueueRequest, queue_service_client::QueueServiceClient},
};
use onsale_testkit::tokens::Mint;
use serde_json::{Value, json};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Endpoint,
};
use uuid::Uuid;

use super::{
    empty, kernel,
    load::{self, Load, Outcome},
    pod::Pod,
    report::{Report, Round, millis, share},
    server::{ServerProcess, Through},
    world::{World, bearer, subject},
};

const ROUNDS: usize = 3;
/// Tokens made ahead, per second of load. More customers than that get theirs while it runs.
const TOKENS_PER_SECOND: u64 = 20_000;

/// Measures both, round by round, each in a fresh process.
pub(crate) async fn run(measured: Duration) -> anyhow::Result<Report> {
    let load = Load {
        connections: empty::CONNECTIONS,
        callers_per_connection: empty::CALLERS_PER_CONNECTION,
        measured,
        warm_up: empty::WARM_UP,
    };
    let world = World::start().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who goes first alternates, so that a machine that gets slower or faster favours neither.
        let (joins, empty) = if round % 2 == 0 {
            let joins = Box::pin(measure(&world, load)).await?;
            (joins, Box::pin(measure_empty(&world, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&world, load)).await?;
            (Box::pin(measure(&world, load)).await?, empty)
        };
        // Beside both, what an empty call costs whose caller is known already.
        let known = Box::pin(empty::measure(Through::Kit, load)).await?;
        rounds.push(Round { value: joins.outcome.calls_per_second, limit: empty.calls_per_second });
        detail.push(json!({
            "join": joins.in_words(),
            "empty": empty::in_words(&empty),
            "empty_of_one_known_caller": empty::in_words(&known),
        }));
    }
    let detail = json!({
        "connections": load.connections,
        "callers": load.connections * load.callers_per_connection,
        "durable": "fsync and synchronous_commit on",
        "machine": kernel::machine(),
        "rounds": detail,
    });
    Ok(Report::new(
        "join",
        "joins/s",
        "an empty call through the kit: same client with a customer's own token per call, same concurrency",
        &rounds,
        detail,
    ))
}

/// The limit: the same customers make an empty call each.
async fn measure_empty(world: &World, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(Through::Kit, Some(&world.mint.jwks())).await?;
    let customers = Arc::new(Customers::mint(Arc::clone(&world.mint), Uuid::now_v7(), load).await?);
    empty::measure_at(server, load, move || customers.next()).await
}

/// What one round of joins came to.
struct Joins {
    outcome: Outcome,
    /// Places given, warm-up included.
    joined: u64,
    /// Tokens that had to be made while it ran.
    minted_late: usize,
    pod: Duration,
    postgres: Duration,
    redis: Duration,
    batch_size: Option<f64>,
}

impl Joins {
    fn in_words(&self) -> Value {
        let per_thousand = |time: Duration| {
            share(
                u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
                self.joined.max(1).saturating_mul(1_000),
            )
        };
        let mut words = empty::in_words(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("joined_with_warm_up".to_owned(), json!(self.joined));
            words.insert("average_batch".to_owned(), json!(self.batch_size));
            words.insert("tokens_minted_late".to_owned(), json!(self.minted_late));
            // Microseconds per join are milliseconds per thousand, so a thousandth of those are seconds.
            words.insert(
                "processor_seconds_per_thousand".to_owned(),
                json!({
                    "pod": per_thousand(self.pod),
                    "postgres": per_thousand(self.postgres),
                    "redis": per_thousand(self.redis),
                }),
            );
            words.insert("pod_processor_ms".to_owned(), json!(millis(self.pod)));
        }
        words
    }
}

async fn measure(world: &World, load: Load) -> anyhow::Result<Joins> {
    let event = world.event(0).await?;
    let customers = Arc::new(Customers::mint(Arc::clone(&world.mint), event.event_id, load).await?);
    let pod = Pod::start(world, &[]).await?;
    let mut channels = Vec::new();
    for _ in 0..load.connections {
        let endpoint = Endpoint::from_shared(pod.url())?.tcp_nodelay(true);
        channels.push(endpoint.connect().await.context("failed to connect to the pod")?);
    }
    let times = || {
        let postgres = kernel::processor_time_below("postgres")?;
        anyhow::Ok((pod.processor_time()?, postgres, kernel::processor_time_below("redis-server")?))
    };
    let before = times()?;
    let event_id = event.event_id.to_string();
    let outcome = load::put_on(load, |connection| {
        let client = channels.get(connection).map(|channel| QueueServiceClient::new(channel.clone()));
        let (customers, event_id) = (Arc::clone(&customers), event_id.clone());
        move || join(client.clone(), Arc::clone(&customers), event_id.clone())
    })
    .await?;
    let after = times()?;
    let metrics = pod.metrics().await?;
    let joined = customers.served();
    expect_places(world, event.event_id, joined).await?;
    let of = |name: &str| metrics.sum(name, "batcher=\"join\"").or_else(|| metrics.sum(name, "join"));
    let batch_size = of("batcher_batch_size_sum").zip(of("batcher_batch_size_count"));
    pod.stop().await?;
    Ok(Joins {
        outcome,
        joined,
        minted_late: customers.late.load(Ordering::Relaxed),
        pod: after.0.saturating_sub(before.0),
        postgres: after.1.saturating_sub(before.1),
        redis: after.2.saturating_sub(before.2),
        batch_size: batch_size.map(|(sum, count)| quotient(sum, count)),
    })
}

async fn join(
    client: Option<QueueServiceClient<tonic::transport::Channel>>,
    customers: Arc<Customers>,
    event_id: String,
) -> Result<(), Status> {
    let mut client = client.ok_or_else(|| Status::internal("no such connection"))?;
    let request_id = Uuid::now_v7().to_string();
    let mut request = Request::new(JoinQueueRequest { request_id, event_id, ..JoinQueueRequest::default() });
    request.metadata_mut().insert("authorization", customers.next()?);
    client.join_queue(request).await.map(drop)
}

/// Every answer must be a place that Postgres keeps, and no number may be missing.
async fn expect_places(world: &World, event_id: Uuid, joined: u64) -> anyhow::Result<()> {
    let sql = "SELECT count(*), coalesce(max(seq), 0) FROM queue.entry WHERE event_id = $1";
    let row = world.postgres.query_one(sql, &[&event_id]).await.context("failed to count places")?;
    let (count, last): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if count != last || u64::try_from(count).ok() != Some(joined) {
        bail!("{joined} joined, but there are {count} places up to number {last}");
    }
    Ok(())
}

/// People who have not joined yet, each with a token.
struct Customers {
    mint: Arc<Mint>,
    event_id: Uuid,
    tokens: Vec<MetadataValue<Ascii>>,
    next: AtomicUsize,
    late: AtomicUsize,
}

impl Customers {
    /// Makes tokens on all processors.
    async fn mint(mint: Arc<Mint>, event_id: Uuid, load: Load) -> anyhow::Result<Self> {
        let count = TOKENS_PER_SECOND.saturating_mul((load.measured + load.warm_up).as_secs());
        let workers =
            std::thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1));
        let border = |worker: u64| count.saturating_mul(worker) / workers;
        let mut minting = tokio::task::JoinSet::new();
        for worker in 0..workers {
            let (mint, numbers) = (Arc::clone(&mint), border(worker)..border(worker + 1));
            minting.spawn_blocking(move || numbers.map(|number| token(&mint, event_id, number)).collect());
        }
        let mut tokens = Vec::new();
        while let Some(made) = minting.join_next().await {
            let made: Result<Vec<_>, Status> = made.context("failed to make tokens")?;
            tokens.extend(made?);
        }
        Ok(Self { mint, event_id, tokens, next: AtomicUsize::new(0), late: AtomicUsize::new(0) })
    }

    /// The next customer.
    fn next(&self) -> Result<MetadataValue<Ascii>, Status> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(token) = self.tokens.get(number) {
            return Ok(token.clone());
        }
        self.late.fetch_add(1, Ordering::Relaxed);
        token(&self.mint, self.event_id, u64::try_from(number).unwrap_or(u64::MAX))
    }

    /// How many have called.
    fn served(&self) -> u64 {
        u64::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }
}

fn token(mint: &Mint, event_id: Uuid, number: u64) -> Result<MetadataValue<Ascii>, Status> {
    let token = bearer(mint, &subject(event_id, number), Role::Customer);
    token.parse().map_err(|_| Status::internal("a token is no header"))
}

#[expect(clippy::float_arithmetic, reason = "an average is measured, not counted")]
fn quotient(sum: f64, count: f64) -> f64 {
    sum / count.max(1.0)
}
