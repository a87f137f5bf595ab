//! What Inventory says, in whatever order it arrives.

use std::time::Duration;

use onsale_proto::{
    events::v1::{EventEnded, InventoryAvailable, InventorySoldOut},
    queue::v1::{CloseReason, ExpireReason, QueueState},
};
use onsale_testkit::wait_until;
use onsale_types::{Clock, SystemClock};
use tonic::Code;
use uuid::Uuid;

use crate::support::{SOON, World, refused};

#[tokio::test]
async fn an_activation_that_overtakes_its_creation_opens_the_queue_when_both_are_there() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    world.activate_event(&event, 2, None).await;
    world.wait_for_state(&event, QueueState::Scheduled).await;
    // Until somebody says whose it is, it does not exist.
    refused(world.join(&world.customer(), &event).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(world.snapshot(&event).await, Code::NotFound, "EVENT_NOT_FOUND");
    world.create_event(&event, 1).await;
    world.wait_for_state(&event, QueueState::Open).await;
    world.join(&world.customer(), &event).await.unwrap();
}

#[tokio::test]
async fn a_queue_opens_by_itself_at_its_time() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    let opens = SystemClock.now().checked_add(Duration::from_millis(800)).unwrap();
    world.create_event(&event, 1).await;
    world.activate_event(&event, 2, Some(opens)).await;
    world.wait_for_state(&event, QueueState::Open).await;
    assert!(SystemClock.now() >= opens);
}

#[tokio::test]
async fn an_older_report_of_the_stock_does_not_close_what_a_newer_one_opened() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let stock = "SELECT stock_revision FROM queue WHERE event_id = $1";
    let event_id = Uuid::parse_str(&event).unwrap();
    let available = InventoryAvailable { event_id: event.clone(), revision: 9, ..Default::default() };
    world.say(&event, &available).await;
    wait_until("the newer is known", SOON, || async { world.count(stock, &[&event_id]).await == 9 }).await;
    let sold_out = InventorySoldOut { event_id: event.clone(), revision: 8, sold_out_time: None };
    world.say(&event, &sold_out).await;
    let handled = "SELECT count(*) FROM inbox";
    wait_until("all are handled", SOON, || async { world.count(handled, &[]).await == 4 }).await;
    world.join(&world.customer(), &event).await.unwrap();
}

#[tokio::test]
async fn an_event_that_ends_closes_its_queue_and_ends_every_place() {
    let world = World::start_with(&[("SWEEP__BATCH_MAX", "3")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(7, &event).await;
    let ended = EventEnded { event_id: event.clone(), revision: 3, end_time: None };
    world.say(&event, &ended).await;
    world.wait_for_state(&event, QueueState::Closed).await;
    for person in &people {
        wait_until("the place has ended", SOON, || async {
            let entry = world.position(person, &event).await.unwrap().entry.unwrap();
            entry.expire_reason() == ExpireReason::QueueClosed
        })
        .await;
    }
    wait_until("the public facts say so", SOON, || async {
        let facts = world.snapshot(&event).await.unwrap();
        facts.close_reason() == CloseReason::Ended && facts.waiting_count == 0
    })
    .await;
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.expired'", &[]).await;
    assert_eq!(told, 7);
    // A late activation of an older revision opens nothing.
    world.activate_event(&event, 2, None).await;
    let handled = "SELECT count(*) FROM inbox";
    wait_until("all are handled", SOON, || async { world.count(handled, &[]).await == 4 }).await;
    refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_CLOSED");
}
