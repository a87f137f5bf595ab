//! The `join` benchmark: durable joins per second in one hot line. Limit: empty calls through the same chassis.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::queue::v1::{JoinQueueRequest, queue_service_client::QueueServiceClient};
use serde_json::{Value, json};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::{
    customers::{self, Customers},
    empty, kernel,
    load::{self, Load, Outcome},
    pod::{Pod, channels},
    report::{Report, Round},
    server::{ServerProcess, ServerStack},
    testbed::Testbed,
    usage::Usage,
};

const ROUNDS: usize = 3;

/// Measures joins and their limit in alternating rounds, each in a fresh process.
pub(crate) async fn run(measured: Duration) -> anyhow::Result<Report> {
    let load = Load {
        connections: empty::CONNECTIONS,
        callers_per_connection: empty::CALLERS_PER_CONNECTION,
        measured,
        warm_up: empty::WARM_UP,
    };
    let testbed = Testbed::start().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let (joins, empty) = if round % 2 == 0 {
            let joins = Box::pin(measure(&testbed, load)).await?;
            (joins, Box::pin(measure_empty(&testbed, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&testbed, load)).await?;
            (Box::pin(measure(&testbed, load)).await?, empty)
        };
        // For comparison: empty calls of one customer, whose token the server verifies only once.
        let known = Box::pin(empty::measure(ServerStack::Kit, load)).await?;
        rounds.push(Round { value: joins.outcome.calls_per_second, limit: empty.calls_per_second });
        detail.push(json!({
            "join": joins.to_json(),
            "empty": empty::to_json(&empty),
            "empty_of_one_known_caller": empty::to_json(&known),
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

/// Measures the limit: empty calls, each by another customer.
async fn measure_empty(testbed: &Testbed, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(ServerStack::Kit, Some(&testbed.issuer)).await?;
    let customers = Customers::prepare(&testbed.issuer, Uuid::now_v7(), load, customers::plain).await?;
    let customers = Arc::new(customers);
    empty::measure_at(server, load, move || customers.next()).await
}

/// Result of one round of joins.
struct Joins {
    outcome: Outcome,
    /// Number of joins, warm-up included.
    joined: u64,
    /// Tokens that were created during the measurement.
    minted_late: usize,
    usage: Usage,
    batch_size: Option<f64>,
}

impl Joins {
    fn to_json(&self) -> Value {
        let mut words = empty::to_json(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("joined_with_warm_up".to_owned(), json!(self.joined));
            words.insert("average_batch".to_owned(), json!(self.batch_size));
            words.insert("tokens_minted_late".to_owned(), json!(self.minted_late));
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.joined));
        }
        words
    }
}

async fn measure(testbed: &Testbed, load: Load) -> anyhow::Result<Joins> {
    let event = testbed.event(0).await?;
    let customers = Customers::prepare(&testbed.issuer, event.event_id, load, customers::plain).await?;
    let customers = Arc::new(customers);
    let pod = Pod::start(testbed, testbed.queue(), &[]).await?;
    let channels = channels(&pod.url(), load.connections).await?;
    let before = Usage::of(&[&pod])?;
    let event_id = event.event_id.to_string();
    let outcome = load::run_for(load, |connection| {
        let client = channels.get(connection).map(|channel| QueueServiceClient::new(channel.clone()));
        let (customers, event_id) = (Arc::clone(&customers), event_id.clone());
        move || join(client.clone(), Arc::clone(&customers), event_id.clone())
    })
    .await?;
    let usage = Usage::of(&[&pod])?.since(&before);
    let batch_size = pod.metrics().await?.average("batcher_batch_size", "batcher").remove("join");
    let joined = customers.served();
    expect_sectors(testbed, event.event_id, joined).await?;
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

/// Fails unless Postgres has exactly `joined` entries whose numbers have no gap.
async fn expect_sectors(testbed: &Testbed, event_id: Uuid, joined: u64) -> anyhow::Result<()> {
    let sql = "SELECT count(*), coalesce(max(seq), 0) FROM queue.entry WHERE event_id = $1";
    let row = testbed.postgres.query_one(sql, &[&event_id]).await.context("failed to count entries")?;
    let (count, last): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if count != last || u64::try_from(count).ok() != Some(joined) {
        bail!("{joined} joined, but there are {count} entries up to number {last}");
    }
    Ok(())
}
