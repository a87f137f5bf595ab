//! Customers who poll: the time to the next poll, and expiry without polls.

use std::time::Duration;

use onsale_proto::queue::v1::{self as pb, EntryState, ExpireReason};
use onsale_testkit::wait_until;
use uuid::Uuid;

use crate::{
    crowd,
    support::{Person, SOON, World},
};

fn seconds(standing: &pb::Standing) -> i64 {
    standing.next_poll_after.unwrap().seconds
}

async fn heartbeat(world: &World, person: &Person, event: &str) -> pb::Standing {
    let request = pb::HeartbeatRequest { event_id: event.to_owned(), queue_token: String::new() };
    let answer = world.customers().heartbeat(person.ask(request)).await;
    answer.unwrap().into_inner().standing.unwrap()
}

#[tokio::test]
async fn poll_wait_shrinks_towards_the_front() {
    let world = World::start_with(&[("RECONCILE__INTERVAL", "300ms")]).await;
    let (short, long) = (world.open_queue().await, world.open_queue().await);
    crowd::silent(&world, &long, 10_500).await;
    let person = world.customer();
    let far = world.join(&person, &long).await.unwrap().standing.unwrap();
    let near = world.join(&person, &short).await.unwrap().standing.unwrap();
    assert_eq!((far.position, near.position), (10_501, 1));
    assert_eq!((seconds(&far), seconds(&near)), (30, 2));
    // Redis gets the entries inserted by SQL when it is reconciled.
    wait_until("redis knows them", SOON, || async {
        let again = heartbeat(&world, &person, &long).await;
        (again.position, seconds(&again)) == (10_501, 30)
    })
    .await;
    // A customer who waits as told never counts as idle.
    let policy = pb::QueuePolicy {
        idle_timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..pb::QueuePolicy::default()
    };
    world.update_policy(&long, policy, &["idle_timeout"]).await;
    assert_eq!(seconds(&heartbeat(&world, &person, &long).await), 20);
}

#[tokio::test]
async fn heartbeat_keeps_the_entry_and_silence_ends_it() {
    let world = World::start_with(&[("POLICY__IDLE_TIMEOUT", "4s"), ("SWEEP__IDLE_INTERVAL", "100ms")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    let [silent, beating, returning] = [&people[0], &people[1], &people[2]];
    let customer_id = Uuid::parse_str(&silent.customer_id()).unwrap();
    let begin = tokio::time::Instant::now();
    loop {
        heartbeat(&world, beating, &event).await;
        if begin.elapsed() > Duration::from_secs(2) {
            heartbeat(&world, returning, &event).await;
        }
        // Reads the table, because a poll of the customer would count as a heartbeat.
        let sql = "SELECT count(*) FROM entry WHERE customer_id = $1 AND state = 'EXPIRED'";
        if world.count(sql, &[&customer_id]).await == 1 {
            break;
        }
        assert!(begin.elapsed() < SOON, "silence costs the place");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(3), "{:?}", begin.elapsed());
    let lost = world.position(silent, &event).await.unwrap().entry.unwrap();
    assert_eq!((lost.state(), lost.expire_reason()), (EntryState::Expired, ExpireReason::NotSeen));
    assert_eq!(world.position(beating, &event).await.unwrap().position, 1);
    assert_eq!(world.position(returning, &event).await.unwrap().position, 2);
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.expired'", &[]).await;
    assert_eq!(told, 1);
}
