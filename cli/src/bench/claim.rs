//! The `claim` benchmark: durable claims per second, each by another customer with a turn, through the three services that
//! they take; beside an empty call by the same customers, divided by its hops.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::claim::v1::claim_service_client::ClaimServiceClient;
use serde_json::{Value, json};
use tonic::{Status, transport::Channel};
use uuid::Uuid;

use super::{
    crowd::Crowd,
    customers::{Customers, buyer},
    empty, kernel,
    load::{self, Load, Outcome},
    pod::{Pod, Service, channels},
    report::{Report, Round, ratio},
    sale::{Organizer, Places, UNITS},
    server::{ServerProcess, Through},
    usage::Usage,
    world::World,
};

const ROUNDS: usize = 3;
/// Claim, then Queue about the turn, then Inventory about the units.
const HOPS: f64 = 3.0;
/// Customers with a turn, per second of load: more than a third of the empty calls.
const CUSTOMERS_PER_SECOND: u64 = 8_000;

/// Whether Redis is there while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redis {
    There,
    /// All nodes are killed after the pods have started, before the first call.
    Down,
}

/// Callers on as many connections as the empty call has.
pub(crate) fn load(callers: usize, measured: Duration) -> Load {
    Load {
        connections: empty::CONNECTIONS,
        callers_per_connection: callers.div_ceil(empty::CONNECTIONS),
        measured,
        warm_up: empty::WARM_UP,
    }
}

