//! A service's error reaches the caller whole, whichever way the caller came; and what is ours to say is said properly.

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
    Status::with_error_details(Code::NotFound, "there is no such event: š", details)
}

#[track_caller]
fn assert_whole(status: &Status) {
    assert_status(status, Code::NotFound, "EVENT_NOT_FOUND");
    assert_eq!(status.message(), "there is no such event: š");
    let info = status.get_details_error_info().expect("ErrorInfo");
    assert_eq!(info.metadata.get("event_id").map(String::as_str), Some("4711"));
}

#[tokio::test]
async fn details_arrive_by_grpc_and_grpc_web_from_headers_and_from_trailers() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for in_trailers in [false, true] {
        if in_trailers {
            gateway.services.fail_in_trailers(GET_EVENT, not_found());
        } else {
            gateway.services.fail_in_headers(GET_EVENT, not_found());
        }
        for channel in [gateway.channel().await, envoy.channel().await] {
            assert_whole(&call(&channel, GET_EVENT, None).await.expect_err("there is no such event"));
        }
        for address in [gateway.http, envoy.address] {
            for is_text in [false, true] {
                let status =
                    raw_http::grpc_web(address, GET_EVENT, &GetEventRequest::default(), None, is_text).await;
                assert_whole(&status);
            }
        }
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn details_arrive_as_json_by_rest() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    gateway.services.fail_in_headers(GET_EVENT, not_found());
    let response = http_client().get(envoy.url("/api/v1/events/4711")).send().await.expect("an answer");
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    assert_eq!(body["code"], 5);
    assert_eq!(body["message"], "there is no such event: š");
    assert_eq!(body["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!(body["details"][0]["reason"], "EVENT_NOT_FOUND");
    assert_eq!(body["details"][0]["metadata"]["event_id"], "4711");
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn a_call_is_counted_by_the_status_its_service_gave() {
    let gateway = TestGateway::open().await;
    gateway.services.fail_in_trailers(GET_EVENT, not_found());
    call(&gateway.channel().await, GET_EVENT, None).await.expect_err("there is no such event");
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
async fn a_request_that_is_too_large_is_refused_before_a_service_sees_it() {
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
async fn a_service_that_is_not_there_is_unavailable_and_its_address_is_not_told() {
    let gateway = TestGateway::open_with(&[("NEIGHBOURS__INVENTORY__DEADLINE", "2s")]).await;
    let channel = gateway.channel().await;
    let server = gateway.stop_services().await;
    let status = call(&channel, GET_EVENT, None).await.expect_err("nobody is there");
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    assert!(!status.message().contains("127.0.0.1"), "{status:?}");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn a_callers_deadline_reaches_the_service() {
    let gateway = TestGateway::open().await;
    let mut request = tonic::Request::new(GetEventRequest::default());
    request.set_timeout(std::time::Duration::from_secs(2));
    EventServiceClient::new(gateway.channel().await).get_event(request).await.expect("an answer");
    let timeout = gateway.services.last_call().headers["grpc-timeout"].to_str().expect("ASCII").to_owned();
    let micros: u64 = timeout.strip_suffix('u').expect("microseconds").parse().expect("a number");
    assert!((1_000_000..2_000_000).contains(&micros), "{timeout}");
    gateway.close().await;
}
