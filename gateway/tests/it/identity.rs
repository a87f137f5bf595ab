//! Who calls is who the service sees; and nobody from outside is a service.

use onsale_kit::auth::Identity;
use onsale_proto::auth::v1::Role;
use onsale_testkit::call;
use std::sync::Arc;
use tonic::{Code, Request};

use crate::{
    raw,
    support::{Door, assert_status, public_methods},
};

const GET_EVENT: &str = "/onsale.inventory.v1.EventService/GetEvent";
const GET_CLAIM: &str = "/onsale.claim.v1.ClaimService/GetClaim";

#[tokio::test]
async fn every_public_method_reaches_its_service_as_its_caller() {
    let door = Door::open().await;
    let channel = door.channel().await;
    for method in public_methods().iter() {
        let outside = [Role::Customer, Role::Organizer, Role::Staff];
        let role = outside.into_iter().find(|role| method.roles.contains(*role)).unwrap_or(Role::Customer);
        let token = door.issuer.token_for("somebody", &[role]);
        call(&channel, &method.path, Some(&token))
            .await
            .unwrap_or_else(|status| panic!("{}: {status:?}", method.path));
        let seen = door.services.last();
        assert_eq!(seen.path, method.path);
        let subject = seen.identity.map(|identity: Arc<Identity>| identity.subject.clone());
        assert_eq!(subject.as_deref(), Some("somebody"), "{}", method.path);
        assert_eq!(seen.headers["authorization"], format!("Bearer {token}"));
    }
    assert_eq!(door.services.seen().len(), public_methods().iter().count());
    door.close().await;
}

#[tokio::test]
async fn a_call_without_a_token_reaches_the_service_without_one() {
    let door = Door::open().await;
    call(&door.channel().await, GET_EVENT, None).await.expect("anyone may ask for an event");
    let seen = door.services.last();
    assert!(seen.identity.is_none(), "nobody is nobody, and surely no service: {seen:?}");
    assert!(!seen.headers.contains_key("authorization"));

    let status = call(&door.channel().await, GET_CLAIM, None).await.expect_err("a claim is somebody's");
    assert_status(&status, Code::Unauthenticated, "TOKEN_MISSING");
    assert_eq!(door.services.seen().len(), 1);
    door.close().await;
}

#[tokio::test]
async fn a_service_token_from_outside_is_refused() {
    let door = Door::open().await;
    let token = door.issuer.token(Role::Service);
    // Open to services within the mesh, and to anyone: neither is a way in for a mesh token.
    for path in [GET_CLAIM, GET_EVENT] {
        let status =
            call(&door.channel().await, path, Some(&token)).await.expect_err("no service calls from outside");
        assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");
        let status = raw::grpc_web(door.http, path, &(), Some(&token), false).await;
        assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");
    }
    assert!(door.services.seen().is_empty());
    door.close().await;
}

#[tokio::test]
async fn a_bad_token_is_refused_even_where_none_is_needed() {
    let door = Door::open().await;
    for broken in door.issuer.broken(Role::Customer) {
        let status = call(&door.channel().await, GET_EVENT, Some(&broken.token)).await;
        let status = status.expect_err(broken.flaw);
        // One that is longer than all headers may be does not even come so far.
        let is_too_long = broken.token.len() > 16 * 1024;
        assert!(is_too_long || status.code() == Code::Unauthenticated, "{}: {status:?}", broken.flaw);
    }
    assert!(door.services.seen().is_empty());
    door.close().await;
}

#[tokio::test]
async fn headers_that_claim_to_be_somebody_do_not_reach_a_service() {
    let door = Door::open().await;
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
    let channel = door.channel().await;
    let mut client = onsale_proto::inventory::v1::event_service_client::EventServiceClient::new(channel);
    client.get_event(request).await.expect("anyone may ask for an event");

    let seen = door.services.last();
    for name in spoofed {
        assert!(!seen.headers.contains_key(name), "{name} in {:?}", seen.headers);
    }
    assert_eq!(seen.headers["accept-language"], "hr");
    let trace = seen.headers["traceparent"].to_str().expect("ASCII");
    assert!(!trace.contains("0af7651916cd43dd8448eb211c80319c"), "a trace begins with us: {trace}");
    door.close().await;
}
