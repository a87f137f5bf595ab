//! Outcomes on the provider's page, and `WatchPayment`.

use std::time::Duration;

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentFailed, PaymentRefunded},
    payment::v1::{FailureReason, PaymentState, WatchPaymentRequest},
};
use onsale_testkit::wait_until;
use onsale_types::PaymentId;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::support::{TIMEOUT, World, reason, session_event, with_token};

#[tokio::test(flavor = "multi_thread")]
async fn paid_payment_is_confirmed_and_confirms_its_claim() {
    let world = World::new().await;
    let (ana, claim_id, payment) = world.pending().await;
    assert!(payment.checkout_url.starts_with("http://") && payment.expire_time.is_some());
    assert_eq!(payment.amount.as_ref().unwrap().amount_minor, 4_000);

    let watching = WatchPaymentRequest { payment_id: payment.payment_id.clone() };
    let mut watch =
        world.payments().await.watch_payment(with_token(&ana.token, watching)).await.unwrap().into_inner();
    let first = watch.next().await.unwrap().unwrap().payment.unwrap();
    assert_eq!(first, payment, "the stream begins with the current version");
    world.press_button(&payment, "pay").await;
    let confirmed = watch.next().await.unwrap().unwrap().payment.unwrap();
    assert_eq!(confirmed.state(), PaymentState::Confirmed);
    assert_eq!(confirmed.checkout_url, "", "a confirmed payment has no page");
    assert!(confirmed.confirm_time.is_some());
    assert!(watch.next().await.is_none(), "the stream ends after CONFIRMED");

    world.until_all_steps_are_done().await;
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Confirmed);
    let events: Vec<PaymentConfirmed> = world.events(claim_id).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].payment_id, payment.payment_id);
    assert_eq!(events[0].amount, payment.amount);
    assert!(world.events::<PaymentFailed>(claim_id).await.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_or_canceled_payment_fails_with_its_reason() {
    let world = World::new().await;
    for (button, expected) in [("decline", FailureReason::Declined), ("cancel", FailureReason::Canceled)] {
        let (ana, claim_id, payment) = world.pending().await;
        world.press_button(&payment, button).await;
        let failed = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
        assert_eq!(failed.failure_reason(), expected);
        let events: Vec<PaymentFailed> = world.events(claim_id).await;
        assert_eq!(events.iter().map(PaymentFailed::reason).collect::<Vec<_>>(), [expected]);
        assert!(world.events::<PaymentConfirmed>(claim_id).await.is_empty());
        let again = world.create(&ana, claim_id).await;
        assert!(again.is_ok(), "the claim can be paid again until it expires: {again:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_after_a_failure_confirms_the_claim_or_is_refunded() {
    let world = World::new().await;
    for (confirm_behavior, end) in [
        (crate::support::neighbors::ConfirmBehavior::Confirms, PaymentState::Confirmed),
        (crate::support::neighbors::ConfirmBehavior::Rejects, PaymentState::Refunded),
    ] {
        world.neighbors.state().confirm_behavior = confirm_behavior;
        let (ana, claim_id, payment) = world.pending().await;
        let expired = session_event(&unique("evt"), "checkout.session.expired", &payment, false);
        world.send_signed_webhook(&expired).await.unwrap();
        world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
        world.neighbors.release(claim_id);
        // The session at the provider is still open, because the test made the event up.
        world.press_button(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, end).await;
        world.until_all_steps_are_done().await;
        let refunds: Vec<PaymentRefunded> = world.events(claim_id).await;
        assert_eq!(refunds.len(), usize::from(end == PaymentState::Refunded));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_is_visible_to_its_customer_only() {
    let world = World::new().await;
    let (_, _, payment) = world.pending().await;
    let eve = world.customer("eve");
    let status = world.get(&eve, &payment.payment_id).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    let watching = WatchPaymentRequest { payment_id: payment.payment_id.clone() };
    let status = world.payments().await.watch_payment(with_token(&eve.token, watching)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    let status = world.get(&eve, &PaymentId::generate().to_string()).await.unwrap_err();
    assert_eq!(reason(&status), "PAYMENT_NOT_FOUND");
    world.stop().await;
}

fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", PaymentId::generate())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_step_is_not_leased_twice() {
    let world = World::new().await;
    world.neighbors.state().confirm_delay = Duration::from_secs(1);
    let (_, claim_id, payment) = world.pending().await;
    world.press_button(&payment, "pay").await;
    let called = || async { world.neighbors.state().confirm_calls > 0 };
    wait_until("Claim is called", TIMEOUT, called).await;
    let sql = "SELECT 1 FROM payment WHERE step = 'SETTLE' AND step_at > now() + interval '10s'";
    let leased = world.postgres().await.query("look", sql, &[]).await.unwrap();
    assert_eq!(leased.len(), 1, "the lease outlasts the call");
    world.until_all_steps_are_done().await;
    assert_eq!(world.neighbors.state().confirm_calls, 1);
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Confirmed);
    world.stop().await;
}
