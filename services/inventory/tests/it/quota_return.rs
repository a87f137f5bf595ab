//! Return of kept units: a released unit goes back to its quota, an unused one to the public sale at the return time.

use onsale_proto::{
    events::v1::{InventoryAvailable, InventorySoldOut},
    inventory::v1::{self as pb, EventState, InvitationState, QuotaState},
};
use onsale_testkit::wait_until;
use onsale_types::{Clock, SystemClock};
use prost_types::Timestamp;
use tonic::Code;

use crate::{
    support::quotas::{a_quota, an_invited_reservation, an_invitee},
    support::{ORGANIZER, SOON, World, count, exactly, general, numbers, reason, refusal, seated},
};

/// Looks for due quotas and expired holds at short intervals.
const QUICK: &[(&str, &str)] = &[("QUOTAS__RETURN_EVERY", "30ms"), ("HOLDS__EXPIRE_EVERY", "30ms")];

async fn wait_for_return(world: &World, event: &pb::Event) {
    wait_until("the quotas are returned", SOON, async || {
        world.list_quotas(event).await.iter().all(|quota| quota.state() == QuotaState::Returned)
    })
    .await;
}

#[tokio::test]
async fn released_units_return_to_the_quota_and_can_be_held_again() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[8])]).await;
    let quota = world.keep(&event, exactly(&event, 0, &[5, 6, 7, 8])).await.unwrap();
    let token = world.invited(&quota, "ana", 3).await;
    for _ in 0..2 {
        let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &token).await.unwrap();
        assert_eq!(world.counts(&event).await, (4, 2));
        world.release(&hold.hold_id).await.unwrap();
        world.release(&hold.hold_id).await.unwrap();
        assert_eq!(world.counts(&event).await, (4, 0));
        let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
        assert_eq!((now.invited_count, now.used_count), (3, 0));
        world.assert_counts().await;
    }
    // The pool does not offer them either: the public gets the other seats.
    let public = world.hold(&event, vec![count(&event, 0, 4)]).await.unwrap();
    assert_eq!(numbers(&public, 0), [1, 2, 3, 4]);
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0]));
    let hold = world.hold_invited(&event, exactly(&event, 0, &[5, 8]), "ana", &token).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    world.assert_counts().await;
}

#[tokio::test]
async fn expired_hold_of_an_invitee_returns_to_the_quota() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    let quota = world.keep(&event, count(&event, 0, 4)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let mut message = an_invited_reservation(&event, count(&event, 0, 2), "ana", &token);
    message.release_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    world.reserve(message).await.unwrap();
    wait_until("the hold is released", SOON, async || world.counts(&event).await == (4, 0)).await;
    world.hold_invited(&event, count(&event, 0, 2), "ana", &token).await.unwrap();
    world.assert_counts().await;
}

#[tokio::test]
async fn unused_units_go_to_the_public_at_the_return_time() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![seated("A", &[8])]).await;
    // Also creates the pool.
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    assert_eq!(numbers(&public, 0), [1]);
    world.commit(&public.hold_id).await.unwrap();
    let seconds = SystemClock.now().as_micros() / 1_000_000 + 2;
    let soon = pb::CreateQuotaRequest {
        return_time: Some(Timestamp { seconds, nanos: 0 }),
        ..a_quota(&event, exactly(&event, 0, &[3, 4, 5, 6, 7, 8]))
    };
    world.create_quota(ORGANIZER, soon).await.unwrap();
    assert_eq!(world.counts(&event).await.0, 1);
    wait_for_return(&world, &event).await;
    assert_eq!(world.counts(&event).await, (7, 0));
    wait_until("the pool offers them", SOON, async || {
        world.pool_bytes(&event, 0).await == Some(vec![0b0111_1111])
    })
    .await;
    world.hold(&event, vec![count(&event, 0, 7)]).await.unwrap();
    world.assert_counts().await;
}

