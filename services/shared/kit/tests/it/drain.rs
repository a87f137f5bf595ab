//! Drain: running calls finish, streams end with a retryable status, and the time limit is kept.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use onsale_kit::{
    client::{ClientConfig, Neighbors},
    contract::Contract,
    tasks::Tasks,
};
use onsale_testkit::{
    echo::v1::{CallAsServiceRequest, echo_service_client::EchoServiceClient},
    wait_until,
};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::support::{
    Harness, TIMEOUT, assert_status, background, echo_request, http_get, retry_delay, wait_request,
    watch_request,
};

#[tokio::test]
async fn running_call_finishes_and_no_new_one_is_admitted() {
    let harness = Harness::start(&[]).await;
    let client = harness.customer().await;
    let mut slow = client.clone();
    let call = background(async move { slow.wait(wait_request(Duration::from_millis(500))).await });
    wait_until("the call runs", TIMEOUT, || async { harness.echo.calls().wait.started() == 1 }).await;

    let (address, echo) = (harness.server.address(), harness.echo.clone());
    let shutdown = background(harness.server.shutdown());
    wait_until("the port is closed", TIMEOUT, || async {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    let mut late = client.clone();
    late.echo(echo_request("late")).await.expect_err("no new calls");
    assert_eq!(echo.calls().echo.started(), 0);

    call.await.expect("no panic").expect("the running call finishes");
    assert!(shutdown.await.expect("no panic").is_clean());
}

#[tokio::test]
async fn streams_end_with_a_retryable_status_and_spread_retry_delays() {
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
    // A stream that always has another message must end too.
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
        delays.push(retry_delay(&status).expect("a retry delay"));
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
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn hanging_handler_does_not_delay_the_drain() {
    let harness = Harness::start(&[("SERVER__DRAIN__TOTAL", "500ms")]).await;
    let mut client = harness.customer().await;
    let call = background(async move { client.wait(wait_request(Duration::from_secs(3600))).await });
    wait_until("the call runs", TIMEOUT, || async { harness.echo.calls().wait.started() == 1 }).await;
    let echo = harness.echo.clone();
    let begin = Instant::now();
    let drained = harness.server.shutdown().await;
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
    assert_eq!(drained.connections_cut, 1);
    assert!(!drained.is_clean());
    call.await.expect("no panic").expect_err("the call was cut");
    wait_until("the handler is cancelled", TIMEOUT, || async { echo.calls().wait.cancelled() == 1 }).await;
}

#[tokio::test]
async fn silent_peer_does_not_delay_the_drain() {
    let harness = Harness::start(&[]).await;
    let _silent = tokio::net::TcpStream::connect(harness.server.address()).await.expect("the port is open");
    wait_until("the connection is accepted", TIMEOUT, || async {
        harness.admin("/metrics").await.1.contains("rpc_server_connections_open 1")
    })
    .await;
    let begin = Instant::now();
    assert!(harness.server.shutdown().await.is_clean());
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn task_that_ignores_its_token_does_not_delay_the_drain() {
    let harness = Harness::start(&[("SERVER__DRAIN__TOTAL", "300ms")]).await;
    harness.server.tasks().spawn("deaf", std::future::pending());
    let begin = Instant::now();
    let drained = harness.server.shutdown().await;
    assert_eq!(drained.tasks_aborted, ["deaf"]);
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn health_turns_not_serving_before_calls_are_refused() {
    let harness = Harness::start(&[("SERVER__DRAIN__LAME_DUCK", "2s")]).await;
    let mut client = harness.customer().await;
    let mut health = HealthClient::new(harness.channel().await);
    let admin = harness.server.admin_address();
    let status = |mut health: HealthClient<tonic::transport::Channel>| async move {
        let request = HealthCheckRequest { service: "onsale.testkit.v1.EchoService".to_owned() };
        health.check(request).await.expect("health responds").into_inner().status()
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
    assert!(line.contains("200"), "a stopping process is still alive: {line}");
    client.echo(echo_request("lame duck")).await.expect("calls are still served");
    assert!(shutdown.await.expect("no panic").is_clean());
}

#[tokio::test]
async fn old_connection_ends_its_streams_and_the_server_continues() {
    let settings = [("SERVER__CONNECTION_AGE_MAX", "500ms"), ("SERVER__CONNECTION_AGE_GRACE", "500ms")];
    let harness = Harness::start(&settings).await;
    // Taken before the connect, which starts the connection's age.
    let begin = Instant::now();
    let mut client = harness.customer().await;
    let mut stream =
        client.watch(watch_request(0, Duration::from_secs(60))).await.expect("the stream opens").into_inner();
    stream.message().await.expect("the first message");
    let status = stream.message().await.expect_err("the connection is old");
    assert_status(&status, Code::Unavailable, "DRAINING");
    assert!(
        begin.elapsed() >= Duration::from_millis(450 + 500) && begin.elapsed() < TIMEOUT,
        "{:?}",
        begin.elapsed()
    );
    client.echo(echo_request("again")).await.expect("a new connection is served");
    assert!(harness.server.shutdown().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_reaches_its_age_limit_fails_no_call() {
    let settings = [("SERVER__CONNECTION_AGE_MAX", "50ms"), ("SERVER__CONNECTION_AGE_GRACE", "10s")];
    let harness = Harness::start(&settings).await;
    let contract = Contract::load(&[onsale_testkit::echo::DESCRIPTORS]).expect("good contracts");
    let tokens = Arc::new(harness.issuer.service_tokens("caller"));
    let mut config =
        ClientConfig { target: format!("http://{}", harness.server.address()), ..Default::default() };
    // Without retries, which could hide a failure.
    config.retry.backoff.attempts_max = 1;
    let channel =
        Neighbors::new(&contract, Some(tokens), Tasks::new()).channel("echo", &config).expect("a channel");
    let begin = Instant::now();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let mut client = EchoServiceClient::new(channel.clone());
            background(async move {
                while begin.elapsed() < Duration::from_secs(1) {
                    client.call_as_service(CallAsServiceRequest {}).await.expect("no call fails");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no call failed");
    }
    harness.server.shutdown().await;
}
