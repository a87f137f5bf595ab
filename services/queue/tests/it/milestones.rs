//! Milestone pushes: a customer without an open stream gets one push per milestone passed.

use std::collections::BTreeSet;

use onsale_proto::{
    auth::v1::Role,
    events::v1::{Envelope, QueuePositionUpdate},
    queue::v1 as pb,
};
use onsale_queue::store::{keys::Keys, presence::Presence};
use onsale_storage::redis::Command;
use onsale_testkit::wait_until;
use onsale_types::{EntryId, EventId};
use prost::Message;
use uuid::Uuid;

use crate::support::{Person, SOON, World};

/// Returns milestone, position and customer of each push.
async fn pushes(world: &World) -> Vec<(u64, u64, String)> {
    let passed = |update: QueuePositionUpdate| {
        let milestone = update.milestone;
        update.passed.into_iter().map(move |passed| (milestone, passed.position, passed.customer_id))
    };
    updates(world).await.into_iter().flat_map(passed).collect()
}

async fn updates(world: &World) -> Vec<QueuePositionUpdate> {
    let sql = "SELECT envelope FROM outbox WHERE topic = 'queue.position_update' ORDER BY seq";
    let rows = world.postgres.query("told", sql, &[]).await.unwrap();
    let update = |row: &onsale_storage::postgres::Row| {
        let envelope = Envelope::decode(row.get::<_, &[u8]>(0)).unwrap();
        QueuePositionUpdate::decode(envelope.payload).unwrap()
    };
    rows.iter().map(update).collect()
}

async fn set_milestones(world: &World, event: &str, milestones: &[u64]) {
    let policy = pb::QueuePolicy { milestones: milestones.to_vec(), ..pb::QueuePolicy::default() };
    world.update_policy(event, policy, &["milestones"]).await;
}

/// Waits until the cursor of the milestone has reached this number in line.
async fn looked_at(world: &World, event: &str, milestone: i64, upto: i64) {
    let event_id = Uuid::parse_str(event).unwrap();
    wait_until(&format!("milestone {milestone} has come to {upto}"), SOON, || async {
        let sql = "SELECT count(*) FROM milestone WHERE event_id = $1 AND milestone = $2 AND last_seq >= $3";
        world.count(sql, &[&event_id, &milestone, &upto]).await == 1
    })
    .await;
}

fn told(people: &[Person], milestone: u64, first_position: u64) -> Vec<(u64, u64, String)> {
    people.iter().zip(first_position..).map(|(person, at)| (milestone, at, person.customer_id())).collect()
}

#[tokio::test]
async fn customer_gets_one_push_for_the_lowest_milestone_passed() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "3")]).await;
    let event = world.open_queue().await;
    set_milestones(&world, &event, &[5, 2]).await;
    let people = world.join_all(8, &event).await;
    looked_at(&world, &event, 5, 5).await;
    looked_at(&world, &event, 2, 2).await;
    assert_eq!(pushes(&world).await, []);
    // Three leave at once. The fourth and the fifth are at 2 or before and joined behind it; the fifth never was behind 5.
    world.inventory.set_free(1_000);
    world.turn(&people[2], &event).await;
    looked_at(&world, &event, 2, 5).await;
    looked_at(&world, &event, 5, 8).await;
    let mut expected = told(&people[3..5], 2, 1);
    expected.extend(told(&people[5..8], 5, 3));
    assert_eq!(pushes(&world).await, expected);
    let update = &updates(&world).await[0];
    assert_eq!(update.event.as_ref().unwrap().event_id, event);
    assert!(update.passed[0].estimate.is_some());
    // A restart repeats no push, and later pushes are sent.
    let world = world.restart().await;
    let people: Vec<Person> = people.iter().map(|person| world.again(person, Role::Customer)).collect();
    world.leave(&people[0], &event).await.unwrap();
    world.turn(&people[3], &event).await;
    looked_at(&world, &event, 2, 6).await;
    expected.extend(told(&people[5..6], 2, 2));
    assert_eq!(pushes(&world).await, expected);
}

