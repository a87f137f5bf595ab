//! `ConfirmClaim`: a payment ends in one order or in a refund, whatever happens in between.

use futures_util::future::join_all;
use onsale_proto::{
    claim::v1 as pb,
    events::v1::{ClaimReleased, OrderCompleted},
    inventory::v1::HoldState,
};
use tonic::Code;
use uuid::Uuid;

use crate::{
    inventory::PRICE_MINOR,
    support::{CAPACITY, Customer, UNITS_MAX, World, metadata, money, reason, units},
};

/// Creates a claim and waits until it has expired and its units are free.
async fn expired(world: &World, customer: &Customer, request: pb::CreateClaimRequest) -> pb::Claim {
    let claim = world.create(customer, request).await.unwrap();
    world.wait_for(customer, &claim.claim_id, pb::ClaimState::Released).await;
    world.audit().await;
    claim
}

#[tokio::test]
async fn paid_claim_becomes_an_order_with_a_complete_event() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.create(&customer, world.request_seats(&customer, &[3, 4])).await.unwrap();
    let payment = world.payment_of(&claim);
    let confirmed = world.confirm(payment.clone()).await.unwrap();

    assert_eq!(confirmed.state(), pb::ClaimState::Confirmed);
    assert_eq!((confirmed.payment_id.as_str(), confirmed.expire_time), (payment.payment_id.as_str(), None));
    assert_eq!(confirmed.history.len(), 2);
    assert_eq!(world.inventory.units_in(HoldState::Committed), 2);
    let orders = world.events::<OrderCompleted>().await;
    assert_eq!(orders.len(), 1);
    let order = &orders[0];
    assert_eq!(
        (order.claim_id.as_str(), order.payment_id.as_str()),
        (claim.claim_id.as_str(), payment.payment_id.as_str())
    );
    assert_eq!(
        (order.customer_id.as_str(), order.buyer_email.as_str()),
        (customer.id.as_str(), customer.email.as_str())
    );
    assert_eq!(
        (&order.items, &order.total, &order.event),
        (&confirmed.items, &confirmed.total, &confirmed.event)
    );
    assert_eq!((order.fencing_number, order.buyer_locale.as_str()), (1, "hr"));
    world.audit().await;
}

#[tokio::test]
async fn repeated_confirmation_changes_nothing() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let payment = world.payment_of(&claim);
    let first = world.confirm(payment.clone()).await.unwrap();
    let again = pb::ConfirmClaimRequest { request_id: Uuid::now_v7().to_string(), ..payment.clone() };
    assert_eq!(world.confirm(payment.clone()).await.unwrap(), first);
    assert_eq!(world.confirm(again).await.unwrap(), first);
    assert_eq!(world.events::<OrderCompleted>().await.len(), 1);
    let reused = pb::ConfirmClaimRequest { payment_id: Uuid::now_v7().to_string(), ..payment };
    let status = world.confirm(reused).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "REQUEST_ID_REUSED"));
    world.audit().await;
}

#[tokio::test]
async fn ten_concurrent_confirmations_make_one_order() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 2).await;
    let payment = world.payment_of(&claim);
    let calls = (0..10).map(|_| {
        world.confirm(pb::ConfirmClaimRequest { request_id: Uuid::now_v7().to_string(), ..payment.clone() })
    });
    for confirmed in join_all(calls).await {
        assert_eq!(confirmed.unwrap().state(), pb::ClaimState::Confirmed);
    }
    assert_eq!(world.events::<OrderCompleted>().await.len(), 1);
    world.audit().await;
}

#[tokio::test]
async fn wrong_amount_second_payment_and_unknown_claim_are_refused() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let good = world.payment_of(&claim);
    for amount in [
        money(PRICE_MINOR - 1),
        money(PRICE_MINOR + 1),
        Some(onsale_proto::r#type::v1::Money { amount_minor: PRICE_MINOR, currency_code: "USD".to_owned() }),
    ] {
        let wrong = pb::ConfirmClaimRequest { amount, ..world.payment_of(&claim) };
        let status = world.confirm(wrong).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "AMOUNT_MISMATCH"));
    }
    world.confirm(good.clone()).await.unwrap();
    let status = world.confirm(world.payment_of(&claim)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::FailedPrecondition, "CLAIM_PAID_BY_ANOTHER")
    );
    assert_eq!(metadata(&status, "payment_id"), good.payment_id);
    let unknown =
        pb::ConfirmClaimRequest { claim_id: Uuid::now_v7().to_string(), ..world.payment_of(&claim) };
    let status = world.confirm(unknown).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
    let malformed = world.confirm(pb::ConfirmClaimRequest::default()).await.unwrap_err();
    assert_eq!(reason(&malformed), "FIELDS_INVALID");
    world.audit().await;
}

#[tokio::test]
async fn one_of_two_concurrent_payments_is_refused() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let answers = join_all((0..2).map(|_| world.confirm(world.payment_of(&claim)))).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(reason(refused[0]), "CLAIM_PAID_BY_ANOTHER");
    world.audit().await;
}

#[tokio::test]
async fn claim_with_a_lost_hold_gets_the_same_seats_if_free() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.create(&customer, world.request_seats(&customer, &[5, 6])).await.unwrap();
    world.inventory.lose_holds();
    let confirmed = world.confirm(world.payment_of(&claim)).await.unwrap();
    assert_eq!((confirmed.state(), units(&confirmed)), (pb::ClaimState::Confirmed, vec![5, 6]));
    world.audit().await;
}

