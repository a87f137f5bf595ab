//! The `join` benchmark: durable places in one hot line, beside an empty call through the same chassis.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::queue::v1::{JoinQueueRequest, queue_service_client::QueueServiceClient};
use serde_json::{Value, json};
use tonic::{Request, Status};
use uuid::Uuid;

use super::{
    customers::{self, Customers},
    empty, kernel,
    load::{self, Load, Outcome},
    pod::{Pod, channels},
    report::{Report, Round},
    server::{ServerProcess, Through},
    usage::Usage,
    world::World,
};

const ROUNDS: usize = 3;

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
    let server = ServerProcess::start(Through::Kit, Some(&world.issuer)).await?;
    let customers = Customers::with_tokens(&world.issuer, Uuid::now_v7(), load, customers::plain).await?;
    let customers = Arc::new(customers);
    empty::measure_at(server, load, move || customers.next()).await
}

/// What one round of joins came to.
struct Joins {
    outcome: Outcome,
    /// Places given, warm-up included.
    joined: u64,
    /// Tokens that had to be made while it ran.
    minted_late: usize,
    usage: Usage,
    batch_size: Option<f64>,
}

impl Joins {
    fn in_words(&self) -> Value {
        let mut words = empty::in_words(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("joined_with_warm_up".to_owned(), json!(self.joined));
            words.insert("average_batch".to_owned(), json!(self.batch_size));
            words.insert("tokens_minted_late".to_owned(), json!(self.minted_late));
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.joined));
        }
        words
    }
}

async fn measure(world: &World, load: Load) -> anyhow::Result<Joins> {
    let event = world.event(0).await?;
    let customers = Customers::with_tokens(&world.issuer, event.event_id, load, customers::plain).await?;
    let customers = Arc::new(customers);
    let pod = Pod::start(world, world.queue(), &[]).await?;
    let channels = channels(&pod.url(), load.connections).await?;
    let before = Usage::of(&[&pod])?;
    let event_id = event.event_id.to_string();
    let outcome = load::put_on(load, |connection| {
        let client = channels.get(connection).map(|channel| QueueServiceClient::new(channel.clone()));
        let (customers, event_id) = (Arc::clone(&customers), event_id.clone());
        move || join(client.clone(), Arc::clone(&customers), event_id.clone())
    })
    .await?;
    let usage = Usage::of(&[&pod])?.since(&before);
    let batch_size = pod.metrics().await?.average("batcher_batch_size", "batcher").remove("join");
    let joined = customers.served();
    expect_places(world, event.event_id, joined).await?;
    pod.stop().await?;
    Ok(Joins { outcome, joined, minted_late: customers.late(), usage, batch_size })
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
