//! CreatePayment: whose claim, which provider, once per request.

use std::time::Duration;

use onsale_kit::config;
use onsale_payment::config::Config;
use onsale_proto::{
    auth::v1::Role,
    payment::v1::{GetPaymentRequest, PaymentState, Provider, get_payment_request::Lookup},
};
use onsale_testkit::{service::environment, tokens::TestIssuer};
use onsale_types::ClaimId;
use tonic::Code;

use crate::world::{World, creation, metadata, now_seconds, reason, signed};

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_answers_the_same_payment_as_it_is_by_now() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let request = creation(world.mesh.claim(ana.customer));
    let first = world.create_with(&ana, request.clone()).await.unwrap();
    assert_eq!(world.create_with(&ana, request.clone()).await.unwrap(), first);
    assert_eq!(world.provider.session_count(), 1);
    let mut other = request.clone();
    other.set_provider(Provider::Sandbox);
    let status = world.create_with(&ana, other).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "REQUEST_ID_REUSED"));

    world.press(&first, "pay").await;
    world.until(&ana, &first.payment_id, PaymentState::Confirmed).await;
    world.until_nothing_is_owed().await;
    let repeated = world.create_with(&ana, request).await.unwrap();
    assert_eq!(repeated.payment_id, first.payment_id);
    assert_eq!(repeated.state(), PaymentState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_one_payment_in_progress() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    let (one, two, three) =
        tokio::join!(world.create(&ana, claim), world.create(&ana, claim), world.create(&ana, claim));
    let (good, bad): (Vec<_>, Vec<_>) = [one, two, three].into_iter().partition(Result::is_ok);
    assert_eq!(good.len(), 1, "{bad:?}");
    let payment = good.into_iter().next().unwrap().unwrap();
    for status in bad.into_iter().map(Result::unwrap_err) {
        assert_eq!(reason(&status), "PAYMENT_OPEN_EXISTS");
        assert_eq!(metadata(&status, "payment_id"), payment.payment_id);
    }
    assert_eq!(world.provider.session_count(), 1);
    let lookup = Some(Lookup::ClaimId(claim.to_string()));
    let service = world.person("claim", &[Role::Service]);
    let newest =
        world.payments().await.get_payment(signed(&service.token, GetPaymentRequest { lookup })).await;
    assert_eq!(newest.unwrap().into_inner().payment.unwrap().payment_id, payment.payment_id);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_own_and_open_claim_can_be_paid() {
    let world = World::new().await;
    let (ana, eve) = (world.customer("ana"), world.customer("eve"));
    let claim = world.mesh.claim(ana.customer);
    for missing in [world.create(&eve, claim).await, world.create(&ana, ClaimId::generate()).await] {
        let status = missing.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
    }
    world.mesh.change(claim, |claim| {
        claim.expire_time = Some(prost_types::Timestamp { seconds: now_seconds() + 2, nanos: 0 });
    });
    let status = world.create(&ana, claim).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "CLAIM_NOT_PAYABLE"));
    assert_eq!(metadata(&status, "claim_state"), "CLAIMED");
    world.mesh.release(claim);
    let status = world.create(&ana, claim).await.unwrap_err();
    assert_eq!(metadata(&status, "claim_state"), "RELEASED");
    assert_eq!(world.provider.session_count(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_not_offered_or_refuses_says_so_again_and_again() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    for provider in [Provider::Stripe, Provider::Paystack] {
        let mut request = creation(claim);
        request.set_provider(provider);
        let status = world.create_with(&ana, request).await.unwrap_err();
        assert_eq!(reason(&status), "PROVIDER_NOT_CONFIGURED");
    }
    // The code for tests: no provider takes it.
    world.mesh.change(claim, |claim| claim.total.as_mut().unwrap().currency_code = "XTS".to_owned());
    let request = creation(claim);
    for _ in 0..2 {
        let status = world.create_with(&ana, request.clone()).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "PROVIDER_REFUSED"));
        assert_eq!(metadata(&status, "provider"), "SANDBOX");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_fields_are_told_together() {
    let world = World::with(&[("WEB__ALLOWED_ORIGINS", "[\"https://shop.test\"]")]).await;
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    let bad = onsale_proto::payment::v1::CreatePaymentRequest {
        request_id: "1".to_owned(),
        claim_id: String::new(),
        provider: 99,
        return_url: "https://shop.test.evil.test/".to_owned(),
        cancel_url: "javascript:alert(1)".to_owned(),
    };
    let status = world.create_with(&ana, bad).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    for field in ["request_id", "claim_id", "provider"] {
        assert!(status.message().contains(field), "{}", status.message());
    }
    let mut good = creation(claim);
    good.return_url = "https://shop.test/done?order=1".to_owned();
    assert!(world.create_with(&ana, good).await.is_ok());
    world.stop().await;
}

#[test]
fn the_sandbox_is_refused_in_production() {
    let issuer = TestIssuer::new();
    let load = |settings: &[(&str, &str)]| {
        let stores = [
            ("STORES__POSTGRES__URL", "postgres://localhost/x"),
            ("STORES__REDIS__NODES", "[\"redis://localhost:1\"]"),
        ];
        let settings: Vec<_> = stores.iter().chain(settings).copied().collect();
        let environment = environment(&issuer, &settings);
        config::load::<Config>(onsale_payment::SERVICE, onsale_payment::DEFAULTS, &environment)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let sandbox = [
        ("PROVIDERS__SANDBOX__URL", "http://localhost:9"),
        ("PROVIDERS__SANDBOX__SECRET_KEY", "a"),
        ("PROVIDERS__SANDBOX__WEBHOOK_SECRET", "b"),
    ];
    load(&sandbox).unwrap();
    load(&[("ENVIRONMENT", "production")]).unwrap();
    let refused = load(&[&sandbox[..], &[("ENVIRONMENT", "production")]].concat()).unwrap_err();
    assert!(refused.contains("providers.sandbox.url"), "{refused}");
    let incomplete = load(&sandbox[..2]).unwrap_err();
    assert!(incomplete.contains("providers.sandbox"), "{incomplete}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_begins_asks_for_more_time_for_its_claim_before_anybody_sees_its_page() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let request = creation(world.mesh.claim(ana.customer));
    let payment = world.create_with(&ana, request.clone()).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Pending);
    assert_eq!(world.mesh.facts().extended_by, [payment.payment_id.as_str()]);
    // What is pending has been asked for.
    world.create_with(&ana, request).await.unwrap();
    assert_eq!(world.mesh.facts().extended_by.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_gets_no_more_time_is_paid_all_the_same() {
    let world = World::new().await;
    let ana = world.customer("ana");
    for (code, takes) in [
        (Some(Code::Unavailable), Duration::ZERO),
        (Some(Code::NotFound), Duration::ZERO),
        (Some(Code::Internal), Duration::ZERO),
        (None, Duration::from_secs(60)),
    ] {
        {
            let mut facts = world.mesh.facts();
            (facts.extending_fails, facts.extend_takes) = (code, takes);
        }
        let payment = world.create(&ana, world.mesh.claim(ana.customer)).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Pending, "{code:?}");
        assert!(world.mesh.facts().extended_by.contains(&payment.payment_id));
        world.press(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    }
    world.stop().await;
}
