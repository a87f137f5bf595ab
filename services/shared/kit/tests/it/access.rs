//! Access control: every method with every role, and every kind of bad token.

use std::{convert::Infallible, sync::Arc, time::Duration};

use onsale_kit::{
    auth::Verifier,
    contract::Contract,
    server::{Chassis, Handler, RequestBody},
};
use onsale_proto::auth::v1::Role;
use onsale_testkit::{echo::v1, tokens::TestIssuer};
use onsale_types::{Clock, ManualClock, SystemClock, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use tonic::{
    Code, Status,
    codegen::{BoxFuture, http},
    transport::{Channel, Endpoint},
};

use crate::support::{Harness, assert_status, config, echo_request};

/// A handler for any method, whose response shows that the call reached it.
#[derive(Clone)]
struct Anything;

const REACHED: Code = Code::DataLoss;

impl Handler for Anything {
    fn call(
        &self,
        _: http::Request<RequestBody>,
    ) -> BoxFuture<http::Response<tonic::body::Body>, Infallible> {
        Box::pin(async { Ok(Status::new(REACHED, "reached").into_http()) })
    }
}

async fn call(channel: &Channel, path: &str, token: Option<&str>) -> Status {
    let answer = onsale_testkit::call(channel, path, token).await;
    answer.err().unwrap_or_else(|| Status::ok("nobody answers so"))
}

#[tokio::test]
async fn every_method_admits_exactly_its_roles() {
    let issuer = TestIssuer::new();
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).expect("good contracts");
    let mut chassis =
        Chassis::new("all", config(&issuer, &[]), Arc::new(SystemClock)).expect("good settings");
    let mut services: Vec<_> = contract.methods().map(|method| method.service.clone()).collect();
    services.sort();
    services.dedup();
    for service in services {
        chassis.add_handler(service.leak(), Anything);
    }
    let server = chassis.start().await.expect("the server starts");
    let channel = Endpoint::from_shared(format!("http://{}", server.address()))
        .expect("a URI")
        .connect()
        .await
        .expect("open");

    let roles = [Role::Customer, Role::Organizer, Role::Staff, Role::Service];
    let tokens: Vec<_> = roles.iter().map(|role| (*role, issuer.token(*role))).collect();
    for method in contract.methods() {
        let is_open = method.roles.contains(Role::Anyone);
        let status = call(&channel, &method.path, None).await;
        if is_open {
            assert_eq!(status.code(), REACHED, "{} without a token: {status:?}", method.path);
        } else {
            assert_status(&status, Code::Unauthenticated, "TOKEN_MISSING");
        }
        for (role, token) in &tokens {
            let status = call(&channel, &method.path, Some(token)).await;
            if is_open || method.roles.contains(*role) {
                assert_eq!(status.code(), REACHED, "{} as {role:?}: {status:?}", method.path);
            } else {
                assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");
            }
        }
    }
    server.shutdown().await;
}

#[tokio::test]
async fn bad_token_is_refused_even_where_none_is_needed() {
    let harness = Harness::start(&[("SERVER__HEADER_BYTES_MAX", "65536")]).await;
    let channel = harness.channel().await;
    let broken = harness.issuer.broken(Role::Customer);
    assert!(broken.len() > 20);
    for path in ["/onsale.testkit.v1.EchoService/Echo", "/onsale.testkit.v1.EchoService/CallAsAnyone"] {
        for token in &broken {
            // Twice: the second call would meet a wrongly cached result.
            for _ in 0..2 {
                let status = call(&channel, path, Some(&token.token)).await;
                assert_eq!(
                    status.code(),
                    Code::Unauthenticated,
                    "{path} with a token {}: {status:?}",
                    token.flaw
                );
                assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
            }
        }
    }
    assert_eq!(harness.echo.calls().echo.started() + harness.echo.calls().by_role.started(), 0);
    harness.server.shutdown().await;
}

#[test]
fn token_with_any_letter_changed_is_refused() {
    let issuer = TestIssuer::new();
    let verifier = Verifier::new(&issuer.auth_config(), Arc::new(SystemClock)).expect("good settings");
    let token = issuer.token(Role::Customer);
    verifier.verify(&token).expect("the token is good");
    for index in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("still ASCII");
        verifier.verify(&changed).expect_err("a letter was changed");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_is_refused_without_a_panic(text in "\\PC{0,80}", parts in 0_usize..5) {
        let issuer = TestIssuer::new();
        let verifier = Verifier::new(&issuer.auth_config(), Arc::new(SystemClock)).expect("good settings");
        prop_assert!(verifier.verify(&text).is_err());
        let signed = issuer.token(Role::Customer);
        let mixed = format!("{}.{text}", signed.split('.').take(parts).collect::<Vec<_>>().join("."));
        prop_assert!(verifier.verify(&mixed).is_err());
    }
}

