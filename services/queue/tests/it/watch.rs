//! `WatchQueue`: the full state first, then its changes, on every device of a customer.

use onsale_proto::{
    events::v1::{InventoryAvailable, InventorySoldOut},
    queue::v1::{CloseReason, ExpireReason, QueueState, queue_update::Update},
};
use tonic::Code;

use crate::support::{World, refused};

#[tokio::test]
async fn first_message_is_the_full_state_and_steps_follow() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    let mut watcher = world.watch(&people[2], &event).await.unwrap();
    let Some(Update::PositionUpdate(first)) = watcher.next().await else { panic!("a position comes first") };
    assert_eq!((first.seq, first.position), (3, 3));
    assert_eq!(first.queue_state(), QueueState::Open);
    let before = watcher.revision;
    world.leave(&people[0], &event).await.unwrap();
    watcher.until_position(2).await;
    world.leave(&people[1], &event).await.unwrap();
    watcher.until_position(1).await;
    assert!(watcher.revision > before);
}

#[tokio::test]
async fn customer_who_never_joined_cannot_watch() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let watch = world.watch(&world.customer(), &event).await.map(|_| ());
    refused(watch, Code::NotFound, "ENTRY_NOT_FOUND");
}

#[tokio::test]
async fn turn_is_sent_to_every_device_and_to_later_streams() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut phone = world.watch(&person, &event).await.unwrap();
    let mut laptop = world.watch(&person, &event).await.unwrap();
    phone.until_position(1).await;
    laptop.until_position(1).await;
    world.inventory.set_free(10);
    let turn = phone.until_turn().await;
    assert_eq!(laptop.until_turn().await, turn);
    assert_eq!(turn.checkout_url, format!("https://shop.test/events/{event}/checkout"));
    let mut again = world.watch_from(&person, &event, phone.revision).await.unwrap();
    let Some(Update::TurnGranted(first)) = again.next().await else { panic!("the turn comes first") };
    assert_eq!(first.turn, Some(turn));
}

#[tokio::test]
async fn pause_and_resume_are_sent_and_nobody_is_admitted_between() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    watcher.until_position(1).await;
    world.pause(&event, true).await;
    let Some(Update::QueuePaused(paused)) = watcher.next().await else { panic!("the pause is told") };
    assert_eq!((paused.joins_paused, paused.notice.as_str()), (true, "one moment"));
    world.inventory.set_free(10);
    // A stream that opens now gets the pause too.
    let mut late = world.watch(&person, &event).await.unwrap();
    assert!(matches!(late.next().await, Some(Update::PositionUpdate(_))));
    assert!(matches!(late.next().await, Some(Update::QueuePaused(_))));
    world.resume(&event).await.unwrap();
    // In either order, because one round may see both the end of the pause and the turn.
    let (mut is_resumed, mut is_admitted) = (false, false);
    while !(is_resumed && is_admitted) {
        match watcher.next().await.expect("the stream goes on") {
            Update::QueueResumed(_) => is_resumed = true,
            Update::TurnGranted(_) => is_admitted = true,
            _ => {}
        }
    }
}

#[tokio::test]
async fn sell_out_and_its_end_are_sent_and_entries_stay() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(2, &event).await;
    let mut watcher = world.watch(&people[1], &event).await.unwrap();
    watcher.until_position(2).await;
    let sold_out = InventorySoldOut { event_id: event.clone(), revision: 5, sold_out_time: None };
    world.say(&event, &sold_out).await;
    let Some(Update::QueueClosed(closed)) = watcher.next().await else { panic!("the sell-out is told") };
    assert_eq!(closed.reason(), CloseReason::SoldOut);
    assert_eq!(world.position(&people[1], &event).await.unwrap().position, 2);
    let available =
        InventoryAvailable { event_id: event.clone(), revision: 6, ..InventoryAvailable::default() };
    world.say(&event, &available).await;
    let Some(Update::QueueResumed(_)) = watcher.next().await else { panic!("the reopening is told") };
    world.inventory.set_free(10);
    watcher.until_turn().await;
}

#[tokio::test]
async fn leave_on_one_device_ends_the_stream_of_the_other() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    watcher.until_position(1).await;
    world.leave(&person, &event).await.unwrap();
    let Some(Update::EntryExpired(expired)) = watcher.next().await else { panic!("the end is told") };
    assert_eq!(expired.reason(), ExpireReason::Left);
    assert_eq!(watcher.next().await, None);
    // A stream that opens again gets the same.
    let mut late = world.watch(&person, &event).await.unwrap();
    assert!(matches!(late.next().await, Some(Update::EntryExpired(_))));
    assert_eq!(late.next().await, None);
}

#[tokio::test]
async fn final_close_ends_waiting_entries_and_their_streams() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    watcher.until_position(1).await;
    world.close(&event, CloseReason::Canceled).await.unwrap();
    match watcher.next().await {
        Some(Update::QueueClosed(closed)) => assert_eq!(closed.reason(), CloseReason::Canceled),
        Some(Update::EntryExpired(expired)) => assert_eq!(expired.reason(), ExpireReason::QueueClosed),
        other => panic!("{other:?}"),
    }
    assert_eq!(watcher.next().await, None);
    onsale_testkit::wait_until("the place is gone", crate::support::SOON, || async {
        let entry = world.position(&person, &event).await.unwrap().entry.unwrap();
        entry.expire_reason() == ExpireReason::QueueClosed
    })
    .await;
}

#[tokio::test]
async fn watcher_gets_its_position_even_if_nothing_moves() {
    let world = World::start_with(&[("WATCH__POSITION_INTERVAL", "300ms")]).await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    for _ in 0..3 {
        watcher.until_position(1).await;
    }
}