#[tokio::test]
async fn claim_paid_after_expiry_gets_the_same_number_of_units() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "200ms")]).await;
    let customer = world.customer();
    let claim = expired(&world, &customer, world.request_seats(&customer, &[1, 2])).await;
    world.inventory.sell_elsewhere(&world.seated, [1]);
    let confirmed = world.confirm(world.payment_of(&claim)).await.unwrap();
    assert_eq!((confirmed.state(), units(&confirmed)), (pb::ClaimState::Confirmed, vec![2, 3]));
    assert_eq!(confirmed.total, claim.total);
    let states: Vec<_> = confirmed.history.iter().map(pb::ClaimTransition::state).collect();
    assert_eq!(states, [pb::ClaimState::Claimed, pb::ClaimState::Released, pb::ClaimState::Confirmed]);
    let orders = world.events::<OrderCompleted>().await;
    assert_eq!((orders.len(), &orders[0].items), (1, &confirmed.items));
    world.audit().await;
}

#[tokio::test]
async fn late_payment_without_free_units_rejects_the_claim_for_good() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "200ms")]).await;
    let customer = world.customer();
    let claim = expired(&world, &customer, world.request_seats(&customer, &[1, 2])).await;
    world.inventory.sell_elsewhere(&world.seated, 2..=CAPACITY);
    let payment = world.payment_of(&claim);
    let rejected = world.confirm(payment.clone()).await.unwrap();
    assert_eq!(
        (rejected.state(), rejected.release_reason()),
        (pb::ClaimState::Released, pb::ReleaseReason::Rejected)
    );
    assert_eq!(rejected.payment_id, "");
    let reasons: Vec<_> =
        world.events::<ClaimReleased>().await.iter().map(|it| (it.reason(), it.unit_count)).collect();
    assert_eq!(reasons, [(pb::ReleaseReason::Expired, 2), (pb::ReleaseReason::Rejected, 0)]);
    assert!(world.events::<OrderCompleted>().await.is_empty());

    // Units that become free later do not revive the claim, because the refund has begun.
    let again = pb::ConfirmClaimRequest { request_id: Uuid::now_v7().to_string(), ..payment };
    world.inventory.add_sector(&world.seated, CAPACITY, true);
    assert_eq!(world.confirm(again).await.unwrap(), rejected);
    let status = world.confirm(world.payment_of(&claim)).await.unwrap_err();
    assert_eq!(reason(&status), "CLAIM_PAID_BY_ANOTHER");
    world.audit().await;
}

#[tokio::test]
async fn late_payment_beyond_the_limit_is_rejected() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "1s")]).await;
    let customer = world.customer();
    let late = expired(&world, &customer, world.request_units(&customer, 2)).await;
    let second = world.claim(&customer, UNITS_MAX - 1).await;
    world.confirm(world.payment_of(&second)).await.unwrap();
    let rejected = world.confirm(world.payment_of(&late)).await.unwrap();
    assert_eq!(rejected.release_reason(), pb::ReleaseReason::Rejected);
    world.audit().await;
}

#[tokio::test]
async fn concurrent_late_payments_reserve_once() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "200ms")]).await;
    let customer = world.customer();
    for _ in 0..2 {
        let claim = expired(&world, &customer, world.request_seats(&customer, &[1, 2])).await;
        let payment = world.payment_of(&claim);
        let calls = (0..10).map(|_| {
            let request_id = Uuid::now_v7().to_string();
            world.confirm(pb::ConfirmClaimRequest { request_id, ..payment.clone() })
        });
        for answer in join_all(calls).await {
            match answer {
                Ok(claim) => assert_eq!(claim.state(), pb::ClaimState::Confirmed),
                Err(status) => assert_eq!(reason(&status), "CONTENDED"),
            }
        }
        assert_eq!(world.confirm(payment).await.unwrap().state(), pb::ClaimState::Confirmed);
        world.audit().await;
        // The next round needs the same seats again.
        world.inventory.add_sector(&world.seated, CAPACITY, true);
    }
    assert_eq!(world.events::<OrderCompleted>().await.len(), 2);
}

#[tokio::test]
async fn settlement_waits_while_inventory_is_unavailable() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "200ms")]).await;
    let customer = world.customer();
    let claim = expired(&world, &customer, world.request_units(&customer, 1)).await;
    let payment = world.payment_of(&claim);
    for code in [Code::Unavailable, Code::Internal] {
        world.inventory.configure(|inventory| inventory.down = Some(code));
        let status = world.confirm(payment.clone()).await.unwrap_err();
        assert_eq!(status.code(), code);
    }
    world.inventory.configure(|inventory| inventory.down = None);
    assert_eq!(world.confirm(payment).await.unwrap().state(), pb::ClaimState::Confirmed);
    world.audit().await;
}

#[tokio::test]
async fn claim_released_by_its_customer_and_paid_later_is_confirmed() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 2).await;
    world.release(&customer, &claim.claim_id).await.unwrap();
    assert_eq!(world.confirm(world.payment_of(&claim)).await.unwrap().state(), pb::ClaimState::Confirmed);
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), CAPACITY - 2);
}
