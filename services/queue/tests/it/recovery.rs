//! Losses of Redis, restarts and missing heartbeats never change a number in line.

use std::time::Duration;

use onsale_proto::{
    auth::v1::Role,
    queue::v1::{EntryState, ExpireReason},
};
use onsale_queue::store::keys::Keys;
use onsale_storage::redis::Command;
use onsale_testkit::wait_until;
use onsale_types::EventId;
use uuid::Uuid;

use crate::{
    crowd,
    support::{Person, SOON, World},
};

/// Deletes all keys of the event's line from Redis.
pub(crate) async fn wipe(world: &World, event: &str) {
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let event_id = EventId::parse(event).unwrap();
    for key in [keys.line(event_id), keys.waiting(event_id), keys.seen(event_id), keys.log(event_id)] {
        let _removed: i64 = world.redis.run(Command::new("DEL").key(&key.unwrap())).await.unwrap();
    }
}

/// Returns true if Redis has every waiting entry again.
async fn is_loaded(world: &World, event: &str) -> bool {
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let line = keys.line(EventId::parse(event).unwrap()).unwrap();
    world.redis.run(Command::new("HEXISTS").key(&line).arg("loaded")).await.unwrap()
}

async fn assert_places(world: &World, people: &[Person], event: &str, first_seq: u64) {
    for (person, expected) in people.iter().zip(1_u64..) {
        let standing = world.position(person, event).await.unwrap();
        assert_eq!(standing.position, expected);
        assert_eq!(standing.entry.unwrap().seq, first_seq + expected - 1);
    }
}

#[tokio::test]
async fn wiped_redis_changes_no_number_and_no_position() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let mut people = world.join_all(10, &event).await;
    wait_until("redis knows the line", SOON, || is_loaded(&world, &event)).await;
    wipe(&world, &event).await;
    // Joins come first, because the new entries alone could be mistaken for the whole line.
    people.extend(world.join_all(2, &event).await);
    assert_places(&world, &people, &event, 1).await;
    wait_until("redis knows the line again", SOON, || is_loaded(&world, &event)).await;
    assert_places(&world, &people, &event, 1).await;
    wipe(&world, &event).await;
    world.leave(&people[0], &event).await.unwrap();
    let mut watcher = world.watch(&people[11], &event).await.unwrap();
    watcher.until_position(11).await;
    wipe(&world, &event).await;
    world.inventory.set_free(1_000);
    watcher.until_turn().await;
    let turn = world.turn(&people[11], &event).await;
    assert_eq!(turn.fencing_number, 11);
}

#[tokio::test]
async fn entry_lost_or_left_over_in_redis_is_corrected() {
    let world = World::start_with(&[("RECONCILE__INTERVAL", "300ms")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(4, &event).await;
    wait_until("redis knows the line", SOON, || is_loaded(&world, &event)).await;
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let waiting = keys.waiting(EventId::parse(&event).unwrap()).unwrap();
    let first = world.position(&people[0], &event).await.unwrap().entry.unwrap().entry_id;
    let lost = Command::new("ZREM").key(&waiting).arg(first);
    let kept = Command::new("ZADD").key(&waiting).arg(2).arg(Uuid::now_v7().to_string());
    let _removed: i64 = world.redis.run(lost).await.unwrap();
    let _added: i64 = world.redis.run(kept).await.unwrap();
    wait_until("positions are right", SOON, || async {
        let mut all_right = true;
        for (person, expected) in people.iter().zip(1_u64..) {
            all_right &= world.position(person, &event).await.unwrap().position == expected;
        }
        all_right
    })
    .await;
}

#[tokio::test]
async fn watcher_gets_the_right_position_whatever_redis_has() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(4, &event).await;
    let mut watcher = world.watch(&people[3], &event).await.unwrap();
    watcher.until_position(4).await;
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let event_id = EventId::parse(&event).unwrap();
    // An entry at the front that does not exist, and a log record of a change that never happened.
    let ghost =
        Command::new("ZADD").key(&keys.waiting(event_id).unwrap()).arg(0).arg(Uuid::now_v7().to_string());
    let _added: i64 = world.redis.run(ghost).await.unwrap();
    let fields = ["*", "n", "9,9,3,1,3,0", "g", "", "e", ""];
    let lie = Command::new("XADD").key(&keys.log(event_id).unwrap()).arg(&fields);
    let _id: String = world.redis.run(lie).await.unwrap();
    world.leave(&people[0], &event).await.unwrap();
    watcher.until_position(3).await;
    // First no log at all, then a log that restarts.
    wipe(&world, &event).await;
    world.leave(&people[1], &event).await.unwrap();
    watcher.until_position(2).await;
    world.leave(&people[2], &event).await.unwrap();
    watcher.until_position(1).await;
}

#[tokio::test]
async fn entry_swapped_in_redis_is_corrected_in_a_long_line() {
    let world = World::start_with(&[("RECONCILE__INTERVAL", "300ms")]).await;
    let event = world.open_queue().await;
    crowd::silent(&world, &event, 20_100).await;
    let person = world.join_all(1, &event).await.remove(0);
    wait_until("redis knows the line", SOON, || is_loaded(&world, &event)).await;
    let entry = world.position(&person, &event).await.unwrap().entry.unwrap().entry_id;
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let waiting = keys.waiting(EventId::parse(&event).unwrap()).unwrap();
    // The count in Redis stays right.
    let ghost = Uuid::now_v7().to_string();
    let kept = Command::new("ZADD").key(&waiting).arg(2).arg(&ghost);
    let lost = Command::new("ZREM").key(&waiting).arg(&entry);
    let _added: i64 = world.redis.run(kept).await.unwrap();
    let _removed: i64 = world.redis.run(lost).await.unwrap();
    wait_until("redis is right", SOON, || async {
        // Positions are off by the foreign entry until the reconciliation, and right from then on.
        let position = world.position(&person, &event).await.unwrap().position;
        let rank = |member: &str| Command::new("ZSCORE").key(&waiting).arg(member);
        let known: Option<u64> = world.redis.run(rank(&entry)).await.unwrap();
        let ghost: Option<u64> = world.redis.run(rank(&ghost)).await.unwrap();
        position == 20_101 && known == Some(20_101) && ghost.is_none()
    })
    .await;
}

#[tokio::test]
async fn restart_keeps_every_entry_turn_and_number() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "1")]).await;
    let event = world.selling_queue().await;
    let people = world.join_all(4, &event).await;
    let turn = world.turn(&people[0], &event).await;
    let world = world.restart().await;
    let people: Vec<Person> = people.iter().map(|person| world.again(person, Role::Customer)).collect();
    assert_eq!(world.turn(&people[0], &event).await, turn);
    assert_places(&world, &people[1..], &event, 2).await;
    world.leave(&people[0], &event).await.unwrap();
    assert_eq!(world.turn(&people[1], &event).await.fencing_number, turn.fencing_number + 1);
    let next = world.join(&world.customer(), &event).await.unwrap().standing.unwrap();
    assert_eq!(next.entry.unwrap().seq, 5);
}

