//! `CommitHold`, `ReleaseHold` and expiry.

use futures_util::future::join_all;
use onsale_proto::inventory::v1::{self as pb, HoldState};
use onsale_testkit::wait_until;
use tonic::Code;

use crate::support::{
    SOON, World, a_reservation, count, exactly, fields, general, numbers, reason, refusal, request_id, seated,
};

#[tokio::test]
async fn committed_hold_is_sold_and_cannot_be_released() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    assert_eq!(world.counts(&event).await, (3, 2));
    let committed = world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(committed.state(), HoldState::Committed);
    assert_eq!(committed.items, hold.items);
    assert_eq!(world.counts(&event).await, (3, 0));
    assert_eq!(world.commit(&hold.hold_id).await.unwrap(), committed);
    assert_eq!(world.number("SELECT sum(sold_count) AS count FROM sector_sale", &[]).await, 2);
    let (code, text, metadata) = refusal(world.release(&hold.hold_id).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "HOLD_COMMITTED"));
    assert_eq!(metadata["hold_id"], hold.hold_id);
    assert_eq!(world.taken().await, 2);
}

#[tokio::test]
async fn released_hold_frees_its_units_and_cannot_be_committed() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[2])]).await;
    let hold = world.hold(&event, vec![exactly(&event, 0, &[1, 2])]).await.unwrap();
    let released = world.release(&hold.hold_id).await.unwrap();
    assert_eq!((released.state(), &released.items), (HoldState::Released, &hold.items));
    assert_eq!(world.release(&hold.hold_id).await.unwrap(), released);
    assert_eq!(world.counts(&event).await, (2, 0));
    let next = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    assert_eq!(numbers(&next, 0), [1, 2]);
    let (code, text, metadata) = refusal(world.commit(&hold.hold_id).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "HOLD_RELEASED"));
    assert_eq!(metadata["hold_id"], hold.hold_id);
    // A late repeat does not take the units from their new holder.
    world.release(&hold.hold_id).await.unwrap();
    assert_eq!(world.taken().await, 2);
    world.commit(&next.hold_id).await.unwrap();
}

#[tokio::test]
async fn unknown_hold_and_malformed_ids_are_refused() {
    let world = World::start().await;
    let unknown = (Code::NotFound, "HOLD_NOT_FOUND".to_owned());
    assert_eq!(reason(world.commit(&request_id()).await), unknown);
    let commit = world.internal.clone().commit_hold(world.as_claim(pb::CommitHoldRequest::default())).await;
    assert_eq!(fields(commit), ["request_id", "hold_id"]);
    let release =
        world.internal.clone().release_hold(world.as_claim(pb::ReleaseHoldRequest::default())).await;
    assert_eq!(fields(release), ["request_id", "hold_id"]);
}

#[tokio::test]
async fn hold_released_before_it_is_made_cannot_be_made() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    let message = a_reservation(&event, vec![count(&event, 0, 2)]);
    let released = world.release(&message.hold_id).await.unwrap();
    assert_eq!((released.state(), released.items.len()), (HoldState::Released, 0));
    let late = world.reserve(message.clone()).await.unwrap().hold.unwrap();
    assert_eq!((late.state(), late.items.len()), (HoldState::Released, 0));
    assert_eq!(late.customer_id, message.customer_id);
    assert_eq!(reason(world.commit(&message.hold_id).await).1, "HOLD_RELEASED");
    assert_eq!((world.taken().await, world.counts(&event).await), (0, (5, 0)));
    assert_eq!(numbers(&world.hold(&event, vec![count(&event, 0, 5)]).await.unwrap(), 0), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn release_concurrent_with_its_reservation_leaves_nothing_held() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 200)]).await;
    let both = (0..40).map(|_| async {
        let message = a_reservation(&event, vec![count(&event, 0, 2)]);
        let hold_id = message.hold_id.clone();
        let (reserved, released) = tokio::join!(world.reserve(message), world.release(&hold_id));
        reserved.unwrap();
        assert_eq!(released.unwrap().state(), HoldState::Released);
    });
    join_all(both).await;
    assert_eq!((world.taken().await, world.counts(&event).await), (0, (200, 0)));
}

#[tokio::test]
async fn hold_with_concurrent_ends_ends_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    for _ in 0..5 {
        let hold = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
        let ends =
            (0..20).map(|number| {
                let (world, hold_id) = (&world, &hold.hold_id);
                async move {
                    if number % 2 == 0 { world.commit(hold_id).await } else { world.release(hold_id).await }
                }
            });
        let ends = join_all(ends).await;
        let served: Vec<HoldState> = ends.iter().flatten().map(pb::Hold::state).collect();
        assert_eq!(served.len(), 10, "all commits succeed, or all releases");
        assert!(served.iter().all(|state| *state == served[0]));
    }
    let sold = world.number("SELECT sum(sold_count) AS count FROM sector_sale", &[]).await;
    assert_eq!(world.taken().await, sold);
}

#[tokio::test]
async fn expired_hold_is_released_and_a_committed_one_is_not() {
    let world = World::start_with(&[("HOLDS__EXPIRE_EVERY", "50ms"), ("HOLDS__EXPIRE_BATCH_MAX", "1")]).await;
    let event = world.on_sale(vec![general("A", 5), seated("B", &[3])]).await;
    let mut short = Vec::new();
    for selection in [count(&event, 0, 2), count(&event, 1, 3), count(&event, 0, 1)] {
        let mut message = a_reservation(&event, vec![selection]);
        message.release_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        short.push(world.reserve(message).await.unwrap().hold.unwrap());
    }
    world.commit(&short[2].hold_id).await.unwrap();
    let long = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    wait_until("two holds are released", SOON, async || world.taken().await == 2).await;
    assert_eq!(reason(world.commit(&short[0].hold_id).await).1, "HOLD_RELEASED");
    assert_eq!(world.release(&short[1].hold_id).await.unwrap().state(), HoldState::Released);
    world.commit(&long.hold_id).await.unwrap();
    let next = world.hold(&event, vec![count(&event, 1, 3)]).await.unwrap();
    assert_eq!(numbers(&next, 0), [1, 2, 3]);
}

#[tokio::test]
async fn hold_can_be_committed_after_the_end_of_the_sale() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    world.end(&event.event_id).await.unwrap();
    assert_eq!(world.commit(&hold.hold_id).await.unwrap().state(), HoldState::Committed);
}
