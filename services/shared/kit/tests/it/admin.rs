//! The operators' port.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onsale_proto::auth::v1::Role;
use onsale_testkit::wait_until;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{Harness, PATIENCE, echo_request, watch_request};

#[tokio::test]
async fn metrics_count_calls_by_method_and_code() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    client.echo(echo_request("a")).await.expect("fine");
    client.echo(echo_request("limited")).await.expect_err("as told");
    let mut nobody = harness.client(None).await;
    nobody.echo(echo_request("a")).await.expect_err("no token");
    let mut open = client.watch(watch_request(0, Duration::from_secs(60))).await.expect("opens").into_inner();
    open.message().await.expect("the first message");

    let (line, body) = harness.admin("/metrics").await;
    assert!(line.contains("200"), "{line}");
    let labels = "service=\"onsale.testkit.v1.EchoService\",method=\"Echo\"";
    for expected in [
        format!("rpc_server_requests_total{{{labels},code=\"OK\"}}"),
        format!("rpc_server_requests_total{{{labels},code=\"RESOURCE_EXHAUSTED\"}}"),
        format!("rpc_server_requests_total{{{labels},code=\"UNAUTHENTICATED\"}}"),
        format!("rpc_server_duration_seconds_bucket{{{labels},le=\"0.001\"}}"),
        "# HELP rpc_server_requests_total Calls answered, by method and gRPC code.".to_owned(),
        "rpc_server_streams_open 1".to_owned(),
        "rpc_server_connections_open 2".to_owned(),
        "rpc_server_requests_in_flight 0".to_owned(),
    ] {
        assert!(body.contains(&expected), "{expected} in\n{body}");
    }

    // Gone from the list when the stream ends, and counted.
    drop(open);
    let cancelled = "method=\"Watch\",code=\"CANCELLED\"";
    wait_until("the stream is counted out", PATIENCE, || async {
        harness.admin("/metrics").await.1.contains(cancelled)
    })
    .await;
    harness.server.shutdown().await;
}

#[tokio::test]
async fn a_failing_check_takes_the_instance_out_and_says_why_and_a_healed_one_brings_it_back() {
    let harness = Harness::start(&[]).await;
    let (line, body) = harness.admin("/readyz").await;
    assert!(line.contains("200") && body.contains("\"ready\":true"), "{line} {body}");

    let broken = Arc::new(AtomicBool::new(true));
    let check = Arc::clone(&broken);
    harness.server.readiness().add_check("postgres", move || {
        let broken = check.load(Ordering::SeqCst);
        async move { if broken { Err("no connection".into()) } else { Ok(()) } }
    });
    harness.server.readiness().add_check("redis", std::future::pending);
    wait_until("readiness follows", PATIENCE, || async { harness.admin("/readyz").await.0.contains("503") })
        .await;
    let (_, body) = harness.admin("/readyz").await;
    assert!(
        body.contains("\"postgres\":\"no connection\"") && body.contains("\"redis\":\"no answer"),
        "{body}"
    );

    let health = HealthClient::new(harness.channel().await);
    let serving = |expected: ServingStatus| {
        let mut health = health.clone();
        async move {
            let request = HealthCheckRequest { service: String::new() };
            health.check(request).await.is_ok_and(|answer| answer.into_inner().status() == expected)
        }
    };
    wait_until("health follows", PATIENCE, || serving(ServingStatus::NotServing)).await;
    harness.server.shutdown().await;

    let harness = Harness::start(&[]).await;
    let check = Arc::clone(&broken);
    harness.server.readiness().add_check("postgres", move || {
        let broken = check.load(Ordering::SeqCst);
        async move { if broken { Err("no connection".into()) } else { Ok(()) } }
    });
    wait_until("readiness follows", PATIENCE, || async { harness.admin("/readyz").await.0.contains("503") })
        .await;
    broken.store(false, Ordering::SeqCst);
    wait_until("readiness heals", PATIENCE, || async { harness.admin("/readyz").await.0.contains("200") })
        .await;
    harness.server.shutdown().await;
}

#[tokio::test]
async fn there_is_nothing_else_on_the_admin_port() {
    let harness = Harness::start(&[]).await;
    let (line, _) = harness.admin("/").await;
    assert!(line.contains("404"), "{line}");
    let token = harness.mint.token(Role::Customer);
    let (_, metrics) = harness.admin("/metrics").await;
    assert!(!metrics.contains(&token));
    harness.server.shutdown().await;
}
