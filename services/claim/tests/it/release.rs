//! `ReleaseClaim`: frees the units of an unpaid claim.

use onsale_proto::{claim::v1 as pb, events::v1::ClaimReleased, inventory::v1::HoldState};
use onsale_testkit::wait_until;
use tonic::Code;
use uuid::Uuid;

use crate::support::{CAPACITY, SOON, World, reason};

#[tokio::test]
async fn release_frees_the_units_and_publishes_an_event() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 3).await;
    let released = world.release(&customer, &claim.claim_id).await.unwrap();
    assert_eq!(world.inventory.free(&world.general), CAPACITY);
    assert_eq!(released.state(), pb::ClaimState::Released);
    assert_eq!(released.release_reason(), pb::ReleaseReason::Customer);
    assert_eq!(released.expire_time, None);
    let states: Vec<_> = released.history.iter().map(|it| (it.state(), it.release_reason())).collect();
    assert_eq!(
        states,
        [
            (pb::ClaimState::Claimed, pb::ReleaseReason::Unspecified),
            (pb::ClaimState::Released, pb::ReleaseReason::Customer)
        ]
    );
    let events = world.events::<ClaimReleased>().await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].claim_id.as_str(), events[0].unit_count), (claim.claim_id.as_str(), 3));
    assert_eq!((events[0].reason(), events[0].fencing_number), (pb::ReleaseReason::Customer, 1));
    // The turn is still valid, so the customer may claim again.
    world.claim(&customer, 2).await;
    world.audit().await;
}

#[tokio::test]
async fn repeated_release_changes_nothing_and_publishes_once() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let request =
        pb::ReleaseClaimRequest { request_id: Uuid::now_v7().to_string(), claim_id: claim.claim_id.clone() };
    let first = world.client().release_claim(customer.ask(request.clone())).await.unwrap().into_inner();
    let retry = world.client().release_claim(customer.ask(request.clone())).await.unwrap().into_inner();
    assert_eq!(first, retry);
    assert_eq!(world.release(&customer, &claim.claim_id).await.unwrap(), first.claim.unwrap());
    assert_eq!(world.events::<ClaimReleased>().await.len(), 1);
    let other = pb::ReleaseClaimRequest { claim_id: Uuid::now_v7().to_string(), ..request };
    let status = world.client().release_claim(customer.ask(other)).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_ID_REUSED");
    world.audit().await;
}

#[tokio::test]
async fn paid_and_foreign_claims_cannot_be_released() {
    let world = World::start().await;
    let (customer, other) = (world.customer(), world.customer());
    let claim = world.claim(&customer, 1).await;
    let status = world.release(&other, &claim.claim_id).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
    world.confirm(world.payment_of(&claim)).await.unwrap();
    let status = world.release(&customer, &claim.claim_id).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "CLAIM_CONFIRMED"));
    world.audit().await;
}

#[tokio::test]
async fn release_reaches_inventory_when_it_is_available_again() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 2).await;
    world.inventory.configure(|inventory| inventory.down = Some(Code::Unavailable));
    let released = world.release(&customer, &claim.claim_id).await.unwrap();
    assert_eq!(released.state(), pb::ClaimState::Released);
    assert_eq!(world.inventory.units_in(HoldState::Held), 2);
    world.inventory.configure(|inventory| inventory.down = None);
    wait_until("the units are free", SOON, async || world.inventory.free(&world.general) == CAPACITY).await;
    world.audit().await;
}