#[tokio::test]
async fn customer_with_an_open_stream_gets_no_push() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "2")]).await;
    let event = world.open_queue().await;
    set_milestones(&world, &event, &[3]).await;
    let people = world.join_all(5, &event).await;
    let event_id = EventId::parse(&event).unwrap();
    let mut ids = Vec::new();
    for person in &people {
        let entry = world.position(person, &event).await.unwrap().entry.unwrap();
        ids.push(EntryId::parse(&entry.entry_id).unwrap());
    }
    let presence = Presence::new(world.redis.clone(), Keys::new(world.redis.keyspace("queue").unwrap()));
    presence.opened(event_id, &ids[2..5]).await.unwrap();
    presence.closed(event_id, &ids[4..5]).await.unwrap();
    // A stream notice that a crashed pod left behind.
    let watching = Keys::new(world.redis.keyspace("queue").unwrap()).watching(event_id).unwrap();
    let stale = Command::new("ZADD").key(&watching).arg(1).arg(ids[4].to_string());
    let _added: i64 = world.redis.run(stale).await.unwrap();
    let among = presence.watching_among(event_id, &ids, SOON).await.unwrap();
    assert_eq!(among, ids[2..4].iter().copied().collect());
    world.inventory.set_free(1_000);
    world.turn(&people[1], &event).await;
    looked_at(&world, &event, 3, 5).await;
    // The fourth watches; the fifth has stopped.
    assert_eq!(pushes(&world).await, told(&people[4..5], 3, 3));
}

#[tokio::test]
async fn without_redis_every_customer_gets_the_push() {
    let world = World::start().await;
    let event = world.open_queue().await;
    set_milestones(&world, &event, &[1]).await;
    let people = world.join_all(2, &event).await;
    looked_at(&world, &event, 1, 1).await;
    // The key of the open streams has another type, so reading it fails.
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let watching = keys.watching(EventId::parse(&event).unwrap()).unwrap();
    let _set: String = world.redis.run(Command::new("SET").key(&watching).arg("away")).await.unwrap();
    world.leave(&people[0], &event).await.unwrap();
    looked_at(&world, &event, 1, 2).await;
    assert_eq!(pushes(&world).await, told(&people[1..], 1, 1));
}

#[tokio::test]
async fn milestones_are_pushed_while_the_queue_is_paused() {
    let world = World::start().await;
    let event = world.open_queue().await;
    set_milestones(&world, &event, &[1]).await;
    let people = world.join_all(2, &event).await;
    looked_at(&world, &event, 1, 1).await;
    world.pause(&event, false).await;
    world.inventory.set_free(1_000);
    world.leave(&people[0], &event).await.unwrap();
    looked_at(&world, &event, 1, 2).await;
    assert_eq!(pushes(&world).await, told(&people[1..], 1, 1));
    let standing = world.position(&people[1], &event).await.unwrap();
    assert_eq!((standing.position, standing.queue_state()), (1, pb::QueueState::Paused));
}

#[tokio::test]
async fn many_pushes_come_in_batches_and_once_each() {
    let world =
        World::start_with(&[("POLICY__OPEN_TURNS_MAX", "600"), ("POLICY__MILESTONES", "[600]")]).await;
    let event = world.open_queue().await;
    let event_id = Uuid::parse_str(&event).unwrap();
    let sql = "WITH crowd AS (
            INSERT INTO entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name, avatar_url,
                request_id, fingerprint, start_position)
            SELECT gen_random_uuid(), $1, gen_random_uuid(), seq, 'WAITING', 1, now(), '', '', gen_random_uuid(),
                gen_random_uuid(), seq
            FROM generate_series(1, $2::bigint) AS seq RETURNING 1)
        UPDATE line SET last_seq = $2, waiting_count = $2, revision = revision + 1
        WHERE event_id = $1 AND (SELECT count(*) FROM crowd) = $2";
    assert_eq!(world.postgres.execute("crowd", sql, &[&event_id, &1_200_i64]).await.unwrap(), 1);
    looked_at(&world, &event, 600, 600).await;
    let fast = pb::QueuePolicy { admissions_per_minute: 1_000_000, ..pb::QueuePolicy::default() };
    world.update_policy(&event, fast, &[]).await;
    world.inventory.set_free(1_000);
    looked_at(&world, &event, 600, 1_200).await;
    let updates = updates(&world).await;
    assert!(updates.iter().all(|update| (1..=500).contains(&update.passed.len())));
    let passed: Vec<&str> =
        updates.iter().flat_map(|update| &update.passed).map(|passed| passed.entry_id.as_str()).collect();
    assert_eq!((passed.len(), passed.iter().collect::<BTreeSet<_>>().len()), (600, 600));
    assert!(updates.iter().flat_map(|update| &update.passed).all(|passed| passed.position <= 600));
}
