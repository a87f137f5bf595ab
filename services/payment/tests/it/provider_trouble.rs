//! Providers that do not answer, lose answers or send no webhooks.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentFailed},
    payment::v1::{FailureReason, PaymentState},
};
use onsale_sandbox::payments::Behaviour;

use crate::support::{ASKING, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_goes_on_by_itself_once_the_provider_answers() {
    let world = World::new().await;
    for trouble in [
        Behaviour { fail_calls: 3, ..Behaviour::default() },
        Behaviour { lose_answers: 3, ..Behaviour::default() },
    ] {
        let before = world.provider.session_count();
        world.provider.set_behaviour(trouble);
        let ana = world.customer("ana");
        let claim = world.mesh.claim(ana.customer);
        let payment = world.create(&ana, claim).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Initializing, "stored, and said so");
        assert_eq!(payment.checkout_url, "");
        let pending = world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
        assert_eq!(world.provider.session_count(), before + 1, "asked often, opened once");
        world.press(&pending, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_provider_does_not_hold_the_customer_up() {
    let world = World::with(&[("PROVIDERS__HTTP__TIMEOUT", "200ms")]).await;
    world.provider.set_behaviour(Behaviour { delay_calls_ms: 5_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    let payment = world.create(&ana, claim).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    world.provider.set_behaviour(Behaviour::default());
    world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_webhook_tells_is_asked_for() {
    let world = World::with(&ASKING).await;
    for (button, state, reason) in [
        ("pay", PaymentState::Confirmed, FailureReason::Unspecified),
        ("decline", PaymentState::Failed, FailureReason::Declined),
        ("cancel", PaymentState::Failed, FailureReason::Canceled),
    ] {
        world.provider.set_behaviour(Behaviour { drop_webhooks: 100, ..Behaviour::default() });
        let (ana, claim, payment) = world.pending().await;
        world.press(&payment, button).await;
        let ended = world.until(&ana, &payment.payment_id, state).await;
        assert_eq!(ended.failure_reason(), reason);
        let told = world.events::<PaymentConfirmed>(claim).await.len()
            + world.events::<PaymentFailed>(claim).await.len();
        assert_eq!(told, 1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_claim_is_gone_ends_and_cannot_be_paid_any_more() {
    let world = World::with(&ASKING).await;
    let (ana, claim, payment) = world.pending().await;
    world.mesh.release(claim);
    let ended = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(ended.failure_reason(), FailureReason::Expired);
    let url = format!("{}/pay", payment.checkout_url);
    let refused = reqwest::Client::new().post(url).header("accept", "application/json").send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 409);
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Released);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_no_provider_ever_answered_ends_with_its_claim() {
    let world = World::new().await;
    world.provider.set_behaviour(Behaviour { fail_calls: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let claim = world.mesh.claim(ana.customer);
    let payment = world.create(&ana, claim).await.unwrap();
    world.mesh.release(claim);
    world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(world.events::<PaymentFailed>(claim).await.len(), 1);

    let world = World::with(&[("PAYMENTS__INITIALIZING_MAX", "100ms")]).await;
    world.provider.set_behaviour(Behaviour { fail_calls: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let payment = world.create(&ana, world.mesh.claim(ana.customer)).await.unwrap();
    let failed = world.until(&ana, &payment.payment_id, PaymentState::Failed).await;
    assert_eq!(failed.failure_reason(), FailureReason::Provider);
    world.stop().await;
}
