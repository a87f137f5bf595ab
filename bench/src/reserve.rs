//! The `reserve` benchmark: durable reservations per second in one hot sector, called by one service. Limit: empty calls by one
//! service. Two rejected designs are measured for comparison.

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

use crate::{
    empty, kernel,
    load::{self, Load, Outcome, percentile},
    pod::{Pod, Service, channels},
    rejected::{self, Rejected},
    report::{Report, Round, median, millis},
    sale::{HotSectors, Organizer, ReserveClient, UNITS, seated_sector, service_header, standing_sector},
    server::{ServerProcess, ServerStack},
    testbed::Testbed,
    usage::Usage,
};

const ROUNDS: usize = 3;
/// Connections of the calling service.
const CONNECTIONS: usize = 4;
/// Calls that the stock suffices for, per second of load: about the rate of empty calls, which reservations cannot reach.
const CALLS_PER_SECOND: u64 = 60_000;
/// Number and size of the events whose creation is timed.
const DRAFTS: usize = 10;
const DRAFT_UNITS: u32 = 100_000;
const DRAFT_ROWS: u32 = 1_000;

/// Kind of the sectors on sale.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Standing,
    Seated,
}

/// Measures reservations, the limit, the rejected designs and seats in rounds, services each in a fresh process.
pub(crate) async fn run(callers: usize, measured: Duration) -> anyhow::Result<Report> {
    let callers_per_connection = callers.div_ceil(CONNECTIONS);
    let load = Load { connections: CONNECTIONS, callers_per_connection, measured, warm_up: empty::WARM_UP };
    let testbed = Testbed::start().await?;
    let mut rejected = Box::pin(rejected::prepare(&testbed, callers)).await?;
    let (mut rounds, mut detail, mut seated) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let (ours, empty) = if round % 2 == 0 {
            let ours = Box::pin(measure(&testbed, load, Kind::Standing)).await?;
            (ours, Box::pin(measure_empty(&testbed, load)).await?)
        } else {
            let empty = Box::pin(measure_empty(&testbed, load)).await?;
            (Box::pin(measure(&testbed, load, Kind::Standing)).await?, empty)
        };
        for design in &mut rejected {
            Box::pin(design.measure(&testbed, callers, measured)).await?;
        }
        let seats = Box::pin(measure(&testbed, load, Kind::Seated)).await?;
        rounds.push(Round { value: ours.outcome.calls_per_second, limit: empty.calls_per_second });
        seated.push(seats.outcome.calls_per_second);
        detail.push(json!({
            "reserve": ours.to_json(),
            "seated": seats.to_json(),
            "empty": empty::to_json(&empty),
        }));
    }
    let created = Box::pin(create_events(&testbed)).await?;
    let detail = json!({
        "connections": load.connections,
        "callers": load.callers(),
        "units_each": UNITS,
        "durable": "fsync and synchronous_commit on",
        "settings": "the service's defaults",
        "seated_per_second": median(&seated).round(),
        "rejected_designs": to_json(&rejected, &rounds),
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

fn to_json(rejected: &[Rejected], rounds: &[Round]) -> Value {
    let ours: Vec<f64> = rounds.iter().map(|round| round.value).collect();
    let mut words: Map<String, Value> = rejected.iter().map(|design| design.to_json(&ours)).collect();
    words.insert(
        "in_their_favour".to_owned(),
        json!(
            "one statement straight at postgres per customer; no gRPC, no token, nobody's seat side by side"
        ),
    );
    Value::Object(words)
}

/// Measures the limit: empty calls by one service.
async fn measure_empty(testbed: &Testbed, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(ServerStack::Kit, Some(&testbed.issuer)).await?;
    let tokens = claim_tokens(testbed);
    empty::measure_at(server, load, move || service_header(&tokens)).await
}

/// Returns the token source of Claim, the only service that may reserve.
pub(crate) fn claim_tokens(testbed: &Testbed) -> Arc<ServiceTokens> {
    Arc::new(testbed.issuer.service_tokens("claim"))
}

/// Result of one round of reservations.
struct Reservations {
    outcome: Outcome,
    /// Number of reservations, warm-up included.
    reserved: u64,
    usage: Usage,
    batches: Value,
}

impl Reservations {
    fn to_json(&self) -> Value {
        let mut words = empty::to_json(&self.outcome);
        if let Some(words) = words.as_object_mut() {
            words.insert("reserved_with_warm_up".to_owned(), json!(self.reserved));
            words.insert("average_batches".to_owned(), self.batches.clone());
            words.insert("processor_seconds_per_thousand".to_owned(), self.usage.per_thousand(self.reserved));
        }
        words
    }
}

async fn measure(testbed: &Testbed, load: Load, kind: Kind) -> anyhow::Result<Reservations> {
    let pod = Pod::start(testbed, Service::Inventory, &[]).await?;
    let mut organizer = Organizer::at(testbed, &pod).await?;
    let calls = load.calls_at(CALLS_PER_SECOND);
    let sectors = Arc::new(match kind {
        Kind::Standing => organizer.standing(calls).await?,
        Kind::Seated => organizer.seated(calls).await?,
    });
    let tokens = claim_tokens(testbed);
    let channels = channels(&pod.url(), load.connections).await?;
    let next = Arc::new(AtomicU64::new(0));
    let before = Usage::of(&[&pod])?;
    let outcome = load::run_for(load, |connection| {
        let client = channels.get(connection).map(|channel| ReserveClient::new(channel.clone(), &tokens));
        let (sectors, next) = (Arc::clone(&sectors), Arc::clone(&next));
        move || reserve(client.clone(), Arc::clone(&sectors), next.fetch_add(1, Ordering::Relaxed))
    })
    .await?;
    let usage = Usage::of(&[&pod])?.since(&before);
    let reserved = next.load(Ordering::Relaxed);
    expect_holds(testbed, &sectors, reserved).await?;
    let batches = json!(pod.metrics().await?.average("batcher_batch_size", "batcher"));
    pod.stop().await?;
    Ok(Reservations { outcome, reserved, usage, batches })
}

async fn reserve(client: Option<ReserveClient>, sectors: Arc<HotSectors>, number: u64) -> Result<(), Status> {
    let client = client.ok_or_else(|| Status::internal("no such connection"))?;
    client.reserve(sectors.at(number)?, UNITS).await
}

/// Fails unless Postgres has exactly `reserved` holds with their units.
async fn expect_holds(testbed: &Testbed, sectors: &HotSectors, reserved: u64) -> anyhow::Result<()> {
    let sql = "SELECT (SELECT count(*) FROM inventory.hold WHERE event_id = ANY($1)),
        (SELECT count(*) FROM inventory.hold_unit JOIN inventory.sector USING (sector_id) WHERE event_id = ANY($1))";
    let row = testbed.postgres.query_one(sql, &[&sectors.events()]).await.context("failed to count holds")?;
    let (holds, units): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let expected = i64::try_from(reserved).context("too many holds")?;
    if holds != expected || units != expected.saturating_mul(UNITS.into()) {
        bail!("{reserved} calls returned a hold, but Postgres has {holds} holds with {units} units");
    }
    Ok(())
}

/// Measures the time of `CreateEvent` for a standing and a seated event of 100,000 units.
async fn create_events(testbed: &Testbed) -> anyhow::Result<Value> {
    let pod = Pod::start(testbed, Service::Inventory, &[]).await?;
    let mut organizer = Organizer::at(testbed, &pod).await?;
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
