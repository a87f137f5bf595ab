//! REST through Envoy: JSON transcoding, unknown paths and parameters, CORS, and the start page.

use onsale_proto::{
    auth::v1::Role,
    inventory::v1::{Event, GetEventRequest, GetEventResponse},
    queue::v1::JoinQueueRequest,
};

use crate::support::{Envoy, TestGateway, http_client};

const GET_EVENT: &str = "/onsale.inventory.v1.EventService/GetEvent";

#[tokio::test]
async fn rest_request_becomes_a_message_and_its_response_json() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let event = Event { event_id: "4711".to_owned(), name: "Derbi".to_owned(), ..Event::default() };
    gateway.services.respond_with(GET_EVENT, &GetEventResponse { event: Some(event) });
    let response = http_client().get(envoy.url("/api/v1/events/4711")).send().await.expect("a response");
    assert_eq!(response.status(), 200);
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    assert_eq!(body["event"]["name"], "Derbi");
    assert_eq!(body["event"]["capacity"], 0, "zero values are included");
    assert_eq!(gateway.services.last_call().message::<GetEventRequest>().event_id, "4711");

    let token = gateway.issuer.token_for("somebody", &[Role::Customer]);
    let request = http_client()
        .post(envoy.url("/api/v1/queue/4711/join"))
        .header("authorization", format!("Bearer {token}"))
        .body(r#"{"requestId": "0190a000-0000-7000-8000-000000000001"}"#);
    assert_eq!(request.send().await.expect("a response").status(), 200);
    let call = gateway.services.last_call();
    assert_eq!(call.identity.as_ref().map(|identity| identity.subject.as_str()), Some("somebody"));
    let join: JoinQueueRequest = call.message();
    assert_eq!(
        (join.event_id.as_str(), join.request_id.as_str()),
        ("4711", "0190a000-0000-7000-8000-000000000001")
    );
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn unknown_paths_and_query_parameters_are_refused() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for (path, expected) in
        [("/api/v1/events/4711?surprise=1", 400), ("/api/v1/nothing", 404), ("/api/v2/events/4711", 404)]
    {
        let response = http_client().get(envoy.url(path)).send().await.expect("a response");
        assert_eq!(response.status(), expected, "{path}");
    }
    let unsigned = http_client().post(envoy.url("/api/v1/queue/4711/join")).body("{}").send().await;
    assert_eq!(unsigned.expect("a response").status(), 401);
    assert!(gateway.services.calls().is_empty(), "{:?}", gateway.services.calls());
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn unknown_body_fields_are_ignored() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let bearer = format!("Bearer {}", gateway.issuer.token(Role::Customer));
    let request = http_client().post(envoy.url("/api/v1/queue/4711/join")).header("authorization", bearer);
    let response = request.body(r#"{"surprise": 1}"#).send().await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(gateway.services.last_call().message::<JoinQueueRequest>().event_id, "4711");
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn only_allowed_origins_receive_cors_headers() {
    let gateway = TestGateway::open_with(&[("HTTP__CORS_ORIGINS", "[\"https://tickets.example\"]")]).await;
    let envoy = Envoy::start_with(&gateway, |settings| {
        settings.cors_origins = vec!["https://tickets.example".to_owned()]
    })
    .await;
    for base in [format!("http://{}", gateway.http), envoy.url("")] {
        let preflight = async |origin: &str| {
            let request = http_client().request(http::Method::OPTIONS, format!("{base}{GET_EVENT}"));
            let request = request.header("origin", origin).header("access-control-request-method", "POST");
            request
                .header("access-control-request-headers", "x-grpc-web,authorization")
                .send()
                .await
                .expect("a response")
        };
        let allowed = preflight("https://tickets.example").await;
        assert_eq!(allowed.status(), 200, "{base}");
        assert_eq!(allowed.headers()["access-control-allow-origin"], "https://tickets.example");
        assert!(
            allowed.headers()["access-control-allow-headers"].to_str().expect("ASCII").contains("x-grpc-web")
        );
        let other = preflight("https://evil.example").await;
        assert!(!other.headers().contains_key("access-control-allow-origin"), "{base}");

        let request =
            http_client().post(format!("{base}{GET_EVENT}")).header("origin", "https://tickets.example");
        let response =
            request.header("content-type", "application/grpc-web+proto").body(vec![0; 5]).send().await;
        let headers = response.expect("a response").headers().clone();
        assert_eq!(headers.get_all("access-control-allow-origin").iter().count(), 1);
        let exposed = headers["access-control-expose-headers"].to_str().expect("ASCII").to_owned();
        assert!(exposed.contains("grpc-status-details-bin"), "{exposed}");
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn root_path_returns_the_start_page() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for base in [format!("http://{}", gateway.http), envoy.url("")] {
        let page = http_client().get(format!("{base}/")).send().await.expect("a response");
        assert_eq!(page.status(), 200);
        assert!(page.text().await.expect("a page").contains("<h1>Onsale</h1>"));
        let nothing = http_client().get(format!("{base}/nothing")).send().await.expect("a response");
        assert_eq!(nothing.status(), 404);
    }
    drop(envoy);
    gateway.close().await;
}
