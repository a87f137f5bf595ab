//! Restarts: payments continue from their stored step.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentRefunded},
    payment::v1::PaymentState,
};
use onsale_sandbox::payments::Behaviour;
use onsale_testkit::wait_until;

use crate::{
    support::neighbors::ConfirmBehavior,
    support::{TIMEOUT, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn stored_payment_gets_its_session_after_a_restart() {
    let world = World::new().await;
    world.provider.set_behaviour(Behaviour { lose_answers: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let payment = world.create(&ana, world.neighbors.claim(ana.customer_id)).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    let world =
        world.restart(async |provider, _neighbors| provider.set_behaviour(Behaviour::default())).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
    assert_eq!(world.provider.session_count(), 1, "one session before and after the restart together");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_sent_while_stopped_arrives_after_a_restart() {
    let world = World::new().await;
    let (_, claim_id, payment) = world.pending().await;
    let page = payment.checkout_url.clone();
    let world = world
        .restart(async |provider, _neighbors| {
            let paid =
                reqwest::Client::new().post(format!("{page}/pay")).header("accept", "application/json");
            assert!(paid.send().await.unwrap().status().is_success());
            assert!(provider.webhooks_waiting() > 0);
        })
        .await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    world.until_all_steps_are_done().await;
    assert_eq!(world.neighbors.claim_state(claim_id), ClaimState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_payment_is_settled_after_a_restart() {
    for (confirm_behavior, end) in [
        (ConfirmBehavior::Confirms, PaymentState::Confirmed),
        (ConfirmBehavior::Rejects, PaymentState::Refunded),
    ] {
        let world = World::new().await;
        world.neighbors.state().confirm_behavior = ConfirmBehavior::Unreachable;
        let (ana, claim_id, payment) = world.pending().await;
        world.press_button(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
        let called = || async { world.neighbors.state().confirm_calls > 0 };
        wait_until("Claim was called", TIMEOUT, called).await;
        let again = world.create(&ana, claim_id).await.unwrap_err();
        assert_eq!(
            crate::support::reason(&again),
            "PAYMENT_OPEN_EXISTS",
            "an unsettled payment counts as open"
        );
        let world = world
            .restart(async |_provider, neighbors| neighbors.state().confirm_behavior = confirm_behavior)
            .await;
        let ana = world.customer("ana");
        world.until_all_steps_are_done().await;
        assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), end);
        assert_eq!(world.events::<PaymentConfirmed>(claim_id).await.len(), 1);
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_refund_is_finished_once_after_a_restart() {
    let world = World::new().await;
    world.neighbors.state().confirm_behavior = ConfirmBehavior::Rejects;
    let (ana, claim_id, payment) = world.pending().await;
    // The sandbox refunds the money and drops its answer.
    world.provider.set_behaviour(Behaviour { lose_answers: 100_000, ..Behaviour::default() });
    world.press_button(&payment, "pay").await;
    wait_until("the sandbox refunded the money", TIMEOUT, || async { world.provider.refund_count() == 1 })
        .await;
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Confirmed);
    let world =
        world.restart(async |provider, _neighbors| provider.set_behaviour(Behaviour::default())).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert_eq!(world.provider.refund_count(), 1);
    assert_eq!(world.events::<PaymentRefunded>(claim_id).await.len(), 1);
    world.stop().await;
}
