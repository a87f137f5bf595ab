//! HandleWebhook: what is believed, what is taken once, and what is never lost.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentFailed},
    payment::v1::{PaymentState, Provider},
};
use onsale_sandbox::payments::Behaviour;
use onsale_testkit::wait_until;
use onsale_types::PaymentId;
use tonic::Code;

use crate::support::{PATIENCE, WEBHOOK_SECRET, World, now_seconds, reason, session_event, signature};

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_come_twice_and_out_of_order_change_nothing_more() {
    let world = World::new().await;
    let misbehaving = Behaviour { duplicate_webhooks: 2, reorder_webhooks: true, ..Behaviour::default() };
    world.provider.set_behaviour(misbehaving);
    let (ana, claim, payment) = world.pending().await;
    world.press(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    wait_until("all webhooks are taken", PATIENCE, || async { world.provider.webhooks_waiting() == 0 }).await;
    // And what contradicts it, later.
    for kind in ["checkout.session.expired", "checkout.session.async_payment_failed"] {
        world.take_signed(&session_event(&format!("evt_{kind}"), kind, &payment, false)).await.unwrap();
    }
    world.until_nothing_is_owed().await;
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Confirmed);
    assert_eq!(world.events::<PaymentConfirmed>(claim).await.len(), 1);
    assert!(world.events::<PaymentFailed>(claim).await.is_empty());
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Confirmed);
    assert_eq!(world.mesh.facts().confirm_calls, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_taken_once() {
    let world = World::new().await;
    let (_, claim, payment) = world.pending().await;
    let event = session_event("evt_once", "checkout.session.completed", &payment, true);
    let (one, two) = tokio::join!(world.take_signed(&event), world.take_signed(&event));
    let mut duplicates = [one.unwrap().duplicate, two.unwrap().duplicate];
    duplicates.sort_unstable();
    assert_eq!(duplicates, [false, true]);
    assert_eq!(world.events::<PaymentConfirmed>(claim).await.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_old_and_malformed_webhooks_are_refused_and_change_nothing() {
    let world = World::new().await;
    let (ana, _, payment) = world.pending().await;
    let body = session_event("evt_1", "checkout.session.completed", &payment, true).to_string();
    let body = body.as_bytes();
    let now = now_seconds();
    let forged = signature(now, body).replace("v1=", "v1=00");
    let other_time = signature(now, body).replace(&now.to_string(), &(now - 1).to_string());
    for header in [forged, other_time, String::new(), "t=1".to_owned()] {
        let status = world.take(&header, body).await.unwrap_err();
        let expected = (Code::PermissionDenied, "WEBHOOK_SIGNATURE_INVALID");
        assert_eq!((status.code(), reason(&status).as_str()), expected);
    }
    for time in [now - 301, now + 301] {
        let status = world.take(&signature(time, body), body).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "WEBHOOK_TOO_OLD"));
    }
    for body in
        [&b"{"[..], b"[]", br#"{"id":"evt","type":"checkout.session.completed","data":{"object":{}}}"#]
    {
        let status = world.take(&signature(now, body), body).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "WEBHOOK_MALFORMED"));
    }
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Pending);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_no_use_is_taken_and_what_names_an_unknown_payment_is_not() {
    let world = World::new().await;
    let (_, _, mut payment) = world.pending().await;
    let of_no_use = serde_json::json!({ "id": "evt_1", "type": "invoice.paid", "data": { "object": {} } });
    assert!(!world.take_signed(&of_no_use).await.unwrap().duplicate);
    assert!(world.take_signed(&of_no_use).await.unwrap().duplicate);
    payment.payment_id = PaymentId::generate().to_string();
    let unknown = session_event("evt_2", "checkout.session.completed", &payment, true);
    for _ in 0..2 {
        let status = world.take_signed(&unknown).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_comes_before_the_providers_answer_is_not_lost() {
    let world = World::new().await;
    // The session exists, and we do not know it; nor will we, for longer than the test takes.
    world.provider.set_behaviour(Behaviour { lose_answers: 1_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    let payment = world.create(&ana, claim).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    let event = session_event("evt_1", "checkout.session.completed", &payment, true);
    world.take_signed(&event).await.unwrap();
    let confirmed = world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    assert_eq!(confirmed.provider_reference, "cs_by_hand");
    world.until_nothing_is_owed().await;
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_amount_that_differs_goes_back() {
    let world = World::new().await;
    let (ana, _, mut payment) = world.pending().await;
    world.press(&payment, "pay").await;
    let mut other = world.pending().await.2;
    other.amount.as_mut().unwrap().amount_minor = 1;
    let event = session_event("evt_1", "checkout.session.completed", &other, true);
    world.take_signed(&event).await.unwrap();
    payment = world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    assert_eq!(payment.amount.unwrap().amount_minor, 4_000);
    // The money of the other exists by word only, so the provider cannot give it back; but it is on its way.
    wait_until("the refund is asked for", PATIENCE, || async {
        world.get(&ana, &other.payment_id).await.unwrap().refund.is_some()
    })
    .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_speaks_for_its_own_payments_only() {
    let stripe =
        [("PROVIDERS__STRIPE__SECRET_KEY", "sk"), ("PROVIDERS__STRIPE__WEBHOOK_SECRET", WEBHOOK_SECRET)];
    let world = World::with(&stripe).await;
    let (ana, _, payment) = world.pending().await;
    let body = session_event("evt_1", "checkout.session.completed", &payment, true).to_string();
    let header = signature(now_seconds(), body.as_bytes());
    let status = world.take_from(Provider::Stripe, &header, body.as_bytes()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "WEBHOOK_MALFORMED"));
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Pending);
    let status = world.take_from(Provider::Paystack, &header, body.as_bytes()).await.unwrap_err();
    assert_eq!(reason(&status), "PROVIDER_NOT_CONFIGURED");
    world.stop().await;
}
