//! Stopping: calls finish, streams end so that clients come back elsewhere, and it never takes longer than allowed.

use std::time::{Duration, Instant};

use onsale_testkit::wait_until;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{
    Harness, PATIENCE, assert_status, background, echo_request, http_get, retry_delay, wait_request,
    watch_request,
};

#[tokio::test]
async fn a_call_under_way_finishes_and_no_new_one_comes_in() {
    let harness = Harness::start(&[]).await;
    let client = harness.customer().await;
    let mut slow = client.clone();
    let call = background(async move { slow.wait(wait_request(Duration::from_millis(500))).await });
    wait_until("the call runs", PATIENCE, || async { harness.echo.calls().wait.started() == 1 }).await;

    let (address, echo) = (harness.server.address(), harness.echo.clone());
    let shutdown = background(harness.server.shutdown());
    wait_until("the port is closed", PATIENCE, || async {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    let mut late = client.clone();
    late.echo(echo_request("late")).await.expect_err("no new calls");
    assert_eq!(echo.calls().echo.started(), 0);

    call.await.expect("no panic").expect("the call under way finishes");
    assert!(shutdown.await.expect("no panic").is_clean());
}

#[tokio::test]
async fn streams_end_with_a_retryable_status_at_spread_times() {
    let harness = Harness::start(&[("SERVER__DRAIN__RETRY_AFTER_MAX", "3s")]).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut client = harness.customer().await;
        let mut stream = client
            .watch(watch_request(0, Duration::from_secs(60)))
            .await
            .expect("the stream opens")
            .into_inner();
        stream.message().await.expect("the first message");
        streams.push(stream);
    }
    // One that always has more to say must end too.
    let mut client = harness.customer().await;
    let mut busy =
        client.watch(watch_request(0, Duration::ZERO)).await.expect("the stream opens").into_inner();
    busy.message().await.expect("the first message");

    let begin = Instant::now();
    let shutdown = background(harness.server.shutdown());
    let mut delays = Vec::new();
    for stream in &mut streams {
        let status = stream.message().await.expect_err("the stream ends");
        assert_status(&status, Code::Unavailable, "DRAINING");
        delays.push(retry_delay(&status).expect("says when to come back"));
    }
    let status = loop {
        match busy.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => break status,
            None => panic!("the stream ended without a status"),
        }
    };
    assert_status(&status, Code::Unavailable, "DRAINING");
    assert!(delays.iter().all(|delay| !delay.is_zero() && *delay <= Duration::from_secs(3)), "{delays:?}");
    delays.dedup();
    assert!(delays.len() > 10, "the delays are spread: {delays:?}");
    assert!(shutdown.await.expect("no panic").is_clean());
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_handler_that_hangs_does_not_hold_up_the_stop() {
    let harness = Harness::start(&[("SERVER__DRAIN__TOTAL", "500ms")]).await;
    let mut client = harness.customer().await;
    let call = background(async move { client.wait(wait_request(Duration::from_secs(3600))).await });
    wait_until("the call runs", PATIENCE, || async { harness.echo.calls().wait.started() == 1 }).await;
    let echo = harness.echo.clone();
    let begin = Instant::now();
    let drained = harness.server.shutdown().await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(drained.connections_cut, 1);
    assert!(!drained.is_clean());
    call.await.expect("no panic").expect_err("the call was cut");
    wait_until("the handler is cancelled", PATIENCE, || async { echo.calls().wait.cancelled() == 1 }).await;
}

#[tokio::test]
async fn a_task_that_does_not_listen_does_not_hold_up_the_stop() {
    let harness = Harness::start(&[("SERVER__DRAIN__TOTAL", "300ms")]).await;
    harness.server.tasks().spawn("deaf", std::future::pending());
    let begin = Instant::now();
    let drained = harness.server.shutdown().await;
    assert_eq!(drained.tasks_aborted, ["deaf"]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn before_anything_is_refused_health_says_not_serving() {
    let harness = Harness::start(&[("SERVER__DRAIN__LAME_DUCK", "600ms")]).await;
    let mut client = harness.customer().await;
    let mut health = HealthClient::new(harness.channel().await);
    let admin = harness.server.admin_address();
    let status = |mut health: HealthClient<tonic::transport::Channel>| async move {
        let request = HealthCheckRequest { service: "onsale.testkit.v1.EchoService".to_owned() };
        health.check(request).await.expect("health answers").into_inner().status()
    };
    assert_eq!(status(health.clone()).await, ServingStatus::Serving);
    let request = HealthCheckRequest { service: String::new() };
    let mut watched = health.watch(request).await.expect("health can be watched").into_inner();
    assert_eq!(
        watched.message().await.expect("a message").expect("a message").status(),
        ServingStatus::Serving
    );

    let shutdown = background(harness.server.shutdown());
    assert_eq!(
        watched.message().await.expect("a message").expect("a message").status(),
        ServingStatus::NotServing
    );
    assert_eq!(status(health.clone()).await, ServingStatus::NotServing);
    let (line, body) = http_get(admin, "/readyz").await;
    assert!(line.contains("503") && body.contains("the service is stopping"), "{line} {body}");
    let (line, _) = http_get(admin, "/livez").await;
    assert!(line.contains("200"), "a stopping process is not a dead one: {line}");
    client.echo(echo_request("lame duck")).await.expect("calls are still answered");
    assert!(shutdown.await.expect("no panic").is_clean());
}

#[tokio::test]
async fn an_old_connection_ends_its_streams_and_the_server_lives_on() {
    let settings = [("SERVER__CONNECTION_AGE_MAX", "200ms"), ("SERVER__CONNECTION_AGE_GRACE", "200ms")];
    let harness = Harness::start(&settings).await;
    let mut client = harness.customer().await;
    let begin = Instant::now();
    let mut stream =
        client.watch(watch_request(0, Duration::from_secs(60))).await.expect("the stream opens").into_inner();
    stream.message().await.expect("the first message");
    let status = stream.message().await.expect_err("the connection is old");
    assert_status(&status, Code::Unavailable, "DRAINING");
    assert!(
        begin.elapsed() >= Duration::from_millis(350) && begin.elapsed() < PATIENCE,
        "{:?}",
        begin.elapsed()
    );
    client.echo(echo_request("again")).await.expect("a new connection is served");
    assert!(harness.server.shutdown().await.is_clean());
}
