//! What becomes of kept units: released ones go back to their quota, unused ones to the public when its time has come.

use onsale_proto::{
    events::v1::{InventoryAvailable, InventorySoldOut},
    inventory::v1::{self as pb, EventState, InvitationState, QuotaState},
};
use onsale_testkit::wait_until;
use onsale_types::{Clock, SystemClock};
use prost_types::Timestamp;
use tonic::Code;

use crate::{
    invited::{a_quota, an_invited_reservation, an_invitee},
    support::{ORGANIZER, SOON, World, count, exactly, general, numbers, reason, refusal, seated},
};

/// Quick to look for what is due.
const QUICK: &[(&str, &str)] = &[("QUOTAS__RETURN_EVERY", "30ms"), ("HOLDS__EXPIRE_EVERY", "30ms")];

async fn wait_for_return(world: &World, event: &pb::Event) {
    wait_until("the quotas are returned", SOON, async || {
        world.list_quotas(event).await.iter().all(|quota| quota.state() == QuotaState::Returned)
    })
    .await;
}

#[tokio::test]
async fn released_units_are_the_quotas_again_and_the_invitation_is_as_good_as_before() {
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
        world.check_books().await;
    }
    // Not in the pool either: the public gets the other seats.
    let public = world.hold(&event, vec![count(&event, 0, 4)]).await.unwrap();
    assert_eq!(numbers(&public, 0), [1, 2, 3, 4]);
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0]));
    let hold = world.hold_invited(&event, exactly(&event, 0, &[5, 8]), "ana", &token).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    world.check_books().await;
}

#[tokio::test]
async fn an_expired_hold_of_an_invitee_goes_back_to_the_quota() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    let quota = world.keep(&event, count(&event, 0, 4)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let mut message = an_invited_reservation(&event, count(&event, 0, 2), "ana", &token);
    message.release_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    world.reserve(message).await.unwrap();
    wait_until("the hold is released", SOON, async || world.counts(&event).await == (4, 0)).await;
    world.hold_invited(&event, count(&event, 0, 2), "ana", &token).await.unwrap();
    world.check_books().await;
}

#[tokio::test]
async fn unused_units_go_to_the_public_when_the_time_has_come() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![seated("A", &[8])]).await;
    // Makes the pool too.
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
    world.check_books().await;
}

#[tokio::test]
async fn what_is_held_at_the_return_may_be_paid_and_goes_to_the_public_if_not() {
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
    world.check_books().await;

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
    assert_eq!(world.counts(&event).await, (9, 0), "the public may have them");
    assert_eq!(reason(world.hold_invited(&event, count(&event, 0, 1), "ivo", &ivo).await), expired);
    let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
    assert_eq!((now.invited_count, now.used_count), (0, 1));
    world.check_books().await;
    for _ in 0..9 {
        world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    }
}

#[tokio::test]
async fn an_invitation_is_worth_nothing_after_its_time_also_before_anybody_looked() {
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
async fn a_sold_out_event_is_on_sale_again_when_a_quota_is_returned() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 4)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&public.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    // Who is invited may still buy, and what they give back is not the public's.
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    assert_eq!(world.counts(&event).await, (0, 2));
    world.release(&hold.hold_id).await.unwrap();
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    assert_eq!(world.told::<InventorySoldOut>().await.len(), 1);
    assert!(world.told::<InventoryAvailable>().await.is_empty());

    world.end_quotas().await;
    wait_for_return(&world, &event).await;
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    let told = world.told::<InventoryAvailable>().await;
    assert_eq!((told.len(), told[0].sectors.len(), told[0].sectors[0].free_count), (1, 1, 1));
    assert!(told[0].revision > world.told::<InventorySoldOut>().await[0].revision);
    world.commit(&hold.hold_id).await.unwrap();
    let last = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&last.hold_id).await.unwrap();
    assert_eq!(world.told::<InventorySoldOut>().await.len(), 2);
    world.check_books().await;
}

#[tokio::test]
async fn held_units_of_a_returned_quota_open_a_sold_out_sale_again() {
    let world = World::start_with(QUICK).await;
    let event = world.on_sale(vec![general("A", 3)]).await;
    let quota = world.keep(&event, count(&event, 0, 2)).await.unwrap();
    let ana = world.invited(&quota, "ana", 2).await;
    let public = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&public.hold_id).await.unwrap();
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &ana).await.unwrap();
    world.end_quotas().await;
    wait_for_return(&world, &event).await;
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut, "nothing came back");
    world.release(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    assert_eq!(world.told::<InventoryAvailable>().await[0].sectors[0].free_count, 2);
    assert_eq!(world.counts(&event).await, (2, 0));
    world.check_books().await;
}

#[tokio::test]
async fn a_release_into_a_quota_sells_the_event_out_when_nothing_else_is_left() {
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
    assert_eq!(world.told::<InventorySoldOut>().await.len(), 1);
    world.check_books().await;
}
