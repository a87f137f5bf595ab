//! Identity: services see the caller of each call, and no external caller can act as a service.

use onsale_kit::auth::Identity;
use onsale_proto::auth::v1::Role;
use onsale_testkit::call;
use std::sync::Arc;
use tonic::{Code, Request};

use crate::{
    raw_http,
    support::{TestGateway, assert_status, public_methods},
};

const GET_EVENT: &str = "/onsale.inventory.v1.EventService/GetEvent";
const GET_CLAIM: &str = "/onsale.claim.v1.ClaimService/GetClaim";

#[tokio::test]
async fn every_public_method_is_forwarded_with_its_caller() {
    let gateway = TestGateway::open().await;
    let channel = gateway.channel().await;
    for method in public_methods().iter() {
        let outside = [Role::Customer, Role::Organizer, Role::Staff];
        let role = outside.into_iter().find(|role| method.roles.contains(*role)).unwrap_or(Role::Customer);
        let token = gateway.issuer.token_for("somebody", &[role]);
        call(&channel, &method.path, Some(&token))
            .await
            .unwrap_or_else(|status| panic!("{}: {status:?}", method.path));
        let received = gateway.services.last_call();
        assert_eq!(received.path, method.path);
        let subject = received.identity.map(|identity: Arc<Identity>| identity.subject.clone());
        assert_eq!(subject.as_deref(), Some("somebody"), "{}", method.path);
        assert_eq!(received.headers["authorization"], format!("Bearer {token}"));
    }
    assert_eq!(gateway.services.calls().len(), public_methods().iter().count());
    gateway.close().await;
}

#[tokio::test]
async fn call_without_a_token_is_forwarded_without_one() {
    let gateway = TestGateway::open().await;
    call(&gateway.channel().await, GET_EVENT, None).await.expect("anyone may read an event");
    let received = gateway.services.last_call();
    assert!(received.identity.is_none(), "an anonymous call has no identity: {received:?}");
    assert!(!received.headers.contains_key("authorization"));

    let status = call(&gateway.channel().await, GET_CLAIM, None).await.expect_err("a claim needs a customer");
    assert_status(&status, Code::Unauthenticated, "TOKEN_MISSING");
    assert_eq!(gateway.services.calls().len(), 1);
    gateway.close().await;
}

#[tokio::test]
async fn external_call_with_a_service_token_is_refused() {
    let gateway = TestGateway::open().await;
    let token = gateway.issuer.token(Role::Service);
    // The contract grants the first method to services too and the second to anyone; a mesh token is refused for both.
    for path in [GET_CLAIM, GET_EVENT] {
        let status = call(&gateway.channel().await, path, Some(&token))
            .await
            .expect_err("an external service token is refused");
        assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");
        let status = raw_http::grpc_web(gateway.http, path, &(), Some(&token), false).await;
        assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");
    }
    assert!(gateway.services.calls().is_empty());
    gateway.close().await;
}

#[tokio::test]
async fn invalid_token_is_refused_for_anonymous_methods_too() {
    let gateway = TestGateway::open().await;
    for broken in gateway.issuer.broken(Role::Customer) {
        let status = call(&gateway.channel().await, GET_EVENT, Some(&broken.token)).await;
        let status = status.expect_err(broken.flaw);
        // A token above the header limit fails before it is verified.
        let is_too_long = broken.token.len() > 16 * 1024;
        assert!(is_too_long || status.code() == Code::Unauthenticated, "{}: {status:?}", broken.flaw);
    }
    assert!(gateway.services.calls().is_empty());
    gateway.close().await;
}

#[tokio::test]
async fn headers_that_claim_an_identity_are_not_forwarded() {
    let gateway = TestGateway::open().await;
    let mut request = Request::new(onsale_proto::inventory::v1::GetEventRequest::default());
    let spoofed = [
        "x-onsale-customer-id",
        "x-onsale-roles",
        "x-forwarded-client-cert",
        "x-forwarded-for",
        "x-envoy-internal",
        "x-envoy-peer-metadata",
        "grpc-internal-encoding-request",
        "cookie",
        "tracestate",
        "baggage",
    ];
    for name in spoofed {
        request.metadata_mut().insert(name, "spoofed".parse().expect("ASCII"));
    }
    let theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.metadata_mut().insert("traceparent", theirs.parse().expect("ASCII"));
    request.metadata_mut().insert("accept-language", "hr".parse().expect("ASCII"));
    let channel = gateway.channel().await;
    let mut client = onsale_proto::inventory::v1::event_service_client::EventServiceClient::new(channel);
    client.get_event(request).await.expect("anyone may read an event");

    let received = gateway.services.last_call();
    for name in spoofed {
        assert!(!received.headers.contains_key(name), "{name} in {:?}", received.headers);
    }
    assert_eq!(received.headers["accept-language"], "hr");
    let trace = received.headers["traceparent"].to_str().expect("ASCII");
    assert!(
        !trace.contains("0af7651916cd43dd8448eb211c80319c"),
        "the gateway must start a new trace: {trace}"
    );
    gateway.close().await;
}
