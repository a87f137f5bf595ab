//! Stock: exactly the existing units are sold, released units are sold again, and refusals name their reason.

use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::{ClaimState, GetClaimRequest, ReleaseReason},
    payment::v1::PaymentState,
};
use onsale_testkit::wait_until;
use tokio::task::JoinSet;

use super::support::{TIMEOUT, mesh, sale};
use onsale::buy::order::{Order, PurchaseStep, place_order};

#[tokio::test]
async fn fifty_customers_buy_exactly_the_ten_tickets() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let order = Order {
        event_id: event.event_id.clone(),
        sector_id: None,
        count: 1,
        mail_url: None,
        time_max: TIMEOUT * 2,
    };
    let mut crowd = JoinSet::new();
    for _ in 0..50 {
        let (door, order) = (door.clone(), order.clone());
        crowd.spawn(async move {
            let mut tickets = 0;
            let email = sale::unique_email("crowd");
            let done = place_order(&door, &email, &order, |step| {
                if let PurchaseStep::Ticketed(issued) = step {
                    tickets = issued.len();
                }
            });
            match done.await {
                Ok(()) => tickets,
                Err(error) => {
                    assert!(error.is_sold_out(), "{}", onsale_kit::error::Chain(&error));
                    0
                }
            }
        });
    }
    let mut sold = 0;
    while let Some(tickets) = crowd.join_next().await {
        sold += tickets.unwrap();
    }
    assert_eq!(sold, 10);
    mesh.audit().await;

    let late = sale::customer(&door).await;
    let refused = sale::buyer(&door, &late, &event.event_id).join().await.unwrap_err();
    assert_eq!(refused.reason().as_deref(), Some("EVENT_SOLD_OUT"), "{refused}");
}

#[tokio::test]
async fn declined_payment_releases_the_units() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(2)]).await;
    let person = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &person, &event.event_id);
    buyer.join().await.unwrap();
    let turn = buyer.wait_for_turn(|_| ()).await.unwrap();
    let claim = buyer.claim(&turn.token, sale::any_units(&event.sectors[0], 2)).await.unwrap();
    assert_eq!(sale::availability(&person, &event).await[0].free_count, 0);

    let payment = buyer.open_payment(&claim.claim_id).await.unwrap();
    buyer.act_at_provider(&payment, "decline").await.unwrap();
    assert_eq!(buyer.payment_outcome(payment).await.unwrap().state(), PaymentState::Failed);
    wait_until("the claim is released", TIMEOUT, || async {
        let request = GetClaimRequest { claim_id: claim.claim_id.clone() };
        let claim = person.claims().get_claim(request).await.unwrap().into_inner().claim.unwrap();
        claim.state() == ClaimState::Released && claim.release_reason() == ReleaseReason::PaymentFailed
    })
    .await;
    wait_until("the units are free again", TIMEOUT, || async {
        sale::availability(&person, &event).await[0].free_count == 2
    })
    .await;

    // The turn is still valid, so the customer can claim again and pay.
    let claim = buyer.claim(&turn.token, sale::any_units(&event.sectors[0], 2)).await.unwrap();
    sale::pay(&buyer, &claim).await;
    assert_eq!(buyer.tickets(&claim.claim_id, 2).await.unwrap().len(), 2);
    mesh.audit().await;
}

#[tokio::test]
async fn units_of_an_expired_claim_are_sold_to_the_next_customer() {
    let mesh = mesh::with_short_claims();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(2)]).await;
    let (idler, next) = (sale::customer(&door).await, sale::customer(&door).await);
    let claim = sale::claim(&sale::buyer(&door, &idler, &event.event_id), &event.sectors[0], 2).await;

    let waiting = sale::buyer(&door, &next, &event.event_id);
    let standing = waiting.join().await.unwrap();
    assert!(standing.turn.is_none(), "no customer is admitted while no unit is free");
    let turn = waiting.wait_for_turn(|_| ()).await.unwrap();
    let request = GetClaimRequest { claim_id: claim.claim_id.clone() };
    let expired = idler.claims().get_claim(request).await.unwrap().into_inner().claim.unwrap();
    assert_eq!((expired.state(), expired.release_reason()), (ClaimState::Released, ReleaseReason::Expired));

    let claim = waiting.claim(&turn.token, sale::any_units(&event.sectors[0], 2)).await.unwrap();
    let payment = waiting.open_payment(&claim.claim_id).await.unwrap();
    waiting.act_at_provider(&payment, "pay").await.unwrap();
    waiting.payment_outcome(payment).await.unwrap();
    assert_eq!(waiting.tickets(&claim.claim_id, 2).await.unwrap().len(), 2);
    let deadline = Deadline::after(TIMEOUT);
    onsale::buy::order::wait_for_mail(&door, mesh.mail_url(), &next.email, deadline).await.unwrap();
    mesh.audit().await;
}
