//! Those who ask now and then instead of holding a stream: when to ask again, and what silence costs.

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
async fn the_nearer_to_the_front_the_sooner_one_asks_again() {
    let world = World::start_with(&[("RECONCILE__INTERVAL", "300ms")]).await;
    let (short, long) = (world.open_queue().await, world.open_queue().await);
    crowd::silent(&world, &long, 10_500).await;
    let person = world.customer();
    let far = world.join(&person, &long).await.unwrap().standing.unwrap();
    let near = world.join(&person, &short).await.unwrap().standing.unwrap();
    assert_eq!((far.position, near.position), (10_501, 1));
    assert_eq!((seconds(&far), seconds(&near)), (30, 2));
    // Redis learns of those who joined in nobody's hearing when it is compared.
    wait_until("redis knows them", SOON, || async {
        let again = heartbeat(&world, &person, &long).await;
        (again.position, seconds(&again)) == (10_501, 30)
    })
    .await;
    // Who is asked to come back never loses the place meanwhile.
    let policy = pb::QueuePolicy {
        idle_timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..pb::QueuePolicy::default()
    };
    world.retune(&long, policy, &["idle_timeout"]).await;
    assert_eq!(seconds(&heartbeat(&world, &person, &long).await), 20);
}

#[tokio::test]
async fn a_heartbeat_keeps_the_place_a_return_in_time_too_and_silence_loses_it() {
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
        // The table is asked: a question of the customer would be a sign of life.
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