#[tokio::test]
async fn units_held_at_the_return_are_paid_or_go_to_the_public() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 8)).await.unwrap();
    let (ana, ivo) = (world.invited(&quota, "ana", 2).await, world.invited(&quota, "ivo", 3).await);
    let eve = world.invited(&quota, "eve", 1).await;
    world.invite(&quota, vec![an_invitee("late@example.test", 2)]).await.unwrap();
    let late = world.mailed_token("late@example.test").await;
    let paid = world.hold_invited(&event, count(&event, 0, 1), "ana", &ana).await.unwrap();
    let unpaid = world.hold_invited(&event, count(&event, 0, 3), "ivo", &ivo).await.unwrap();
    world.end_quotas().await;
    wait_for_return(&world, &event).await;
    let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
    assert_eq!((now.invited_count, now.used_count), (0, 4));
    assert_eq!(world.counts(&event).await, (6, 4));
    world.assert_counts().await;

    let expired = (Code::FailedPrecondition, "INVITATION_EXPIRED".to_owned());
    let (code, text, metadata) = refusal(world.accept("late", &late).await);
    assert_eq!((code, text), expired);
    assert!(metadata.contains_key("invitation_id") && metadata.contains_key("expire_time"), "{metadata:?}");
    assert_eq!(reason(world.accept("eve", &eve).await), expired);
    assert_eq!(reason(world.hold_invited(&event, count(&event, 0, 1), "eve", &eve).await), expired);
    let used = world.hold_invited(&event, count(&event, 0, 1), "ana", &ana).await;
    assert_eq!(reason(used).1, "INVITATION_USED");
    let held = world.accept("ana", &ana).await.unwrap().invitation.unwrap();
    assert_eq!(held.state(), InvitationState::Accepted);

    world.commit(&paid.hold_id).await.unwrap();
    world.release(&unpaid.hold_id).await.unwrap();
    assert_eq!(world.counts(&event).await, (9, 0), "the units are in the public sale");
    assert_eq!(reason(world.hold_invited(&event, count(&event, 0, 1), "ivo", &ivo).await), expired);
    let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
    assert_eq!((now.invited_count, now.used_count), (0, 1));
    world.assert_counts().await;
    for _ in 0..9 {
        world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    }
}

#[tokio::test]
async fn invitation_expires_at_the_return_time_before_the_worker_runs() {
    let world = World::start_with(&[("QUOTAS__RETURN_EVERY", "1h")]).await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 8)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    world.invite(&quota, vec![an_invitee("late@example.test", 2)]).await.unwrap();
    let late = world.mailed_token("late@example.test").await;
    world.end_quotas().await;
    assert_eq!(reason(world.accept("late", &late).await).1, "INVITATION_EXPIRED");
    assert_eq!(reason(world.accept("ana", &ana).await).1, "INVITATION_EXPIRED");
    let hold = world.hold_invited(&event, count(&event, 0, 1), "ana", &ana).await;
    assert_eq!(reason(hold).1, "INVITATION_EXPIRED");
    assert_eq!(world.list_quotas(&event).await[0].state(), QuotaState::Open);
}

#[tokio::test]
async fn returned_quota_reopens_a_sold_out_sale() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 4)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&public.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    // An invitee may still buy, and units that the invitee releases stay with the quota.
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    assert_eq!(world.counts(&event).await, (0, 2));
    world.release(&hold.hold_id).await.unwrap();
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    assert_eq!(world.published::<InventorySoldOut>().await.len(), 1);
    assert!(world.published::<InventoryAvailable>().await.is_empty());

    world.end_quotas().await;
    wait_for_return(&world, &event).await;
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    let published = world.published::<InventoryAvailable>().await;
    assert_eq!((published.len(), published[0].sectors.len(), published[0].sectors[0].free_count), (1, 1, 1));
    assert!(published[0].revision > world.published::<InventorySoldOut>().await[0].revision);
    world.commit(&hold.hold_id).await.unwrap();
    let last = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&last.hold_id).await.unwrap();
    assert_eq!(world.published::<InventorySoldOut>().await.len(), 2);
    world.assert_counts().await;
}

#[tokio::test]
async fn released_units_of_a_returned_quota_reopen_the_sale() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 3)]).await;
    let quota = world.keep(&event, count(&event, 0, 2)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&public.hold_id).await.unwrap();
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    world.end_quotas().await;
    wait_for_return(&world, &event).await;
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut, "no unit was freed");
    world.release(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    assert_eq!(world.published::<InventoryAvailable>().await[0].sectors[0].free_count, 2);
    assert_eq!(world.counts(&event).await, (2, 0));
    world.assert_counts().await;
}

#[tokio::test]
async fn release_into_a_quota_sells_out_an_event_without_free_units() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 3)]).await;
    let quota = world.keep(&event, count(&event, 0, 2)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    let hold = world.hold_invited(&event, count(&event, 0, 1), "ana", &ana).await.unwrap();
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&public.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale, "a unit is held");
    world.release(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.published::<InventorySoldOut>().await.len(), 1);
    world.assert_counts().await;
}
