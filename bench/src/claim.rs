//! The `claim` benchmark: durable claims per second through Claim, Queue and Inventory, each by another customer with a turn.
//! Limit: empty calls by as many customers, divided by the three hops of a claim.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::claim::v1::claim_service_client::ClaimServiceClient;
use serde_json::{Value, json};
use tonic::{Status, transport::Channel};
use uuid::Uuid;

use crate::{
    crowd::Crowd,
    customers::{Customers, buyer},
    empty, kernel,
    load::{self, Load, Outcome},
    pod::{Pod, Service, channels},
    report::{Report, Round, ratio},
    sale::{HotSectors, Organizer, UNITS},
    server::{ServerProcess, ServerStack},
    testbed::Testbed,
    usage::Usage,
};

const ROUNDS: usize = 3;
/// Services that handle one claim: Claim, Queue (the turn) and Inventory (the units).
const HOPS: f64 = 3.0;
/// Customers with a turn that are prepared per second of load. Must exceed the rate of claims.
const CUSTOMERS_PER_SECOND: u64 = 8_000;

/// State of Redis during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisState {
    Up,
    /// All nodes are killed after the pods have started, before the first call.
    Down,
}

/// Returns a load with as many connections as the `empty` benchmark uses.
pub(crate) fn load(callers: usize, measured: Duration) -> Load {
    Load {
        connections: empty::CONNECTIONS,
        callers_per_connection: callers.div_ceil(empty::CONNECTIONS),
        measured,
        warm_up: empty::WARM_UP,
    }
}

/// Measures claims and their limit in alternating rounds, each in fresh processes.
pub(crate) async fn run(callers: usize, measured: Duration, redis: RedisState) -> anyhow::Result<Report> {
    let load = load(callers, measured);
    let mut testbed = Testbed::start().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let (claims, empty) = if round % 2 == 0 {
            let claims = Box::pin(measure(&mut testbed, load, redis)).await?;
            (claims, Box::pin(measure_empty(&testbed, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&testbed, load)).await?;
            (Box::pin(measure(&mut testbed, load, redis)).await?, empty)
        };
        let limit = ratio(empty.calls_per_second, HOPS);
        rounds.push(Round { value: claims.outcome.calls_per_second, limit });
        detail.push(json!({ "claim": claims.to_json(), "empty": empty::to_json(&empty) }));
    }
    let detail = json!({
        "connections": load.connections,
        "callers": load.callers(),
        "units_each": UNITS,
        "durable": "fsync and synchronous_commit on",
        "redis": match redis {
            RedisState::Up => "three masters, three replicas",
            RedisState::Down => "all nodes killed after the pods had started, before the first call",
        },
        "settings": settings_to_json(),
        "machine": kernel::machine(),
        "rounds": detail,
    });
    Ok(Report::new(
        "claim",
        "claims/s",
        "a third of the empty calls through the kit, for three hops: same client with a customer's own token per call, same concurrency",
        &rounds,
        detail,
    ))
}

/// Measures the limit: empty calls, each by another customer.
async fn measure_empty(testbed: &Testbed, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(ServerStack::Kit, Some(&testbed.issuer)).await?;
    let customers = Arc::new(Customers::prepare(&testbed.issuer, Uuid::now_v7(), load, buyer).await?);
    empty::measure_at(server, load, move || customers.next()).await
}

/// Result of one round of claims.
pub(crate) struct Claims {
    pub(crate) outcome: Outcome,
    /// Number of claims, warm-up included.
    claimed: u64,
    usage: Usage,
    batches: Value,
}

impl Claims {
    pub(crate) fn to_json(&self) -> Value {
        let mut words = empty::to_json(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("claimed_with_warm_up".to_owned(), json!(self.claimed));
            words.insert("average_batches".to_owned(), self.batches.clone());
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.claimed));
        }
        words
    }
}

/// The three pods that handle claims.
pub(crate) struct Mesh {
    inventory: Pod,
    queue: Pod,
    claim: Pod,
}

impl Mesh {
    /// Starts Queue and Claim as neighbors of a running Inventory.
    pub(crate) async fn around(testbed: &Testbed, inventory: Pod) -> anyhow::Result<Self> {
        let inventory_url = inventory.url();
        let queue = Pod::start(testbed, Service::Queue { inventory: &inventory_url }, &[]).await?;
        let queue_url = queue.url();
        let service = Service::Claim { queue: &queue_url, inventory: &inventory_url };
        let claim = Pod::start(testbed, service, &settings()).await?;
        Ok(Self { inventory, queue, claim })
    }

