//! Errors: those of services reach the caller with all details over every protocol, and those of the gateway are complete.

use onsale_kit::error::DOMAIN;
use onsale_proto::inventory::v1::{GetEventRequest, event_service_client::EventServiceClient};
use onsale_testkit::call;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{
    raw_http,
    support::{Envoy, TestGateway, assert_status, http_client},
};

const GET_EVENT: &str = "/onsale.inventory.v1.EventService/GetEvent";

fn not_found() -> Status {
    let metadata = [("event_id".to_owned(), "4711".to_owned())];
    let details = ErrorDetails::with_error_info("EVENT_NOT_FOUND", DOMAIN, metadata);
    Status::with_error_details(Code::NotFound, "the event does not exist: š", details)
}

#[track_caller]
fn assert_complete(status: &Status) {
    assert_status(status, Code::NotFound, "EVENT_NOT_FOUND");
    assert_eq!(status.message(), "the event does not exist: š");
    let info = status.get_details_error_info().expect("ErrorInfo");
    assert_eq!(info.metadata.get("event_id").map(String::as_str), Some("4711"));
}

#[tokio::test]
async fn grpc_and_grpc_web_keep_error_details_of_headers_and_trailers() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for in_trailers in [false, true] {
        if in_trailers {
            gateway.services.fail_in_trailers(GET_EVENT, not_found());
        } else {
            gateway.services.fail_in_headers(GET_EVENT, not_found());
        }
        for channel in [gateway.channel().await, envoy.channel().await] {
            assert_complete(&call(&channel, GET_EVENT, None).await.expect_err("the event does not exist"));
        }
        for address in [gateway.http, envoy.address] {
            for is_text in [false, true] {
                let status =
                    raw_http::grpc_web(address, GET_EVENT, &GetEventRequest::default(), None, is_text).await;
                assert_complete(&status);
            }
        }
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn rest_returns_error_details_as_json() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    gateway.services.fail_in_headers(GET_EVENT, not_found());
    let response = http_client().get(envoy.url("/api/v1/events/4711")).send().await.expect("a response");
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    assert_eq!(body["code"], 5);
    assert_eq!(body["message"], "the event does not exist: š");
    assert_eq!(body["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!(body["details"][0]["reason"], "EVENT_NOT_FOUND");
    assert_eq!(body["details"][0]["metadata"]["event_id"], "4711");
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn calls_are_counted_by_the_status_of_the_service() {
    let gateway = TestGateway::open().await;
    gateway.services.fail_in_trailers(GET_EVENT, not_found());
    call(&gateway.channel().await, GET_EVENT, None).await.expect_err("the event does not exist");
    let metrics = http_client().get(format!("http://{}/metrics", gateway.server.admin_address()));
    let metrics = metrics.send().await.expect("metrics").text().await.expect("text");
    let is_counted = metrics.lines().any(|line| {
        line.starts_with("rpc_server_requests_total")
            && line.contains("GetEvent")
            && line.contains("NOT_FOUND")
    });
    assert!(is_counted, "{metrics}");
    gateway.close().await;
}

#[tokio::test]
async fn oversized_request_is_refused_and_not_forwarded() {
    let gateway = TestGateway::open_with(&[("SERVER__REQUEST_BYTES_MAX", "1000")]).await;
    let request = || GetEventRequest { event_id: "x".repeat(2000) };
    let status =
        EventServiceClient::new(gateway.channel().await).get_event(request()).await.expect_err("too large");
    assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    for is_text in [false, true] {
        let status = raw_http::grpc_web(gateway.http, GET_EVENT, &request(), None, is_text).await;
        assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    }
    assert!(gateway.services.calls().is_empty());
    gateway.close().await;
}

#[tokio::test]
async fn unreachable_service_is_unavailable_without_its_address() {
    let gateway = TestGateway::open_with(&[("NEIGHBOURS__INVENTORY__DEADLINE", "2s")]).await;
    let channel = gateway.channel().await;
    let server = gateway.stop_services().await;
    let status = call(&channel, GET_EVENT, None).await.expect_err("the service is stopped");
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    assert!(!status.message().contains("127.0.0.1"), "{status:?}");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn deadline_of_the_caller_reaches_the_service() {
    let gateway = TestGateway::open().await;
    let mut request = tonic::Request::new(GetEventRequest::default());
    request.set_timeout(std::time::Duration::from_secs(2));
    EventServiceClient::new(gateway.channel().await).get_event(request).await.expect("a response");
    let timeout = gateway.services.last_call().headers["grpc-timeout"].to_str().expect("ASCII").to_owned();
    let micros: u64 = timeout.strip_suffix('u').expect("microseconds").parse().expect("a number");
    assert!((1_000_000..2_000_000).contains(&micros), "{timeout}");
    gateway.close().await;
}
