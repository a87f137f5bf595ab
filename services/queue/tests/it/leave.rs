//! `LeaveQueue`: it ends the entry on all devices, and a new join is at the end of the line.

use onsale_proto::queue::v1::{self as pb, EntryState, ExpireReason};
use tonic::Code;
use uuid::Uuid;

use crate::support::{World, refused};

#[tokio::test]
async fn leaver_lets_others_move_up_and_rejoins_at_the_end() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    let left = world.leave(&people[0], &event).await.unwrap();
    assert_eq!((left.state(), left.expire_reason()), (EntryState::Left, ExpireReason::Left));
    assert!(left.end_time.is_some());
    assert_eq!(world.position(&people[1], &event).await.unwrap().position, 1);
    assert_eq!(world.position(&people[2], &event).await.unwrap().position, 2);
    let back = world.join(&people[0], &event).await.unwrap().standing.unwrap();
    let entry = back.entry.unwrap();
    assert_eq!((entry.seq, back.position), (4, 3));
    assert_ne!(entry.entry_id, left.entry_id);
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.expired'", &[]).await;
    assert_eq!(told, 1);
}

#[tokio::test]
async fn second_leave_returns_the_ended_entry() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let request = pb::LeaveQueueRequest { request_id: Uuid::now_v7().to_string(), event_id: event.clone() };
    let leave = || async {
        world.customers().leave_queue(person.ask(request.clone())).await.unwrap().into_inner().entry
    };
    let first = leave().await;
    assert_eq!(first, leave().await);
    assert_eq!(first, Some(world.leave(&person, &event).await.unwrap()));
    // A repeat of the old request does not end the new entry.
    world.join(&person, &event).await.unwrap();
    assert_eq!(first, leave().await);
    assert_eq!(world.position(&person, &event).await.unwrap().position, 1);
}

#[tokio::test]
async fn customer_who_never_joined_cannot_leave() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.join_all(1, &event).await;
    refused(world.leave(&world.customer(), &event).await, Code::NotFound, "ENTRY_NOT_FOUND");
    let unknown = Uuid::now_v7().to_string();
    refused(world.leave(&world.customer(), &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
}
