//! Idempotency of `CreateClaim`.

use futures_util::future::join_all;
use onsale_proto::{claim::v1 as pb, inventory::v1::HoldState};
use tonic::Code;

use crate::support::{World, reason};

#[tokio::test]
async fn retry_after_the_turn_returns_the_current_claim() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 2);
    let first = world.create(&customer, request.clone()).await.unwrap();
    world.queue.refuse(Some((Code::FailedPrecondition, "TURN_ENDED")));
    assert_eq!(world.create(&customer, request.clone()).await.unwrap(), first);
    let released = world.release(&customer, &first.claim_id).await.unwrap();
    assert_eq!(world.create(&customer, request).await.unwrap(), released);
    world.audit().await;
}

#[tokio::test]
async fn ten_concurrent_repeats_make_one_claim_and_one_hold() {
    let world = World::start().await;
    for _ in 0..5 {
        let customer = world.customer();
        let request = world.request_units(&customer, 1);
        let answers = join_all((0..10).map(|_| world.create(&customer, request.clone()))).await;
        let claims: Vec<pb::Claim> = answers.into_iter().map(Result::unwrap).collect();
        assert!(claims.iter().all(|claim| *claim == claims[0]));
    }
    world.audit().await;
    assert_eq!(world.inventory.ids_in(HoldState::Held).len(), 5);
}

#[tokio::test]
async fn request_id_with_another_body_is_refused() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 1);
    let other = pb::CreateClaimRequest {
        request_id: request.request_id.clone(),
        ..world.request_units(&customer, 2)
    };
    world
        .inventory
        .configure(|inventory| inventory.refuses = Some((Code::FailedPrecondition, "NOT_ENOUGH_UNITS")));
    let status = world.create(&customer, request.clone()).await.unwrap_err();
    assert_eq!(reason(&status), "NOT_ENOUGH_UNITS");
    world.inventory.configure(|inventory| inventory.refuses = None);
    for _ in 0..2 {
        let status = world.create(&customer, other.clone()).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "REQUEST_ID_REUSED"));
        // The first request succeeds between the two attempts.
        world.create(&customer, request.clone()).await.unwrap();
    }
    world.audit().await;
}

#[tokio::test]
async fn two_customers_may_use_the_same_request_id() {
    let world = World::start().await;
    let (one, two) = (world.customer(), world.customer());
    let first = world.request_units(&one, 1);
    let second =
        pb::CreateClaimRequest { request_id: first.request_id.clone(), ..world.request_units(&two, 1) };
    let (first, second) =
        (world.create(&one, first).await.unwrap(), world.create(&two, second).await.unwrap());
    assert_ne!(first.claim_id, second.claim_id);
    world.audit().await;
}
