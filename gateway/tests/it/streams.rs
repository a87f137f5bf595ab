//! Streams: each message is forwarded immediately, and a stream ends with its caller, its deadline or the gateway.

use std::time::Duration;

use onsale_proto::inventory::v1::{
    WatchAvailabilityRequest, WatchAvailabilityResponse, inventory_service_client::InventoryServiceClient,
};
use onsale_testkit::wait_until;
use prost::Message;
use tonic::{Code, transport::Channel};

use crate::{
    fake_services::framed,
    raw_http,
    support::{Envoy, TIMEOUT, TestGateway, http_client},
};

const WATCH: &str = "/onsale.inventory.v1.InventoryService/WatchAvailability";

async fn watch(channel: Channel) -> tonic::Streaming<WatchAvailabilityResponse> {
    let mut client = InventoryServiceClient::new(channel);
    let opened = client.watch_availability(WatchAvailabilityRequest::default()).await;
    opened.expect("anyone may watch").into_inner()
}

/// Reads the next chunk of a gRPC-Web or REST stream, which is one message.
async fn chunk(response: &mut reqwest::Response) -> Vec<u8> {
    response.chunk().await.expect("the stream is whole").expect("the stream goes on").to_vec()
}

#[tokio::test]
async fn grpc_messages_are_forwarded_immediately() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for channel in [gateway.channel().await, envoy.channel().await] {
        let messages = gateway.services.open_stream(WATCH);
        messages.send(&WatchAvailabilityResponse::default());
        let mut stream = watch(channel).await;
        for _ in 0..3 {
            stream.message().await.expect("a message").expect("the stream goes on");
            // Send the next message only now: no part of the path may buffer messages.
            messages.send(&WatchAvailabilityResponse::default());
        }
        stream.message().await.expect("a message").expect("the stream goes on");
        drop(messages);
        assert!(stream.message().await.expect("an orderly end").is_none());
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn grpc_web_messages_are_forwarded_immediately() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for address in [gateway.http, envoy.address] {
        let messages = gateway.services.open_stream(WATCH);
        messages.send(&WatchAvailabilityResponse::default());
        let body = framed(&WatchAvailabilityRequest::default().encode_to_vec());
        let request = http_client().post(format!("http://{address}{WATCH}")).body(body.to_vec());
        let mut response =
            request.header("content-type", "application/grpc-web+proto").send().await.expect("a response");
        for _ in 0..3 {
            assert_eq!(raw_http::frames(&chunk(&mut response).await).0.len(), 1);
            messages.send(&WatchAvailabilityResponse::default());
        }
        chunk(&mut response).await;
        drop(messages);
        let (_, trailers) = raw_http::frames(&chunk(&mut response).await);
        assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn each_message_is_a_line_of_json_by_rest() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let messages = gateway.services.open_stream(WATCH);
    messages.send(&WatchAvailabilityResponse::default());
    let url = envoy.url("/api/v1/events/4711/availability/watch");
    let mut response = http_client().get(url).send().await.expect("a response");
    for _ in 0..3 {
        let line = String::from_utf8(chunk(&mut response).await).expect("text");
        assert!(line.ends_with('\n'), "{line:?}");
        serde_json::from_str::<serde_json::Value>(line.trim()).expect("one object a line");
        messages.send(&WatchAvailabilityResponse::default());
    }
    drop((response, messages));
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn disconnected_caller_cancels_the_stream_at_the_service() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for (gone, channel) in [(1, gateway.channel().await), (2, envoy.channel().await)] {
        let messages = gateway.services.open_stream(WATCH);
        messages.send(&WatchAvailabilityResponse::default());
        let mut stream = watch(channel).await;
        stream.message().await.expect("a message");
        drop(stream);
        wait_until("the service sees the cancellation", TIMEOUT, || async {
            gateway.services.streams_cancelled() == gone
        })
        .await;
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn stream_outlives_the_default_deadline_of_calls() {
    let gateway = TestGateway::open_with(&[
        ("SERVER__DEADLINE_DEFAULT", "200ms"),
        ("NEIGHBOURS__INVENTORY__DEADLINE", "300ms"),
    ])
    .await;
    let messages = gateway.services.open_stream(WATCH);
    messages.send(&WatchAvailabilityResponse::default());
    let mut stream = watch(gateway.channel().await).await;
    stream.message().await.expect("a message");
    let silence = tokio::time::timeout(Duration::from_millis(600), stream.message()).await;
    silence.expect_err("the stream stays open and silent");
    messages.send(&WatchAvailabilityResponse::default());
    assert!(stream.message().await.expect("still open").is_some());
    drop((stream, messages));
    gateway.close().await;
}

#[tokio::test]
async fn stream_ends_at_the_deadline_of_its_caller() {
    let gateway = TestGateway::open().await;
    let messages = gateway.services.open_stream(WATCH);
    messages.send(&WatchAvailabilityResponse::default());
    let mut request = tonic::Request::new(WatchAvailabilityRequest::default());
    request.set_timeout(Duration::from_millis(300));
    let mut client = InventoryServiceClient::new(gateway.channel().await);
    let mut stream = client.watch_availability(request).await.expect("anyone may watch").into_inner();
    stream.message().await.expect("a message");
    let status = stream.message().await.expect_err("the deadline has passed");
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    wait_until("the service sees the cancellation", TIMEOUT, || async {
        gateway.services.streams_cancelled() == 1
    })
    .await;
    drop(messages);
    gateway.close().await;
}

#[tokio::test]
async fn streams_end_with_unavailable_when_the_gateway_stops() {
    let gateway = TestGateway::open().await;
    let mut streams = Vec::new();
    let mut senders = Vec::new();
    let messages = gateway.services.open_stream(WATCH);
    messages.send(&WatchAvailabilityResponse::default());
    let mut grpc = watch(gateway.channel().await).await;
    grpc.message().await.expect("a message");
    senders.push(messages);

    let messages = gateway.services.open_stream(WATCH);
    messages.send(&WatchAvailabilityResponse::default());
    let request = http_client().post(format!("http://{}{WATCH}", gateway.http)).body(framed(&[]).to_vec());
    let mut web =
        request.header("content-type", "application/grpc-web+proto").send().await.expect("a response");
    chunk(&mut web).await;
    senders.push(messages);
    streams.push(web);

    gateway.close().await;
    let status = grpc.message().await.expect_err("the gateway stopped");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let (_, trailers) = raw_http::frames(&chunk(&mut streams[0]).await);
    assert_eq!(trailers.expect("trailers")["grpc-status"], "14");
}
