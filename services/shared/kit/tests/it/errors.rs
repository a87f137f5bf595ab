//! Statuses of failed calls: a code, a reason, details to act on, and no internals.

use onsale_testkit::echo::v1;
use tonic::{Code, Request, client::Grpc};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use crate::support::{
    Harness, PANIC_MESSAGES, RawChannel, assert_status, echo_request, reason, retry_delay, watch_request,
};

#[tokio::test]
async fn text_of_an_internal_error_is_not_sent() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    for text in ["internal", "bare internal"] {
        let status = client.echo(echo_request(text)).await.expect_err("requested by the test");
        assert_status(&status, Code::Internal, "INTERNAL");
        assert_eq!(status.message(), "internal error");
        let everything = format!("{status:?} {}", String::from_utf8_lossy(status.details()));
        for secret in ["secrets", "disk full", "hold 17", "hunter2"] {
            assert!(!everything.contains(secret), "{everything}");
        }
    }
    let status = client.echo(echo_request("unavailable")).await.expect_err("requested by the test");
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    assert!(!status.message().contains("10.0.0.1"), "{status:?}");
    assert!(retry_delay(&status).is_some());
    harness.server.shutdown().await;
}

#[tokio::test]
async fn all_violations_are_in_one_response() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let status = client.echo(echo_request("violations")).await.expect_err("requested by the test");
    assert_status(&status, Code::InvalidArgument, "FIELDS_INVALID");
    let details = status.get_error_details();
    let fields: Vec<_> = details
        .bad_request()
        .expect("BadRequest is there")
        .field_violations
        .iter()
        .map(|violation| (violation.field.as_str(), violation.description.as_str()))
        .collect();
    assert_eq!(
        fields,
        [
            ("quantity", "invalid digit found in string"),
            ("event_id", "is required"),
            ("seat_ids[2]", "is listed twice")
        ]
    );
    harness.server.shutdown().await;
}

#[tokio::test]
async fn limit_status_carries_quota_metadata_and_retry_delay() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let status = client.echo(echo_request("limited")).await.expect_err("requested by the test");
    assert_status(&status, Code::ResourceExhausted, "TOO_MANY_TICKETS");
    assert_eq!(status.message(), "at most 4 tickets per customer");
    assert_eq!(retry_delay(&status), Some(std::time::Duration::from_secs(7)));
    let details = status.get_error_details();
    let info = details.error_info().expect("ErrorInfo is there");
    assert_eq!(info.metadata.get("tickets_max").map(String::as_str), Some("4"));
    let quota = &details.quota_failure().expect("QuotaFailure is there").violations;
    assert_eq!((quota.len(), quota[0].subject.as_str()), (1, "customer:1"));
    harness.server.shutdown().await;
}

#[tokio::test]
async fn panic_fails_one_call_and_the_process_continues() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let status = client.echo(echo_request("panic")).await.expect_err("requested by the test");
    assert_status(&status, Code::Internal, "INTERNAL");
    assert!(!status.message().contains("requested by the test"), "{status:?}");
    client.echo(echo_request("the call succeeds")).await.expect("the connection still works");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn panic_in_a_stream_ends_only_that_stream() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let request = watch_request(PANIC_MESSAGES, std::time::Duration::ZERO);
    let mut stream = client.watch(request).await.expect("the stream opens").into_inner();
    assert_eq!(stream.message().await.expect("a message").map(|message| message.number), Some(1));
    let status = stream.message().await.expect_err("requested by the test");
    assert_status(&status, Code::Internal, "INTERNAL");
    client.echo(echo_request("the call succeeds")).await.expect("the connection still works");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn unwritten_method_is_not_implemented() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.client(None).await;
    let status = client.unserved(v1::UnservedRequest {}).await.expect_err("a generated stub");
    assert_status(&status, Code::Unimplemented, "METHOD_NOT_IMPLEMENTED");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn method_of_an_unserved_service_is_unknown() {
    let harness = Harness::start(&[]).await;
    let mut grpc = Grpc::new(harness.channel().await);
    for path in [
        "/onsale.testkit.v1.EchoService/Nonsense",
        "/no.such.Service/Method",
        "/",
        "/onsale.queue.v1.QueueService/JoinQueue",
    ] {
        grpc.ready().await.expect("the channel is ready");
        let path = path.parse().expect("a path");
        let answer = grpc.unary::<(), (), _>(Request::new(()), path, ProstCodec::default()).await;
        assert_status(&answer.expect_err("the method is not served"), Code::Unimplemented, "METHOD_UNKNOWN");
    }
    harness.server.shutdown().await;
}

#[tokio::test]
async fn undecodable_request_is_the_callers_mistake() {
    let harness = Harness::start(&[]).await;
    let token = harness.issuer.token(onsale_proto::auth::v1::Role::Customer);
    let channel = harness.channel().await;
    let service = tonic::service::interceptor::InterceptedService::new(
        channel,
        crate::support::Bearer::new(Some(&token)),
    );
    let mut grpc = Grpc::new(service);
    grpc.ready().await.expect("the channel is ready");
    // Field 1 as a number, where the contract has a string.
    let path = "/onsale.testkit.v1.EchoService/Echo".parse().expect("a path");
    let answer = grpc.unary::<u64, (), _>(Request::new(5), path, ProstCodec::default()).await;
    let status = answer.expect_err("not a message");
    assert_eq!(
        (status.code(), reason(&status)),
        (Code::InvalidArgument, "FIELDS_INVALID".to_owned()),
        "{status:?}"
    );
    harness.server.shutdown().await;
}

/// Calls Echo with these bytes as the body, like a client that breaks the protocol.
async fn echo_bytes(
    harness: &Harness,
    bytes: &'static [u8],
    encoding: Option<&'static str>,
) -> tonic::Status {
    let token = harness.issuer.token(onsale_proto::auth::v1::Role::Customer);
    let mut request = http::Request::post("/onsale.testkit.v1.EchoService/Echo")
        .header("content-type", "application/grpc")
        .header("authorization", format!("Bearer {token}"));
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let body = tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from_static(bytes)));
    let mut raw = RawChannel::connect(harness.server.address()).await;
    let response = tower::Service::call(&mut raw, request.body(body).expect("a request")).await;
    tonic::Status::from_header_map(response.expect("an answer").headers()).expect("a status alone")
}

#[tokio::test]
async fn bytes_that_break_the_protocol_are_the_callers_mistake() {
    let harness = Harness::start(&[]).await;
    let broken: [&[u8]; 4] = [&[], &[0, 0, 0, 0, 5, 1], &[1, 0, 0, 0, 0], &[9, 0, 0, 0, 0]];
    for bytes in broken {
        let status = echo_bytes(&harness, bytes, None).await;
        assert_status(&status, Code::InvalidArgument, "FIELDS_INVALID");
    }
    let status = echo_bytes(&harness, &[0, 255, 255, 255, 255], None).await;
    assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    let status = echo_bytes(&harness, &[1, 0, 0, 0, 0], Some("gzip")).await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("compressed"), "the message must name the compression: {status:?}");
    assert_eq!(harness.echo.calls().echo.started(), 0);
    harness.server.shutdown().await;
}