    /// Opens connections to Claim.
    pub(crate) async fn channels(&self, count: usize) -> anyhow::Result<Vec<Channel>> {
        channels(&self.claim.url(), count).await
    }

    fn pods(&self) -> [&Pod; 3] {
        [&self.inventory, &self.queue, &self.claim]
    }

    /// Runs a load of claims. Fails if a call does not return a claim.
    pub(crate) async fn run_for(&self, load: Load, crowd: &Arc<Crowd>) -> anyhow::Result<Claims> {
        let channels = self.channels(load.connections).await?;
        let (before, claimed_before) = (Usage::of(&self.pods())?, crowd.served());
        let outcome = load::run_for(load, |connection| {
            let client = channels.get(connection).map(|channel| ClaimServiceClient::new(channel.clone()));
            let crowd = Arc::clone(crowd);
            move || claim(client.clone(), Arc::clone(&crowd))
        })
        .await?;
        let usage = Usage::of(&self.pods())?.since(&before);
        let mut batches = serde_json::Map::new();
        for pod in self.pods() {
            let averages = pod.metrics().await?.average("batcher_batch_size", "batcher");
            batches.insert(pod.name.to_owned(), json!(averages));
        }
        Ok(Claims { outcome, claimed: crowd.served() - claimed_before, usage, batches: batches.into() })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // Callers stop before the services that they call.
        for pod in [self.claim, self.queue, self.inventory] {
            pod.stop().await?;
        }
        Ok(())
    }
}

/// Settings of Claim that differ from its defaults: a window long enough that no claim expires during the measurement. A large
/// deployment would also give customers time for their bank's own page.
fn settings() -> [(&'static str, String); 1] {
    [("claims.window", "30m".to_owned())]
}

/// Returns the settings of the pods for the report.
pub(crate) fn settings_to_json() -> Value {
    let claim = settings().map(|(key, value)| format!("{key} = {value}"));
    json!({ "inventory": [], "queue": [], "claim": claim, "otherwise": "the services' defaults" })
}

/// Starts an Inventory with events for the load and prepares customers with turns in them.
pub(crate) async fn prepare(testbed: &Testbed, load: Load) -> anyhow::Result<(Pod, HotSectors, Arc<Crowd>)> {
    let inventory = Pod::start(testbed, Service::Inventory, &[]).await?;
    let customers = load.calls_at(CUSTOMERS_PER_SECOND);
    let sectors = Organizer::at(testbed, &inventory).await?.standing(customers).await?;
    let crowd = Crowd::prepare(testbed, sectors.iter(), customers).await?;
    Ok((inventory, sectors, Arc::new(crowd)))
}

async fn measure(testbed: &mut Testbed, load: Load, redis: RedisState) -> anyhow::Result<Claims> {
    testbed.ensure_redis().await?;
    let (inventory, sectors, crowd) = prepare(testbed, load).await?;
    let mesh = Mesh::around(testbed, inventory).await?;
    if redis == RedisState::Down {
        testbed.kill_redis().await?;
    }
    let claims = mesh.run_for(load, &crowd).await?;
    expect_claims(testbed, &sectors.events(), claims.claimed).await?;
    mesh.stop().await?;
    Ok(claims)
}

async fn claim(client: Option<ClaimServiceClient<Channel>>, crowd: Arc<Crowd>) -> Result<(), Status> {
    let mut client = client.ok_or_else(|| Status::internal("no such connection"))?;
    let request = crowd
        .next()
        .ok_or_else(|| Status::resource_exhausted("all prepared customers have claimed: fewer --seconds"))?;
    client.create_claim(request).await.map(drop)
}

/// Fails unless Postgres has exactly `claimed` open claims, each with a hold and its units.
pub(crate) async fn expect_claims(testbed: &Testbed, events: &[Uuid], claimed: u64) -> anyhow::Result<()> {
    let sql = "SELECT count(*), count(hold.hold_id), coalesce(sum(claim.unit_count), 0)::bigint
        FROM claim.claim LEFT JOIN inventory.hold ON hold.hold_id = claim.hold_id AND hold.state = 'HELD'
        WHERE claim.event_id = ANY($1) AND claim.state = 'CLAIMED'";
    let row = testbed.postgres.query_one(sql, &[&events]).await.context("failed to count claims")?;
    let (claims, holds, units): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let expected = i64::try_from(claimed).context("too many claims")?;
    if claims != expected || holds != expected || units != expected.saturating_mul(UNITS.into()) {
        bail!(
            "{claimed} calls returned a claim, but Postgres has {claims} claims with {holds} holds and {units} units"
        );
    }
    Ok(())
}
