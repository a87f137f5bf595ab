//! A service that dies between two steps goes on where it stood.

use onsale_proto::{
    claim::v1::ClaimState,
    events::v1::{PaymentConfirmed, PaymentRefunded},
    payment::v1::PaymentState,
};
use onsale_sandbox::payments::Behaviour;
use onsale_testkit::wait_until;

use crate::{
    support::neighbors::Confirming,
    support::{PATIENCE, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_stored_before_the_provider_was_reached_is_opened_after_a_restart() {
    let world = World::new().await;
    world.provider.set_behaviour(Behaviour { lose_answers: 100_000, ..Behaviour::default() });
    let ana = world.customer("ana");
    let payment = world.create(&ana, world.mesh.claim(ana.customer)).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Initializing);
    let world = world.restart(async |provider, _mesh| provider.set_behaviour(Behaviour::default())).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Pending).await;
    assert_eq!(world.provider.session_count(), 1, "opened once, before or after");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_sent_while_nobody_listens_arrives_after_a_restart() {
    let world = World::new().await;
    let (_, claim, payment) = world.pending().await;
    let page = payment.checkout_url.clone();
    let world = world
        .restart(async |provider, _mesh| {
            let paid =
                reqwest::Client::new().post(format!("{page}/pay")).header("accept", "application/json");
            assert!(paid.send().await.unwrap().status().is_success());
            assert!(provider.webhooks_waiting() > 0);
        })
        .await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    world.until_nothing_is_owed().await;
    assert_eq!(world.mesh.claim_state(claim), ClaimState::Confirmed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_money_is_settled_after_a_restart() {
    for (confirming, end) in
        [(Confirming::Serves, PaymentState::Confirmed), (Confirming::Rejects, PaymentState::Refunded)]
    {
        let world = World::new().await;
        world.mesh.facts().confirming = Confirming::Unreachable;
        let (ana, claim, payment) = world.pending().await;
        world.press(&payment, "pay").await;
        world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
        let asked = || async { world.mesh.facts().confirm_calls > 0 };
        wait_until("claim was asked in vain", PATIENCE, asked).await;
        let again = world.create(&ana, claim).await.unwrap_err();
        assert_eq!(crate::support::reason(&again), "PAYMENT_OPEN_EXISTS", "it is about to be paid");
        let world = world.restart(async |_provider, mesh| mesh.facts().confirming = confirming).await;
        let ana = world.customer("ana");
        world.until_nothing_is_owed().await;
        assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), end);
        assert_eq!(world.events::<PaymentConfirmed>(claim).await.len(), 1);
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_was_begun_is_finished_once_after_a_restart() {
    let world = World::new().await;
    world.mesh.facts().confirming = Confirming::Rejects;
    let (ana, claim, payment) = world.pending().await;
    // The money goes back, and nobody hears that it did.
    world.provider.set_behaviour(Behaviour { lose_answers: 100_000, ..Behaviour::default() });
    world.press(&payment, "pay").await;
    wait_until("the money went back", PATIENCE, || async { world.provider.refund_count() == 1 }).await;
    assert_eq!(world.get(&ana, &payment.payment_id).await.unwrap().state(), PaymentState::Confirmed);
    let world = world.restart(async |provider, _mesh| provider.set_behaviour(Behaviour::default())).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert_eq!(world.provider.refund_count(), 1);
    assert_eq!(world.events::<PaymentRefunded>(claim).await.len(), 1);
    world.stop().await;
}
