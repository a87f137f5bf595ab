//! `CreatePayment`: ownership and state of the claim, choice of the provider, idempotency.

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

use crate::support::{World, create_request, metadata, now_seconds, reason, with_token};

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_returns_the_payment_in_its_current_state() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let request = create_request(world.neighbors.claim(ana.customer_id));
    let first = world.create_with(&ana, request.clone()).await.unwrap();
    assert_eq!(world.create_with(&ana, request.clone()).await.unwrap(), first);
    assert_eq!(world.provider.session_count(), 1);
    let mut other = request.clone();
    other.set_provider(Provider::Sandbox);
    let status = world.create_with(&ana, other).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "REQUEST_ID_REUSED"));

    world.press_button(&first, "pay").await;
    world.until(&ana, &first.payment_id, PaymentState::Confirmed).await;
    world.until_all_steps_are_done().await;
    let repeated = world.create_with(&ana, request).await.unwrap();
    assert_eq!(repeated.payment_id, first.payment_id);
    assert_eq!(repeated.state(), PaymentState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_has_at_most_one_open_payment() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
    let (one, two, three) = tokio::join!(
        world.create(&ana, claim_id),
        world.create(&ana, claim_id),
        world.create(&ana, claim_id)
    );
    let (created, refused): (Vec<_>, Vec<_>) = [one, two, three].into_iter().partition(Result::is_ok);
    assert_eq!(created.len(), 1, "{refused:?}");
    let payment = created.into_iter().next().unwrap().unwrap();
    for status in refused.into_iter().map(Result::unwrap_err) {
        assert_eq!(reason(&status), "PAYMENT_OPEN_EXISTS");
        assert_eq!(metadata(&status, "payment_id"), payment.payment_id);
    }
    assert_eq!(world.provider.session_count(), 1);
    let lookup = Some(Lookup::ClaimId(claim_id.to_string()));
    let service = world.person("claim", &[Role::Service]);
    let newest =
        world.payments().await.get_payment(with_token(&service.token, GetPaymentRequest { lookup })).await;
    assert_eq!(newest.unwrap().into_inner().payment.unwrap().payment_id, payment.payment_id);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_customers_own_claimed_claim_can_be_paid() {
    let world = World::new().await;
    let (ana, eve) = (world.customer("ana"), world.customer("eve"));
    let claim_id = world.neighbors.claim(ana.customer_id);
    for missing in [world.create(&eve, claim_id).await, world.create(&ana, ClaimId::generate()).await] {
        let status = missing.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
    }
    world.neighbors.change(claim_id, |claim| {
        claim.expire_time = Some(prost_types::Timestamp { seconds: now_seconds() + 2, nanos: 0 });
    });
    let status = world.create(&ana, claim_id).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "CLAIM_NOT_PAYABLE"));
    assert_eq!(metadata(&status, "claim_state"), "CLAIMED");
    world.neighbors.release(claim_id);
    let status = world.create(&ana, claim_id).await.unwrap_err();
    assert_eq!(metadata(&status, "claim_state"), "RELEASED");
    assert_eq!(world.provider.session_count(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_or_refusing_provider_is_reported_on_each_request() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
    for provider in [Provider::Stripe, Provider::Paystack] {
        let mut request = create_request(claim_id);
        request.set_provider(provider);
        let status = world.create_with(&ana, request).await.unwrap_err();
        assert_eq!(reason(&status), "PROVIDER_NOT_CONFIGURED");
    }
    // XTS is the ISO 4217 code for tests, which no provider accepts.
    world.neighbors.change(claim_id, |claim| claim.total.as_mut().unwrap().currency_code = "XTS".to_owned());
    let request = create_request(claim_id);
    for _ in 0..2 {
        let status = world.create_with(&ana, request.clone()).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "PROVIDER_REFUSED"));
        assert_eq!(metadata(&status, "provider"), "SANDBOX");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_invalid_fields_are_reported_together() {
    let world = World::with(&[("WEB__ALLOWED_ORIGINS", "[\"https://shop.test\"]")]).await;
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
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
    let mut good = create_request(claim_id);
    good.return_url = "https://shop.test/done?order=1".to_owned();
    assert!(world.create_with(&ana, good).await.is_ok());
    world.stop().await;
}

#[test]
fn sandbox_provider_is_refused_in_production() {
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
async fn new_payment_extends_its_claim_before_its_page_is_shown() {
    let world = World::new().await;
    let ana = world.customer("ana");
    let request = create_request(world.neighbors.claim(ana.customer_id));
    let payment = world.create_with(&ana, request.clone()).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Pending);
    assert_eq!(world.neighbors.state().extended_by, [payment.payment_id.as_str()]);
    // A PENDING payment does not extend the claim again.
    world.create_with(&ana, request).await.unwrap();
    assert_eq!(world.neighbors.state().extended_by.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_paid_even_if_its_extension_fails() {
    let world = World::new().await;
    let ana = world.customer("ana");
    for (code, delay) in [
        (Some(Code::Unavailable), Duration::ZERO),
        (Some(Code::NotFound), Duration::ZERO),
        (Some(Code::Internal), Duration::ZERO),
        (None, Duration::from_secs(60)),
    ] {
        {
            let mut state = world.neighbors.state();
            (state.extend_error, state.extend_delay) = (code, delay);
        }
        let payment = world.create(&ana, world.neighbors.claim(ana.customer_id)).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Pending, "{code:?}");
        assert!(world.neighbors.state().extended_by.contains(&payment.payment_id));
        world.press_button(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    }
    world.stop().await;
}
