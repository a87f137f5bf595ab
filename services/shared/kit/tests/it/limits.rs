//! Limits: excess work is refused immediately, with a typed status.

use std::time::Duration;

use onsale_testkit::{echo::v1, wait_until};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::support::{
    Harness, TIMEOUT, assert_status, background, echo_request, retry_delay, wait_request, watch_request,
};

#[tokio::test]
async fn request_above_the_limit_is_refused() {
    let harness = Harness::start(&[("SERVER__REQUEST_BYTES_MAX", "1000")]).await;
    let mut client = harness.customer().await;
    let status = client.echo(echo_request(&"a".repeat(1_000))).await.expect_err("too large");
    assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    assert_eq!(harness.echo.calls().echo.started(), 0);
    client.echo(echo_request(&"a".repeat(900))).await.expect("small enough");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn request_with_a_false_length_is_refused() {
    // Far above the connection's flow-control window, so that it cannot be read in one piece.
    let harness = Harness::start(&[("SERVER__REQUEST_BYTES_MAX", "100000")]).await;
    let mut client = harness.customer().await;
    let status = client.echo(echo_request(&"a".repeat(3_000_000))).await.expect_err("too large");
    assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn excess_unary_calls_are_shed_but_health_and_streams_are_not() {
    let harness = Harness::start(&[("SERVER__REQUESTS_IN_FLIGHT_MAX", "2")]).await;
    let client = harness.customer().await;
    let slow: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client.clone();
            background(async move { client.wait(wait_request(Duration::from_secs(60))).await })
        })
        .collect();
    wait_until("both slow calls run", TIMEOUT, || async { harness.echo.calls().wait.started() == 2 }).await;

    let mut client = client;
    let status = client.echo(echo_request("one more")).await.expect_err("shed");
    assert_status(&status, Code::ResourceExhausted, "OVERLOADED");
    let delay = retry_delay(&status).expect("a retry delay");
    assert!(!delay.is_zero() && delay <= Duration::from_secs(2), "{delay:?}");
    assert_eq!(harness.echo.calls().echo.started(), 0);

    let mut health = HealthClient::new(harness.channel().await);
    health.check(HealthCheckRequest { service: String::new() }).await.expect("health is never shed");
    let stream =
        client.watch(watch_request(1, Duration::ZERO)).await.expect("streams have permits of their own");
    drop(stream);

    for call in slow {
        call.abort();
    }
    drop(client);
    wait_until("the permits are free again", TIMEOUT, || async {
        harness.echo.calls().wait.cancelled() == 2
    })
    .await;
    let mut client = harness.customer().await;
    client.echo(echo_request("now")).await.expect("there is a place");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn excess_streams_are_shed_until_one_closes() {
    let harness = Harness::start(&[("SERVER__STREAMS_MAX", "1")]).await;
    let mut client = harness.customer().await;
    let mut open =
        client.watch(watch_request(0, Duration::from_secs(60))).await.expect("there is room").into_inner();
    open.message().await.expect("the first message");
    let status = client.watch(watch_request(0, Duration::ZERO)).await.expect_err("there is none");
    assert_status(&status, Code::ResourceExhausted, "OVERLOADED");
    client.echo(echo_request("unary")).await.expect("unary calls have permits of their own");
    drop(open);
    wait_until("the permit is free again", TIMEOUT, || {
        let mut client = client.clone();
        async move { client.watch(watch_request(1, Duration::ZERO)).await.is_ok() }
    })
    .await;
    harness.server.shutdown().await;
}

#[tokio::test]
async fn excess_connections_are_closed() {
    let harness = Harness::start(&[("SERVER__CONNECTIONS_MAX", "1")]).await;
    let mut first = harness.customer().await;
    first.echo(echo_request("a")).await.expect("the first connection is served");
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", harness.server.address()));
    let channel = endpoint.expect("a URI").connect_lazy();
    let mut second = v1::echo_service_client::EchoServiceClient::new(channel);
    second.echo(echo_request("b")).await.expect_err("the second is closed");
    first.echo(echo_request("c")).await.expect("the first is still served");
    harness.server.shutdown().await;
}