#[tokio::test]
async fn idle_entry_expires_and_watched_entry_does_not() {
    let world = World::start_with(&[
        ("POLICY__IDLE_TIMEOUT", "3s"),
        ("SWEEP__IDLE_INTERVAL", "100ms"),
        ("WATCH__SEEN_INTERVAL", "300ms"),
    ])
    .await;
    let event = world.open_queue().await;
    let people = world.join_all(2, &event).await;
    let mut watcher = world.watch(&people[1], &event).await.unwrap();
    watcher.until_position(2).await;
    // The idle customer never polls, because a poll would count as a heartbeat.
    watcher.until_position(1).await;
    let silent = world.position(&people[0], &event).await.unwrap().entry.unwrap();
    assert_eq!((silent.state(), silent.expire_reason()), (EntryState::Expired, ExpireReason::NotSeen));
    // A lost heartbeat counts as just sent.
    wipe(&world, &event).await;
    assert_eq!(world.position(&people[1], &event).await.unwrap().position, 1);
}

#[tokio::test]
async fn heartbeats_lost_by_redis_expire_no_entry() {
    let world = World::start_with(&[
        ("POLICY__IDLE_TIMEOUT", "3s"),
        ("SWEEP__IDLE_INTERVAL", "50ms"),
        ("WATCH__SEEN_INTERVAL", "1s"),
    ])
    .await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    watcher.until_position(1).await;
    wait_until("silence since joining would be too long", SOON, || async {
        let sql = "SELECT count(*) FROM entry WHERE join_time < now() - interval '4 seconds'";
        world.count(sql, &[]).await == 1
    })
    .await;
    let entry = world.position(&person, &event).await.unwrap().entry.unwrap().entry_id;
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    let seen = keys.seen(EventId::parse(&event).unwrap()).unwrap();
    // For two seconds no heartbeat is stored; then Redis returns with its old data.
    let _set: String = world.redis.run(Command::new("SET").key(&seen).arg("away")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _removed: i64 = world.redis.run(Command::new("DEL").key(&seen)).await.unwrap();
    let old = Command::new("ZADD").key(&seen).arg(1).arg(&entry);
    let _added: i64 = world.redis.run(old).await.unwrap();
    wait_until("a sign is noted again", SOON, || async {
        let score = Command::new("ZSCORE").key(&seen).arg(&entry);
        world.redis.run::<Option<f64>>(score).await.unwrap().is_none_or(|millis| millis > 1.0)
    })
    .await;
    let standing = world.position(&person, &event).await.unwrap();
    assert_eq!(standing.entry.unwrap().state(), EntryState::Waiting);
}
