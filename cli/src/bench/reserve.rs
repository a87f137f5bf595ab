//! The `reserve` benchmark: durable reservations in one hot sector by one service, beside an empty call by the same; and
//! beside the designs that were not taken.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use onsale_kit::auth::ServiceTokens;
use onsale_proto::inventory::v1::Sector;
use serde_json::{Map, Value, json};
use tonic::Status;

use super::{
    empty, kernel,
    load::{self, Load, Outcome, percentile},
    pod::{Pod, Service, channels},
    rejected::{self, Rejected},
    report::{Report, Round, median, millis},
    sale::{Organizer, Places, Reserver, UNITS, seated_sector, service_header, standing_sector},
    server::{ServerProcess, Through},
    usage::Usage,
    world::World,
};

const ROUNDS: usize = 3;
/// A service has few connections to another.
const CONNECTIONS: usize = 4;
/// More than anybody can make per second: as many as there are empty calls.
const CALLS_PER_SECOND: u64 = 60_000;
/// Events that are created to see how long that takes, and their size.
const DRAFTS: usize = 10;
const DRAFT_UNITS: u32 = 100_000;
const DRAFT_ROWS: u32 = 1_000;

/// What is sold.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Standing,
    Seated,
}

/// Measures all of them, round by round, ours and the limit each in a fresh process.
pub(crate) async fn run(callers: usize, measured: Duration) -> anyhow::Result<Report> {
    let callers_per_connection = callers.div_ceil(CONNECTIONS);
    let load = Load { connections: CONNECTIONS, callers_per_connection, measured, warm_up: empty::WARM_UP };
    let world = World::start().await?;
    let mut rejected = Box::pin(rejected::prepare(&world, callers)).await?;
    let (mut rounds, mut detail, mut seated) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who goes first alternates, so that a machine that gets slower or faster favours neither.
        let (ours, empty) = if round % 2 == 0 {
            let ours = Box::pin(measure(&world, load, Kind::Standing)).await?;
            (ours, Box::pin(measure_empty(&world, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&world, load)).await?;
            (Box::pin(measure(&world, load, Kind::Standing)).await?, empty)
        };
        for design in &mut rejected {
            Box::pin(design.measure(&world, callers, measured)).await?;
        }
        let seats = Box::pin(measure(&world, load, Kind::Seated)).await?;
        rounds.push(Round { value: ours.outcome.calls_per_second, limit: empty.calls_per_second });
        seated.push(seats.outcome.calls_per_second);
        detail.push(json!({
            "reserve": ours.in_words(),
            "seated": seats.in_words(),
            "empty": empty::in_words(&empty),
        }));
    }
    let created = Box::pin(create_events(&world)).await?;
    let detail = json!({
        "connections": load.connections,
        "callers": load.callers(),
        "units_each": UNITS,
        "durable": "fsync and synchronous_commit on",
        "settings": "the service's defaults",
        "seated_per_second": median(&seated).round(),
        "rejected_designs": in_words(&rejected, &rounds),
        "create_event_of_100000_units": created,
        "machine": kernel::machine(),
        "rounds": detail,
    });
    Ok(Report::new(
        "reserve",
        "reservations/s",
        "an empty call through the kit: same client with a service's token, same concurrency",
        &rounds,
        detail,
    ))
}

fn in_words(rejected: &[Rejected], rounds: &[Round]) -> Value {
    let ours: Vec<f64> = rounds.iter().map(|round| round.value).collect();
    let mut words: Map<String, Value> = rejected.iter().map(|design| design.in_words(&ours)).collect();
    words.insert(
        "in_their_favour".to_owned(),
        json!(
            "one statement straight at postgres per customer; no gRPC, no token, nobody's seat side by side"
        ),
    );
    Value::Object(words)
}

/// The limit: the same service makes empty calls.
async fn measure_empty(world: &World, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(Through::Kit, Some(&world.issuer)).await?;
    let tokens = claim_tokens(world);
    empty::measure_at(server, load, move || service_header(&tokens)).await
}

