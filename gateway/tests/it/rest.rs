//! REST through Envoy: JSON in, JSON out, and what a browser of another origin needs.

use onsale_proto::{
    auth::v1::Role,
    inventory::v1::{Event, GetEventRequest, GetEventResponse},
    queue::v1::JoinQueueRequest,
};

use crate::support::{Door, Envoy, http_client};

const GET_EVENT: &str = "/onsale.inventory.v1.EventService/GetEvent";

#[tokio::test]
async fn a_path_and_its_fields_become_a_message_and_the_answer_json() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    let event = Event { event_id: "4711".to_owned(), name: "Derbi".to_owned(), ..Event::default() };
    door.services.answer(GET_EVENT, &GetEventResponse { event: Some(event) });
    let response = http_client().get(envoy.url("/api/v1/events/4711")).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    assert_eq!(body["event"]["name"], "Derbi");
    assert_eq!(body["event"]["capacity"], 0, "zero is an answer");
    assert_eq!(door.services.last().message::<GetEventRequest>().event_id, "4711");

    let token = door.issuer.token_for("somebody", &[Role::Customer]);
    let request = http_client()
        .post(envoy.url("/api/v1/queue/4711/join"))
        .header("authorization", format!("Bearer {token}"))
        .body(r#"{"requestId": "0190a000-0000-7000-8000-000000000001"}"#);
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    let seen = door.services.last();
    assert_eq!(seen.identity.as_ref().map(|identity| identity.subject.as_str()), Some("somebody"));
    let join: JoinQueueRequest = seen.message();
    assert_eq!(
        (join.event_id.as_str(), join.request_id.as_str()),
        ("4711", "0190a000-0000-7000-8000-000000000001")
    );
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn what_the_contract_does_not_know_is_refused() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    for (path, expected) in
        [("/api/v1/events/4711?surprise=1", 400), ("/api/v1/nothing", 404), ("/api/v2/events/4711", 404)]
    {
        let response = http_client().get(envoy.url(path)).send().await.expect("an answer");
        assert_eq!(response.status(), expected, "{path}");
    }
    let unsigned = http_client().post(envoy.url("/api/v1/queue/4711/join")).body("{}").send().await;
    assert_eq!(unsigned.expect("an answer").status(), 401);
    assert!(door.services.seen().is_empty(), "{:?}", door.services.seen());
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn an_unknown_field_of_a_body_is_ignored_as_in_any_message() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    let bearer = format!("Bearer {}", door.issuer.token(Role::Customer));
    let request = http_client().post(envoy.url("/api/v1/queue/4711/join")).header("authorization", bearer);
    let response = request.body(r#"{"surprise": 1}"#).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(door.services.last().message::<JoinQueueRequest>().event_id, "4711");
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call_and_no_other() {
    let door = Door::open_with(&[("HTTP__CORS_ORIGINS", "[\"https://tickets.example\"]")]).await;
    let envoy = Envoy::start_with(&door, |settings| {
        settings.cors_origins = vec!["https://tickets.example".to_owned()]
    })
    .await;
    for base in [format!("http://{}", door.http), envoy.url("")] {
        let ask = async |origin: &str| {
            let request = http_client().request(http::Method::OPTIONS, format!("{base}{GET_EVENT}"));
            let request = request.header("origin", origin).header("access-control-request-method", "POST");
            request
                .header("access-control-request-headers", "x-grpc-web,authorization")
                .send()
                .await
                .expect("an answer")
        };
        let allowed = ask("https://tickets.example").await;
        assert_eq!(allowed.status(), 200, "{base}");
        assert_eq!(allowed.headers()["access-control-allow-origin"], "https://tickets.example");
        assert!(
            allowed.headers()["access-control-allow-headers"].to_str().expect("ASCII").contains("x-grpc-web")
        );
        let other = ask("https://evil.example").await;
        assert!(!other.headers().contains_key("access-control-allow-origin"), "{base}");

        let request =
            http_client().post(format!("{base}{GET_EVENT}")).header("origin", "https://tickets.example");
        let response =
            request.header("content-type", "application/grpc-web+proto").body(vec![0; 5]).send().await;
        let headers = response.expect("an answer").headers().clone();
        assert_eq!(headers.get_all("access-control-allow-origin").iter().count(), 1);
        let exposed = headers["access-control-expose-headers"].to_str().expect("ASCII").to_owned();
        assert!(exposed.contains("grpc-status-details-bin"), "{exposed}");
    }
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn a_visitor_finds_a_page() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    for base in [format!("http://{}", door.http), envoy.url("")] {
        let page = http_client().get(format!("{base}/")).send().await.expect("an answer");
        assert_eq!(page.status(), 200);
        assert!(page.text().await.expect("a page").contains("<h1>Onsale</h1>"));
        let nothing = http_client().get(format!("{base}/nothing")).send().await.expect("an answer");
        assert_eq!(nothing.status(), 404);
    }
    drop(envoy);
    door.close().await;
}
