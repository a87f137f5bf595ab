//! Providers that fail, lose answers, are slow or send no webhooks.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentFailed},
    payment::v1::{FailureReason, PaymentState},
};
use onsale_sandbox::payments::Behaviour;

use crate::support::{POLLING, World};

#[tokio::test(flavor = "multi_thread")]
async fn worker_opens_the_session_after_the_provider_recovers() {
    let world = World::new().await;
    for trouble in [
        Behaviour { fail_calls: 3, ..Behaviour::default() },
        Behaviour { lose_answers: 3, ..Behaviour::default() },
    ] {
        let before = world.provider.session_count();
        world.provider.set_behaviour(trouble);
        let ana = world.customer("ana");
        let claim_id = world.neighbors.claim(ana.customer_id);
        let payment = world.create(&ana, claim_id).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Initializing, "stored without a session");
        assert_eq!(payment.checkout_url, "");
        let pending = world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
        assert_eq!(world.provider.session_count(), before + 1, "several attempts open one session");
        world.press_button(&pending, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_provider_does_not_delay_the_customer() {
    let world = World::with(&[("PROVIDERS__HTTP__TIMEOUT", "200ms")]).await;
    world.provider.set_behaviour(Behaviour { delay_calls_ms: 5_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
    let payment = world.create(&ana, claim_id).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    world.provider.set_behaviour(Behaviour::default());
    world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_is_polled_when_webhooks_are_lost() {
    let world = World::with(&POLLING).await;
    for (button, state, reason) in [
        ("pay", PaymentState::Confirmed, FailureReason::Unspecified),
        ("decline", PaymentState::Failed, FailureReason::Declined),
        ("cancel", PaymentState::Failed, FailureReason::Canceled),
    ] {
        world.provider.set_behaviour(Behaviour { drop_webhooks: 100, ..Behaviour::default() });
        let (ana, claim_id, payment) = world.pending().await;
        world.press_button(&payment, button).await;
        let ended = world.until(&ana, &payment.payment_id, state).await;
        assert_eq!(ended.failure_reason(), reason);
        let event_count = world.events::<PaymentConfirmed>(claim_id).await.len()
            + world.events::<PaymentFailed>(claim_id).await.len();
        assert_eq!(event_count, 1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_of_a_released_claim_fails_and_its_session_expires() {
    let world = World::with(&POLLING).await;
    let (ana, claim_id, payment) = world.pending().await;
    world.neighbors.release(claim_id);
    let ended = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(ended.failure_reason(), FailureReason::Expired);
    let url = format!("{}/pay", payment.checkout_url);
    let refused = reqwest::Client::new().post(url).header("accept", "application/json").send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 409);
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Released);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_without_a_session_fails_with_its_claim_or_its_age() {
    let world = World::new().await;
    world.provider.set_behaviour(Behaviour { fail_calls: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim_id = world.neighbors.claim(ana.customer_id);
    let payment = world.create(&ana, claim_id).await.unwrap();
    world.neighbors.release(claim_id);
    world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(world.events::<PaymentFailed>(claim_id).await.len(), 1);

    let world = World::with(&[("PAYMENTS__INITIALIZING_MAX", "100ms")]).await;
    world.provider.set_behaviour(Behaviour { fail_calls: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let payment = world.create(&ana, world.neighbors.claim(ana.customer_id)).await.unwrap();
    let failed = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(failed.failure_reason(), FailureReason::Provider);
    world.stop().await;
}