/// Claim reserves; nobody else does.
pub(crate) fn claim_tokens(world: &World) -> Arc<ServiceTokens> {
    Arc::new(world.issuer.service_tokens("claim"))
}

/// What one round of reservations came to.
struct Reservations {
    outcome: Outcome,
    /// Warm-up included.
    reserved: u64,
    usage: Usage,
    batches: Value,
}

impl Reservations {
    fn in_words(&self) -> Value {
        let mut words = empty::in_words(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("reserved_with_warm_up".to_owned(), json!(self.reserved));
            words.insert("average_batches".to_owned(), self.batches.clone());
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.reserved));
        }
        words
    }
}

async fn measure(world: &World, load: Load, kind: Kind) -> anyhow::Result<Reservations> {
    let pod = Pod::start(world, Service::Inventory, &[]).await?;
    let mut organizer = Organizer::at(world, &pod).await?;
    let calls = load.calls_at(CALLS_PER_SECOND);
    let places = Arc::new(match kind {
        Kind::Standing => organizer.standing(calls).await?,
        Kind::Seated => organizer.seated(calls).await?,
    });
    let tokens = claim_tokens(world);
    let channels = channels(&pod.url(), load.connections).await?;
    let next = Arc::new(AtomicU64::new(0));
    let before = Usage::of(&[&pod])?;
    let outcome = load::put_on(load, |connection| {
        let reserver = channels.get(connection).map(|channel| Reserver::new(channel.clone(), &tokens));
        let (places, next) = (Arc::clone(&places), Arc::clone(&next));
        move || reserve(reserver.clone(), Arc::clone(&places), next.fetch_add(1, Ordering::Relaxed))
    })
    .await?;
    let usage = Usage::of(&[&pod])?.since(&before);
    let reserved = next.load(Ordering::Relaxed);
    expect_holds(world, &places, reserved).await?;
    let batches = json!(pod.metrics().await?.average("batcher_batch_size", "batcher"));
    pod.stop().await?;
    Ok(Reservations { outcome, reserved, usage, batches })
}

async fn reserve(reserver: Option<Reserver>, places: Arc<Places>, number: u64) -> Result<(), Status> {
    let reserver = reserver.ok_or_else(|| Status::internal("no such connection"))?;
    reserver.reserve(places.at(number)?, UNITS).await
}

/// Every answer must be a hold that Postgres keeps, with its units.
async fn expect_holds(world: &World, places: &Places, reserved: u64) -> anyhow::Result<()> {
    let sql = "SELECT (SELECT count(*) FROM inventory.hold WHERE event_id = ANY($1)),
        (SELECT count(*) FROM inventory.hold_unit JOIN inventory.sector USING (sector_id) WHERE event_id = ANY($1))";
    let row = world.postgres.query_one(sql, &[&places.events()]).await.context("failed to count holds")?;
    let (holds, units): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let expected = i64::try_from(reserved).context("too many holds")?;
    if holds != expected || units != expected.saturating_mul(UNITS.into()) {
        bail!("{reserved} were reserved, but there are {holds} holds with {units} units");
    }
    Ok(())
}

/// How long `CreateEvent` takes.
async fn create_events(world: &World) -> anyhow::Result<Value> {
    let pod = Pod::start(world, Service::Inventory, &[]).await?;
    let mut organizer = Organizer::at(world, &pod).await?;
    let standing = vec![standing_sector(DRAFT_UNITS)];
    let seated = vec![seated_sector("Stand", DRAFT_ROWS)];
    let words = json!({
        "standing": create_drafts(&mut organizer, &standing).await?,
        "seated": create_drafts(&mut organizer, &seated).await?,
    });
    pod.stop().await?;
    Ok(words)
}

async fn create_drafts(organizer: &mut Organizer, sectors: &[Sector]) -> anyhow::Result<Value> {
    let mut times = Vec::new();
    for _ in 0..DRAFTS {
        let begun = Instant::now();
        organizer.draft(sectors.to_vec()).await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(json!({ "p50_ms": millis(percentile(&times, 50)), "longest_ms": millis(percentile(&times, 100)) }))
}
