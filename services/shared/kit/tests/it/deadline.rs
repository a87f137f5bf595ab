//! Deadlines on the server: the caller's time is never exceeded, and late calls do no work.

use std::time::{Duration, Instant};

use onsale_proto::auth::v1::Role;
use onsale_testkit::{echo::v1::echo_service_client::EchoServiceClient, wait_until};
use tonic::{Code, metadata::MetadataValue, service::interceptor::InterceptedService};

use crate::support::{
    Bearer, Harness, RawChannel, TIMEOUT, assert_status, echo_request, wait_request, watch_request,
};

/// A customer without client-side timeouts, so that only the server enforces the deadline.
async fn raw_customer(harness: &Harness) -> EchoServiceClient<InterceptedService<RawChannel, Bearer>> {
    let bearer = Bearer::new(Some(&harness.issuer.token(Role::Customer)));
    EchoServiceClient::with_interceptor(RawChannel::connect(harness.server.address()).await, bearer)
}

#[tokio::test]
async fn call_with_fifty_milliseconds_left_is_cancelled_in_time() {
    let harness = Harness::start(&[]).await;
    let mut client = raw_customer(&harness).await;
    let mut request = wait_request(Duration::from_secs(30));
    request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static("50m"));
    let begin = Instant::now();
    let status = client.wait(request).await.expect_err("too late");
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!(
        begin.elapsed() >= Duration::from_millis(50) && begin.elapsed() < TIMEOUT,
        "{:?}",
        begin.elapsed()
    );
    let waits = &harness.echo.calls().wait;
    wait_until("the handler is cancelled", TIMEOUT, || async { waits.cancelled() == 1 }).await;
    assert_eq!(waits.finished(), 0);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn late_call_never_reaches_its_handler() {
    let harness = Harness::start(&[]).await;
    let mut client = raw_customer(&harness).await;
    let mut request = echo_request("late");
    request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static("0m"));
    let status = client.echo(request).await.expect_err("too late");
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert_eq!(harness.echo.calls().echo.started(), 0);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn handler_sees_the_remaining_time() {
    let harness = Harness::start(&[("SERVER__DEADLINE_DEFAULT", "3s"), ("SERVER__DEADLINE_MAX", "5s")]).await;
    let mut client = harness.customer().await;
    for (timeout, most) in [(None, 3_000), (Some("2S"), 2_000), (Some("1H"), 5_000)] {
        let mut request = echo_request("remaining");
        if let Some(timeout) = timeout {
            request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static(timeout));
        }
        let text = client.echo(request).await.expect("in time").into_inner().text;
        let remaining: u64 = text.parse().expect("milliseconds");
        assert!(remaining <= most && remaining > most - 1_000, "{remaining} of {most}");
    }
    harness.server.shutdown().await;
}

#[tokio::test]
async fn malformed_timeout_is_refused() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    for timeout in ["soon", "5", "-1S", "123456789S"] {
        let mut request = echo_request("a");
        request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static(timeout));
        let status = client.echo(request).await.expect_err("no timeout");
        assert_status(&status, Code::InvalidArgument, "FIELDS_INVALID");
    }
    assert_eq!(harness.echo.calls().echo.started(), 0);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn stream_ends_at_the_callers_deadline_and_not_before() {
    // The limits of unary calls do not apply to streams.
    let harness =
        Harness::start(&[("SERVER__DEADLINE_DEFAULT", "100ms"), ("SERVER__DEADLINE_MAX", "100ms")]).await;
    let mut client = harness.customer().await;
    let mut unlimited = client
        .watch(watch_request(0, Duration::from_millis(50)))
        .await
        .expect("the stream opens")
        .into_inner();
    let mut request = watch_request(0, Duration::from_secs(60));
    request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static("300m"));
    let begin = Instant::now();
    let mut limited = client.watch(request).await.expect("the stream opens").into_inner();
    limited.message().await.expect("the first message");
    let status = limited.message().await.expect_err("its time is over");
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    for _ in 0..8 {
        unlimited.message().await.expect("the other stream goes on");
    }
    harness.server.shutdown().await;
}
