//! Updates of Inventory in any order.

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
async fn queue_opens_when_the_activation_arrives_before_the_creation() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    world.activate_event(&event, 2, None).await;
    world.wait_for_state(&event, QueueState::Scheduled).await;
    // The queue is not found until its organizer is known.
    refused(world.join(&world.customer(), &event).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(world.snapshot(&event).await, Code::NotFound, "EVENT_NOT_FOUND");
    world.create_event(&event, 1).await;
    world.wait_for_state(&event, QueueState::Open).await;
    world.join(&world.customer(), &event).await.unwrap();
}

#[tokio::test]
async fn queue_opens_by_itself_at_its_time() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    let opens = SystemClock.now().checked_add(Duration::from_millis(800)).unwrap();
    world.create_event(&event, 1).await;
    world.activate_event(&event, 2, Some(opens)).await;
    world.wait_for_state(&event, QueueState::Open).await;
    assert!(SystemClock.now() >= opens);
}

#[tokio::test]
async fn older_stock_update_does_not_close_the_queue() {
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
async fn end_of_the_event_closes_the_queue_and_ends_entries() {
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
    // A late activation with an older revision does not open the queue.
    world.activate_event(&event, 2, None).await;
    let handled = "SELECT count(*) FROM inbox";
    wait_until("all are handled", SOON, || async { world.count(handled, &[]).await == 4 }).await;
    refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_CLOSED");
}
