//! Paying, declining, turning back; and watching it.

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

use crate::support::{PATIENCE, World, reason, session_event, signed};

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_payment_is_confirmed_and_its_claim_served() {
    let world = World::new().await;
    let (ana, claim, payment) = world.pending().await;
    assert!(payment.checkout_url.starts_with("http://") && payment.expire_time.is_some());
    assert_eq!(payment.amount.as_ref().unwrap().amount_minor, 4_000);

    let watching = WatchPaymentRequest { payment_id: payment.payment_id.clone() };
    let mut watch =
        world.payments().await.watch_payment(signed(&ana.token, watching)).await.unwrap().into_inner();
    let first = watch.next().await.unwrap().unwrap().payment.unwrap();
    assert_eq!(first, payment, "first the payment as it is");
    world.press(&payment, "pay").await;
    let confirmed = watch.next().await.unwrap().unwrap().payment.unwrap();
    assert_eq!(confirmed.state(), PaymentState::Confirmed);
    assert_eq!(confirmed.checkout_url, "", "nobody is to pay again");
    assert!(confirmed.confirm_time.is_some());
    assert!(watch.next().await.is_none(), "there is no more to come");

    world.until_nothing_is_owed().await;
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Confirmed);
    let told: Vec<PaymentConfirmed> = world.events(claim).await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].payment_id, payment.payment_id);
    assert_eq!(told[0].amount, payment.amount);
    assert!(world.events::<PaymentFailed>(claim).await.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_or_left_payment_fails_with_its_reason() {
    let world = World::new().await;
    for (button, expected) in [("decline", FailureReason::Declined), ("cancel", FailureReason::Canceled)] {
        let (ana, claim, payment) = world.pending().await;
        world.press(&payment, button).await;
        let failed = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
        assert_eq!(failed.failure_reason(), expected);
        let told: Vec<PaymentFailed> = world.events(claim).await;
        assert_eq!(told.iter().map(PaymentFailed::reason).collect::<Vec<_>>(), [expected]);
        assert!(world.events::<PaymentConfirmed>(claim).await.is_empty());
        let again = world.create(&ana, claim).await;
        assert!(again.is_ok(), "the claim may be paid again while it lasts: {again:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_that_comes_after_a_failure_still_ends_in_tickets_or_goes_back() {
    let world = World::new().await;
    for (confirming, end) in [
        (crate::support::neighbors::Confirming::Serves, PaymentState::Confirmed),
        (crate::support::neighbors::Confirming::Rejects, PaymentState::Refunded),
    ] {
        world.mesh.facts().confirming = confirming;
        let (ana, claim, payment) = world.pending().await;
        let expired = session_event(&unique("evt"), "checkout.session.expired", &payment, false);
        world.take_signed(&expired).await.unwrap();
        world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
        world.mesh.release(claim);
        // The provider's own page, which knows nothing of the forged event.
        world.press(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, end).await;
        world.until_nothing_is_owed().await;
        let refunds: Vec<PaymentRefunded> = world.events(claim).await;
        assert_eq!(refunds.len(), usize::from(end == PaymentState::Refunded));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_seen_by_its_customer_only() {
    let world = World::new().await;
    let (_, _, payment) = world.pending().await;
    let eve = world.customer("eve");
    let status = world.get(&eve, &payment.payment_id).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    let watching = WatchPaymentRequest { payment_id: payment.payment_id.clone() };
    let status = world.payments().await.watch_payment(signed(&eve.token, watching)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    let status = world.get(&eve, &PaymentId::generate().to_string()).await.unwrap_err();
    assert_eq!(reason(&status), "PAYMENT_NOT_FOUND");
    world.stop().await;
}

fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", PaymentId::generate())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_long_is_left_alone_by_other_instances() {
    let world = World::new().await;
    world.mesh.facts().confirm_takes = Duration::from_secs(1);
    let (_, claim, payment) = world.pending().await;
    world.press(&payment, "pay").await;
    let asked = || async { world.mesh.facts().confirm_calls > 0 };
    wait_until("claim is asked", PATIENCE, asked).await;
    let sql = "SELECT 1 FROM payment WHERE step = 'SETTLE' AND step_at > now() + interval '10s'";
    let leased = world.postgres().await.query("look", sql, &[]).await.unwrap();
    assert_eq!(leased.len(), 1, "nobody else takes it while the call may last");
    world.until_nothing_is_owed().await;
    assert_eq!(world.mesh.facts().confirm_calls, 1);
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Confirmed);
    world.stop().await;
}
