//! The `empty` benchmark: empty calls per second through the chassis. Most other benchmarks use them as their limit.

use std::time::Duration;

use onsale_testkit::echo::v1::{EmptyRequest, echo_service_client::EchoServiceClient};
use serde_json::json;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
};

use crate::{
    load::{self, Load, Outcome},
    pod::channels,
    report::{Report, Round},
    server::{ServerProcess, ServerStack},
};

const ROUNDS: usize = 3;
pub(super) const CONNECTIONS: usize = 16;
pub(super) const CALLERS_PER_CONNECTION: usize = 64;
pub(super) const WARM_UP: Duration = Duration::from_secs(1);

/// Measures the chassis and bare tonic in alternating rounds, each in a fresh process.
pub(crate) async fn run(measured: Duration) -> anyhow::Result<Report> {
    let load = Load {
        connections: CONNECTIONS,
        callers_per_connection: CALLERS_PER_CONNECTION,
        measured,
        warm_up: WARM_UP,
    };
    let mut rounds = Vec::new();
    let mut detail = Vec::new();
    for round in 0..ROUNDS {
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let order = if round % 2 == 0 {
            [ServerStack::Kit, ServerStack::Bare]
        } else {
            [ServerStack::Bare, ServerStack::Kit]
        };
        let first = measure(order[0], load).await?;
        let second = measure(order[1], load).await?;
        let (kit, bare) = if order[0] == ServerStack::Kit { (first, second) } else { (second, first) };
        rounds.push(Round { value: kit.calls_per_second, limit: bare.calls_per_second });
        detail.push(json!({ "kit": to_json(&kit), "bare": to_json(&bare) }));
    }
    let detail = json!({
        "connections": CONNECTIONS,
        "callers": CONNECTIONS * CALLERS_PER_CONNECTION,
        "layers": ["access", "deadline", "limits", "tracing", "metrics"],
        "rounds": detail,
    });
    Ok(Report::new("empty", "calls/s", "the same call served by bare tonic", &rounds, detail))
}

/// Measures one server stack in a fresh process.
pub(super) async fn measure(through: ServerStack, load: Load) -> anyhow::Result<Outcome> {
    let server = ServerProcess::start(through, None).await?;
    let authorization: MetadataValue<Ascii> = server.authorization.parse()?;
    measure_at(server, load, move || Ok(authorization.clone())).await
}

/// Measures a server and stops it. `authorization` returns the header of each call.
pub(super) async fn measure_at<A>(
    server: ServerProcess,
    load: Load,
    authorization: A,
) -> anyhow::Result<Outcome>
where
    A: Fn() -> Result<MetadataValue<Ascii>, Status> + Clone + Send + 'static,
{
    let channels = channels(&format!("http://{}", server.address), load.connections).await?;
    let outcome = load::run_for(load, |connection| {
        let client = channels.get(connection).map(|channel| EchoServiceClient::new(channel.clone()));
        let authorization = authorization.clone();
        move || {
            let (client, authorization) = (client.clone(), authorization.clone());
            async move {
                let mut client = client.ok_or_else(|| Status::internal("no such connection"))?;
                let mut request = Request::new(EmptyRequest {});
                request.metadata_mut().insert("authorization", authorization()?);
                client.empty(request).await.map(drop)
            }
        }
    })
    .await?;
    server.stop().await?;
    Ok(outcome)
}

pub(super) fn to_json(outcome: &Outcome) -> serde_json::Value {
    json!({
        "calls_per_second": outcome.calls_per_second.round(),
        "p50_micros": outcome.p50.as_micros(),
        "p99_micros": outcome.p99.as_micros(),
    })
}
