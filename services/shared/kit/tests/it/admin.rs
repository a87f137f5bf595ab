//! The operators' port.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onsale_kit::server::{Chassis, Handler, RequestBody};
use onsale_proto::auth::v1::Role;
use onsale_testkit::{tokens::TestIssuer, wait_until};
use onsale_types::SystemClock;
use tonic::codegen::BoxFuture;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{
    Harness, RawChannel, TIMEOUT, background, config, echo_request, http_get, watch_request,
};

#[tokio::test]
async fn metrics_count_calls_by_method_and_code() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    client.echo(echo_request("a")).await.expect("the call succeeds");
    client.echo(echo_request("limited")).await.expect_err("requested by the test");
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
        "# HELP rpc_server_requests_total Finished calls, by method and gRPC code.".to_owned(),
    ] {
        assert!(body.contains(&expected), "{expected} in\n{body}");
    }
    // The servers of all tests share the gauges, so another test's values may be read in between.
    for gauge in
        ["rpc_server_streams_open 1", "rpc_server_connections_open 2", "rpc_server_requests_in_flight 0"]
    {
        wait_until(gauge, TIMEOUT, || async { harness.admin("/metrics").await.1.contains(gauge) }).await;
    }

    // The ended stream leaves the gauge and is counted.
    drop(open);
    let cancelled = "method=\"Watch\",code=\"CANCELLED\"";
    wait_until("the stream is counted out", TIMEOUT, || async {
        harness.admin("/metrics").await.1.contains(cancelled)
    })
    .await;
    harness.server.shutdown().await;
}

/// Never responds, and notifies the test when a call arrives.
struct Endless(Arc<AtomicBool>);

impl Handler for Endless {
    fn call(
        &self,
        _: http::Request<RequestBody>,
    ) -> BoxFuture<http::Response<tonic::body::Body>, Infallible> {
        self.0.store(true, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn call_whose_caller_gave_up_is_counted() {
    let (issuer, is_reached) = (TestIssuer::new(), Arc::new(AtomicBool::new(false)));
    let mut chassis =
        Chassis::new("any", config(&issuer, &[]), Arc::new(SystemClock)).expect("good settings");
    // The metrics belong to the process, so use a method that no other test cancels.
    chassis.add_handler("onsale.claim.v1.ClaimService", Endless(Arc::clone(&is_reached)));
    let server = chassis.start().await.expect("the server starts");
    let mut raw = RawChannel::connect(server.address()).await;
    let request = http::Request::post("/onsale.claim.v1.ClaimService/GetClaim")
        .header("content-type", "application/grpc")
        .header("authorization", format!("Bearer {}", issuer.token(Role::Customer)))
        .body(tonic::body::Body::empty())
        .expect("a request");
    let call = background(tower::Service::call(&mut raw, request));
    wait_until("the handler runs", TIMEOUT, || async { is_reached.load(Ordering::SeqCst) }).await;
    call.abort();
    let counted = "method=\"GetClaim\",code=\"CANCELLED\"} 1";
    wait_until("the call is counted", TIMEOUT, || async {
        http_get(server.admin_address(), "/metrics").await.1.contains(counted)
    })
    .await;
    drop(raw);
    server.shutdown().await;
}

#[tokio::test]
async fn readyz_follows_a_check_that_fails_and_recovers() {
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
    wait_until("readiness follows", TIMEOUT, || async { harness.admin("/readyz").await.0.contains("503") })
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
    wait_until("health follows", TIMEOUT, || serving(ServingStatus::NotServing)).await;
    harness.server.shutdown().await;

    let harness = Harness::start(&[]).await;
    let check = Arc::clone(&broken);
    harness.server.readiness().add_check("postgres", move || {
        let broken = check.load(Ordering::SeqCst);
        async move { if broken { Err("no connection".into()) } else { Ok(()) } }
    });
    wait_until("readiness follows", TIMEOUT, || async { harness.admin("/readyz").await.0.contains("503") })
        .await;
    broken.store(false, Ordering::SeqCst);
    wait_until("readiness heals", TIMEOUT, || async { harness.admin("/readyz").await.0.contains("200") })
        .await;
    harness.server.shutdown().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let harness = Harness::start(&[]).await;
    let (line, _) = harness.admin("/").await;
    assert!(line.contains("404"), "{line}");
    let token = harness.issuer.token(Role::Customer);
    let (_, metrics) = harness.admin("/metrics").await;
    assert!(!metrics.contains(&token));
    harness.server.shutdown().await;
}