/// Measures both, round by round, each in fresh processes.
pub(crate) async fn run(callers: usize, measured: Duration, redis: Redis) -> anyhow::Result<Report> {
    let load = load(callers, measured);
    let mut world = World::start().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who goes first alternates, so that a machine that gets slower or faster favours neither.
        let (claims, empty) = if round % 2 == 0 {
            let claims = Box::pin(measure(&mut world, load, redis)).await?;
            (claims, Box::pin(measure_empty(&world, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&world, load)).await?;
            (Box::pin(measure(&mut world, load, redis)).await?, empty)
        };
        let limit = ratio(empty.calls_per_second, HOPS);
        rounds.push(Round { value: claims.outcome.calls_per_second, limit });
        detail.push(json!({ "claim": claims.in_words(), "empty": empty::in_words(&empty) }));
    }
    let detail = json!({
        "connections": load.connections,
        "callers": load.callers(),
        "units_each": UNITS,
        "durable": "fsync and synchronous_commit on",
        "redis": match redis {
            Redis::There => "three masters, three replicas",
            Redis::Down => "all nodes killed after the pods had started, before the first call",
        },
        "settings": settings_in_words(),
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

/// The limit: the same customers make an empty call each.
async fn measure_empty(world: &World, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(Through::Kit, Some(&world.issuer)).await?;
    let customers = Arc::new(Customers::with_tokens(&world.issuer, Uuid::now_v7(), load, buyer).await?);
    empty::measure_at(server, load, move || customers.next()).await
}

/// What a round of claims came to.
pub(crate) struct Claims {
    pub(crate) outcome: Outcome,
    /// Warm-up included.
    claimed: u64,
    usage: Usage,
    batches: Value,
}

impl Claims {
    pub(crate) fn in_words(&self) -> Value {
        let mut words = empty::in_words(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("claimed_with_warm_up".to_owned(), json!(self.claimed));
            words.insert("average_batches".to_owned(), self.batches.clone());
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.claimed));
        }
        words
    }
}

/// The pods that a claim takes.
pub(crate) struct Mesh {
    inventory: Pod,
    queue: Pod,
    claim: Pod,
}

impl Mesh {
    /// Starts Queue and Claim beside an Inventory.
    pub(crate) async fn around(world: &World, inventory: Pod) -> anyhow::Result<Self> {
        let inventory_url = inventory.url();
        let queue = Pod::start(world, Service::Queue { inventory: &inventory_url }, &[]).await?;
        let queue_url = queue.url();
        let service = Service::Claim { queue: &queue_url, inventory: &inventory_url };
        let claim = Pod::start(world, service, &settings()).await?;
        Ok(Self { inventory, queue, claim })
    }

    /// Connections to Claim.
    pub(crate) async fn channels(&self, count: usize) -> anyhow::Result<Vec<Channel>> {
        channels(&self.claim.url(), count).await
    }

    fn pods(&self) -> [&Pod; 3] {
        [&self.inventory, &self.queue, &self.claim]
    }

    /// Puts a load of claims on; every answer must be a claim.
    pub(crate) async fn put_on(&self, load: Load, crowd: &Arc<Crowd>) -> anyhow::Result<Claims> {
        let channels = self.channels(load.connections).await?;
        let (before, claimed_before) = (Usage::of(&self.pods())?, crowd.served());
        let outcome = load::put_on(load, |connection| {
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

    /// Ends all of them.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // Who calls before who is called.
        for pod in [self.claim, self.queue, self.inventory] {
            pod.stop().await?;
        }
        Ok(())
    }
}

/// What a large deployment would set too: as long to pay as the card and the bank's own page take together, so that nothing
/// expires while it is measured.
fn settings() -> [(&'static str, String); 1] {
    [("claims.window", "30m".to_owned())]
}

/// The settings of the pods, for who reads the figures.
pub(crate) fn settings_in_words() -> Value {
    let claim = settings().map(|(key, value)| format!("{key} = {value}"));
    json!({ "inventory": [], "queue": [], "claim": claim, "otherwise": "the services' defaults" })
}

/// An Inventory with an event for the load, and customers with a turn in it.
pub(crate) async fn prepare(world: &World, load: Load) -> anyhow::Result<(Pod, Places, Arc<Crowd>)> {
    let inventory = Pod::start(world, Service::Inventory, &[]).await?;
    let customers = load.calls_at(CUSTOMERS_PER_SECOND);
    let places = Organizer::at(world, &inventory).await?.standing(customers).await?;
    let crowd = Crowd::gather(world, places.iter(), customers).await?;
    Ok((inventory, places, Arc::new(crowd)))
}

async fn measure(world: &mut World, load: Load, redis: Redis) -> anyhow::Result<Claims> {
    world.have_redis().await?;
    let (inventory, places, crowd) = prepare(world, load).await?;
    let mesh = Mesh::around(world, inventory).await?;
    if redis == Redis::Down {
        world.lose_redis().await?;
    }
    let claims = mesh.put_on(load, &crowd).await?;
    expect_claims(world, &places.events(), claims.claimed).await?;
    mesh.stop().await?;
    Ok(claims)
}

async fn claim(client: Option<ClaimServiceClient<Channel>>, crowd: Arc<Crowd>) -> Result<(), Status> {
    let mut client = client.ok_or_else(|| Status::internal("no such connection"))?;
    let request = crowd.next().ok_or_else(|| Status::resource_exhausted("everybody prepared has claimed"))?;
    client.create_claim(request).await.map(drop)
}

/// Every answer must be a claim that Postgres keeps, with units that Inventory keeps for it.
pub(crate) async fn expect_claims(world: &World, events: &[Uuid], claimed: u64) -> anyhow::Result<()> {
    let sql = "SELECT count(*), count(hold.hold_id), coalesce(sum(claim.unit_count), 0)::bigint
        FROM claim.claim LEFT JOIN inventory.hold ON hold.hold_id = claim.hold_id AND hold.state = 'HELD'
        WHERE claim.event_id = ANY($1) AND claim.state = 'CLAIMED'";
    let row = world.postgres.query_one(sql, &[&events]).await.context("failed to count claims")?;
    let (claims, holds, units): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let expected = i64::try_from(claimed).context("too many claims")?;
    if claims != expected || holds != expected || units != expected.saturating_mul(UNITS.into()) {
        bail!("{claimed} were claimed, but there are {claims} claims with {holds} holds and {units} units");
    }
    Ok(())
}
