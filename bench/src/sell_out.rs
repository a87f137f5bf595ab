//! The `sell-out` benchmark: response times of a crowd that wants the last units, whether a customer gets units or not. Limit:
//! response times of claims under the same load while units are plenty.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale::retry;
use onsale_kit::error::Reason;
use onsale_proto::{claim::v1::claim_service_client::ClaimServiceClient, inventory::v1::ErrorReason};
use serde_json::{Value, json};
use tonic::{Status, transport::Channel};

use crate::{
    claim::{self, Mesh, expect_claims, prepare},
    crowd::Crowd,
    empty, kernel,
    load::{self, Load, percentile},
    pod::channels,
    report::{Report, Round, millis},
    reserve::claim_tokens,
    sale::{HotSector, Organizer, ReserveClient, UNITS},
    testbed::Testbed,
};

const ROUNDS: usize = 3;
const CUSTOMERS: u64 = 10_000;
/// Units of the event, and how many of them are left when the crowd arrives.
const CAPACITY: u32 = 100_000;
const LEFT: u32 = 100;

/// Result of one customer's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Claimed,
    SoldOut,
}

/// Response times and results of a sell-out.
struct SellOut {
    p50: Duration,
    p99: Duration,
    longest: Duration,
    claimed: u64,
    sold_out: u64,
}

/// Measures sell-out and claims in rounds, each with fresh pods.
pub(crate) async fn run(callers: usize, measured: Duration) -> anyhow::Result<Report> {
    let load = claim::load(callers, measured);
    let testbed = Testbed::start().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (sell_out, claims) = Box::pin(measure(&testbed, load, round % 2 == 0)).await?;
        rounds.push(Round { value: millis(sell_out.p99), limit: millis(claims.outcome.p99) });
        detail.push(json!({ "sell_out": sell_out.to_json(), "claim": claims.to_json() }));
    }
    let detail = json!({
        "customers": CUSTOMERS,
        "units_left": LEFT,
        "units_of_the_event": CAPACITY,
        "units_each": UNITS,
        "in_flight": load.callers(),
        "connections": load.connections,
        "durable": "fsync and synchronous_commit on",
        "settings": claim::settings_to_json(),
        "machine": kernel::machine(),
        "rounds": detail,
    });
    Ok(Report::new(
        "sell-out",
        "ms until 99 of 100 are answered",
        "the same for claims while there is plenty: same pods, same callers",
        &rounds,
        detail,
    ))
}

impl SellOut {
    fn to_json(&self) -> Value {
        json!({
            "p50_micros": self.p50.as_micros(),
            "p99_micros": self.p99.as_micros(),
            "longest_micros": self.longest.as_micros(),
            "claimed": self.claimed,
            "not_enough_units": self.sold_out,
        })
    }
}

/// Measures both on the same pods after a warm-up, the sell-out first if `first` is true.
async fn measure(testbed: &Testbed, load: Load, first: bool) -> anyhow::Result<(SellOut, claim::Claims)> {
    let warm_up = Load { measured: empty::WARM_UP, ..load };
    let all = Load { warm_up: load.warm_up + warm_up.measured + warm_up.warm_up, ..load };
    let (inventory, _sectors, plenty) = prepare(testbed, all).await?;
    let sector = Organizer::at(testbed, &inventory).await?.scarce(CAPACITY).await?;
    let channel = channels(&inventory.url(), 1).await?.into_iter().next().context("no connection")?;
    ReserveClient::new(channel, &claim_tokens(testbed)).fill(&sector, CAPACITY - LEFT).await?;
    let crowd = Arc::new(Crowd::prepare(testbed, std::iter::once(&sector), CUSTOMERS).await?);
    let mesh = Mesh::around(testbed, inventory).await?;
    mesh.run_for(warm_up, &plenty).await?;
    let (sell_out, claims) = if first {
        let sell_out = Box::pin(sell(&mesh, load, &crowd)).await?;
        (sell_out, mesh.run_for(load, &plenty).await?)
    } else {
        let claims = mesh.run_for(load, &plenty).await?;
        (Box::pin(sell(&mesh, load, &crowd)).await?, claims)
    };
    expect_sold(testbed, &sector, &sell_out).await?;
    mesh.stop().await?;
    Ok((sell_out, claims))
}

/// Lets every customer claim, with as many calls in flight as `load` has callers.
async fn sell(mesh: &Mesh, load: Load, crowd: &Arc<Crowd>) -> anyhow::Result<SellOut> {
    let channels = mesh.channels(load.connections).await?;
    let answers = load::run_until_done(load, |connection| {
        let client = channels.get(connection).map(|channel| ClaimServiceClient::new(channel.clone()));
        let crowd = Arc::clone(crowd);
        move || ask(client.clone(), Arc::clone(&crowd))
    })
    .await?;
    let mut times: Vec<Duration> = answers.iter().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let count = |wanted: Answer| answers.iter().filter(|(_, answer)| *answer == wanted).count();
    Ok(SellOut {
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        longest: percentile(&times, 100),
        claimed: u64::try_from(count(Answer::Claimed))?,
        sold_out: u64::try_from(count(Answer::SoldOut))?,
    })
}

/// Makes one customer's call. Fails on any error but NOT_ENOUGH_UNITS. Returns `None` after the last customer.
async fn ask(
    client: Option<ClaimServiceClient<Channel>>,
    crowd: Arc<Crowd>,
) -> Result<Option<Answer>, Status> {
    let mut client = client.ok_or_else(|| Status::internal("no such connection"))?;
    let Some(request) = crowd.next() else { return Ok(None) };
    match client.create_claim(request).await {
        Ok(_) => Ok(Some(Answer::Claimed)),
        Err(status) if is_sold_out(&status) => Ok(Some(Answer::SoldOut)),
        Err(status) => Err(status),
    }
}

fn is_sold_out(status: &Status) -> bool {
    let reason = Reason::from_proto(ErrorReason::NotEnoughUnits.as_str_name());
    retry::reason(status).as_deref() == Some(reason.as_str())
}

/// Fails unless all units are held, none twice, and every customer got a claim or a refusal.
async fn expect_sold(testbed: &Testbed, sector: &HotSector, sell_out: &SellOut) -> anyhow::Result<()> {
    let expected = u64::from(LEFT / UNITS);
    if sell_out.claimed != expected || sell_out.claimed + sell_out.sold_out != CUSTOMERS {
        bail!(
            "of {CUSTOMERS} customers, {} claimed and {} were refused; expected {expected} claims",
            sell_out.claimed,
            sell_out.sold_out
        );
    }
    expect_claims(testbed, &[sector.event_id], expected).await?;
    let sql = "SELECT count(*) FROM inventory.hold_unit JOIN inventory.hold USING (hold_id)
        WHERE event_id = $1 AND state = 'HELD'";
    let row = testbed.postgres.query_one(sql, &[&sector.event_id]).await.context("failed to count units")?;
    let held: i64 = row.try_get(0)?;
    if held != i64::from(CAPACITY) {
        bail!("{held} units of {CAPACITY} are held");
    }
    Ok(())
}