#[tokio::test]
async fn role_that_the_issuer_may_not_grant_is_ignored() {
    let harness = Harness::start(&[]).await;
    let channel = harness.channel().await;
    // Properly signed by the people's issuer, which may grant CUSTOMER but never SERVICE.
    let mut claims = harness.issuer.claims("somebody", &[Role::Customer]);
    claims["roles"] = json!(["CUSTOMER", "SERVICE", "EMPEROR"]);
    let token = harness.issuer.sign(&claims);
    let status = call(&channel, "/onsale.testkit.v1.EchoService/CallAsService", Some(&token)).await;
    assert_status(&status, Code::PermissionDenied, "ROLE_MISSING");

    let mut client = harness.client(Some(&token)).await;
    let who = client.echo(echo_request("who")).await.expect("a customer may call Echo").into_inner();
    assert_eq!(who.text, "somebody {Customer} None");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn service_token_is_accepted_by_service_methods() {
    let harness = Harness::start(&[]).await;
    let tokens = harness.issuer.service_tokens("queue");
    let bearer = tokens.bearer();
    assert!(bearer.is_sensitive());
    let token = bearer.to_str().expect("ASCII").strip_prefix("Bearer ").expect("a bearer token");
    let mut client = harness.client(Some(token)).await;
    client.call_as_service(v1::CallAsServiceRequest {}).await.expect("a service may");
    let who = client.echo(echo_request("who")).await.expect("a service may").into_inner();
    assert_eq!(who.text, "queue {Service} None");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn service_token_is_cached_for_half_of_its_lifetime() {
    let clock = ManualClock::new(SystemClock.now());
    let issuer = TestIssuer::with_clock(Arc::new(clock.clone()));
    let tokens = issuer.service_tokens("queue");
    let half = issuer.mesh_config().token_lifetime / 2;
    let first = tokens.bearer();
    clock.advance(half - Duration::from_secs(1));
    assert_eq!(tokens.bearer(), first);
    clock.advance(Duration::from_secs(1));
    assert_ne!(tokens.bearer(), first);
    clock.set(Timestamp::from_secs(1_700_000_000));
    assert_ne!(tokens.bearer(), first, "a clock that was set back needs another token");
}

#[tokio::test]
async fn cached_token_still_expires() {
    let clock = ManualClock::new(SystemClock.now());
    let harness = Harness::start_at(&[], Arc::new(clock.clone())).await;
    let mut client = harness.customer().await;
    client.echo(echo_request("a")).await.expect("the token is good");
    clock.advance(Duration::from_secs(299));
    client.echo(echo_request("b")).await.expect("the token is still good");
    clock.advance(Duration::from_secs(1));
    let status = client.echo(echo_request("c")).await.expect_err("the token has expired");
    assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn email_counts_only_if_its_issuer_has_verified_it() {
    let harness = Harness::start(&[]).await;
    for (verified, expected) in
        [(json!(true), "Some(\"a@b.hr\")"), (json!(false), "None"), (json!("true"), "None")]
    {
        let mut claims = harness.issuer.claims("somebody", &[Role::Customer]);
        claims["email"] = json!("a@b.hr");
        claims["email_verified"] = verified;
        let mut client = harness.client(Some(&harness.issuer.sign(&claims))).await;
        let who = client.echo(echo_request("who")).await.expect("a customer may call Echo").into_inner();
        assert_eq!(who.text, format!("somebody {{Customer}} {expected}"));
    }
    harness.server.shutdown().await;
}

#[tokio::test]
async fn two_authorization_headers_are_refused() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let mut request = echo_request("a");
    let other = format!("Bearer {}", harness.issuer.token(Role::Customer));
    request.metadata_mut().append("authorization", other.parse().expect("ASCII"));
    // Without the interceptor, which would replace the header.
    let mut bare = v1::echo_service_client::EchoServiceClient::new(harness.channel().await);
    request.metadata_mut().append("authorization", other.parse().expect("ASCII"));
    let status = bare.echo(request).await.expect_err("two tokens");
    assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
    client.echo(echo_request("a")).await.expect("one token is fine");

    for scheme in ["Basic abc", "Bearer", "bearer", "", "Bearer  "] {
        let mut request = echo_request("a");
        request.metadata_mut().insert("authorization", scheme.parse().expect("ASCII"));
        let status = bare.echo(request).await.expect_err("no bearer token");
        assert_eq!(status.code(), Code::Unauthenticated, "{scheme:?}");
    }
    harness.server.shutdown().await;
}
