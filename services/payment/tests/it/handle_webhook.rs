//! `HandleWebhook`: verification, deduplication, and webhooks that arrive early or late.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentFailed},
    payment::v1::{PaymentState, Provider},
};
use onsale_sandbox::payments::Behaviour;
use onsale_testkit::wait_until;
use onsale_types::PaymentId;
use tonic::Code;

use crate::support::{TIMEOUT, WEBHOOK_SECRET, World, now_seconds, reason, session_event, signature};

#[tokio::test(flavor = "multi_thread")]
async fn repeated_and_reordered_webhooks_change_nothing_more() {
    let world = World::new().await;
    let misbehaving = Behaviour { duplicate_webhooks: 2, reorder_webhooks: true, ..Behaviour::default() };
    world.provider.set_behaviour(misbehaving);
    let (ana, claim_id, payment) = world.pending().await;
    world.press_button(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    wait_until("the provider has delivered all webhooks", TIMEOUT, || async {
        world.provider.webhooks_waiting() == 0
    })
    .await;
    // Later webhooks contradict the paid one.
    for kind in ["checkout.session.expired", "checkout.session.async_payment_failed"] {
        world
            .send_signed_webhook(&session_event(&format!("evt_{kind}"), kind, &payment, false))
            .await
            .unwrap();
    }
    world.until_all_steps_are_done().await;
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Confirmed);
    assert_eq!(world.events::<PaymentConfirmed>(claim_id).await.len(), 1);
    assert!(world.events::<PaymentFailed>(claim_id).await.is_empty());
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Confirmed);
    assert_eq!(world.neighbors.state().confirm_calls, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_recorded_once() {
    let world = World::new().await;
    let (_, claim_id, payment) = world.pending().await;
    let event = session_event("evt_once", "checkout.session.completed", &payment, true);
    let (one, two) = tokio::join!(world.send_signed_webhook(&event), world.send_signed_webhook(&event));
    let mut duplicates = [one.unwrap().duplicate, two.unwrap().duplicate];
    duplicates.sort_unstable();
    assert_eq!(duplicates, [false, true]);
    assert_eq!(world.events::<PaymentConfirmed>(claim_id).await.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_old_and_malformed_webhooks_change_nothing() {
    let world = World::new().await;
    let (ana, _, payment) = world.pending().await;
    let body = session_event("evt_1", "checkout.session.completed", &payment, true).to_string();
    let body = body.as_bytes();
    let now = now_seconds();
    let forged = signature(now, body).replace("v1=", "v1=00");
    let other_time = signature(now, body).replace(&now.to_string(), &(now - 1).to_string());
    for header in [forged, other_time, String::new(), "t=1".to_owned()] {
        let status = world.send_webhook(&header, body).await.unwrap_err();
        let expected = (Code::PermissionDenied, "WEBHOOK_SIGNATURE_INVALID");
        assert_eq!((status.code(), reason(&status).as_str()), expected);
    }
    for offset in [-301, 301] {
        // Read the clock again: on a loaded machine, the calls above take seconds.
        let time = now_seconds() + offset;
        let status = world.send_webhook(&signature(time, body), body).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "WEBHOOK_TOO_OLD"));
    }
    for body in
        [&b"{"[..], b"[]", br#"{"id":"evt","type":"checkout.session.completed","data":{"object":{}}}"#]
    {
        let status = world.send_webhook(&signature(now, body), body).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "WEBHOOK_MALFORMED"));
    }
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Pending);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn irrelevant_event_is_accepted_and_unknown_payment_is_not() {
    let world = World::new().await;
    let (_, _, mut payment) = world.pending().await;
    let irrelevant = serde_json::json!({ "id": "evt_1", "type": "invoice.paid", "data": { "object": {} } });
    assert!(!world.send_signed_webhook(&irrelevant).await.unwrap().duplicate);
    assert!(world.send_signed_webhook(&irrelevant).await.unwrap().duplicate);
    payment.payment_id = PaymentId::generate().to_string();
    let unknown = session_event("evt_2", "checkout.session.completed", &payment, true);
    for _ in 0..2 {
        let status = world.send_signed_webhook(&unknown).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_before_the_providers_answer_is_not_lost() {
    let world = World::new().await;
    // The sandbox opens the session and drops its answers for the whole test, so Payment never learns of it.
    world.provider.set_behaviour(Behaviour { lose_answers: 1_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
    let payment = world.create(&ana, claim_id).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    let event = session_event("evt_1", "checkout.session.completed", &payment, true);
    world.send_signed_webhook(&event).await.unwrap();
    let confirmed = world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    assert_eq!(confirmed.provider_reference, "cs_by_hand");
    world.until_all_steps_are_done().await;
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_of_a_wrong_amount_is_refunded() {
    let world = World::new().await;
    let (ana, _, mut payment) = world.pending().await;
    world.press_button(&payment, "pay").await;
    let mut other = world.pending().await.2;
    other.amount.as_mut().unwrap().amount_minor = 1;
    let event = session_event("evt_1", "checkout.session.completed", &other, true);
    world.send_signed_webhook(&event).await.unwrap();
    payment = world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    assert_eq!(payment.amount.unwrap().amount_minor, 4_000);
    // The sandbox took no such money and cannot refund it, so the refund stays pending.
    wait_until("the refund is stored", TIMEOUT, || async {
        world.get(&ana, &other.payment_id).await.unwrap().refund.is_some()
    })
    .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_cannot_change_another_providers_payment() {
    let stripe =
        [("PROVIDERS__STRIPE__SECRET_KEY", "sk"), ("PROVIDERS__STRIPE__WEBHOOK_SECRET", WEBHOOK_SECRET)];
    let world = World::with(&stripe).await;
    let (ana, _, payment) = world.pending().await;
    let body = session_event("evt_1", "checkout.session.completed", &payment, true).to_string();
    let header = signature(now_seconds(), body.as_bytes());
    let status = world.send_webhook_as(Provider::Stripe, &header, body.as_bytes()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "WEBHOOK_MALFORMED"));
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Pending);
    let status = world.send_webhook_as(Provider::Paystack, &header, body.as_bytes()).await.unwrap_err();
    assert_eq!(reason(&status), "PROVIDER_NOT_CONFIGURED");
    world.stop().await;
}
