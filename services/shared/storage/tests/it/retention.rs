//! Retention of events, inbox rows and consumer names.

use std::sync::Arc;
use std::time::Duration;

use onsale_proto::{EventPayload as _, Topic};
use onsale_storage::messaging::{Consumer, ConsumerConfig, Error, RelayConfig};
use onsale_storage::postgres::column;
use onsale_storage::redis::{Command, StreamId, Value};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;

use crate::events::{Apply, GROUP, NumberAdded, SOON, World, consumer_config, relay_config};

/// Topic of the tests with a second listener that never starts.
const WITH_LATE_LISTENER: Topic = Topic { listeners: &[GROUP, "late"], ..Topic::of::<NumberAdded>() };

/// Settings that delete whatever may be deleted, in every round.
fn delete_everything() -> RelayConfig {
    RelayConfig { retention: Duration::ZERO, retain_every: Duration::ZERO, ..relay_config() }
}

/// Returns the number of events in the outbox.
async fn kept(world: &World) -> i64 {
    let row = world.postgres.query_one("kept", "SELECT count(*) AS count FROM outbox", &[]).await.unwrap();
    column(&row, "count").unwrap()
}

#[tokio::test]
async fn events_stay_until_every_listener_of_the_contract_handled_them() {
    let mut world = World::new().await;
    let relay = world.relay_of(&[WITH_LATE_LISTENER], delete_everything());
    world.produce("k", 0..5).await;
    world.start_consumer(world.consumer(Apply));
    relay.round().await.unwrap();
    world.wait_for_effects(5).await;
    world.wait_until_idle().await;
    relay.round().await.unwrap();
    assert_eq!((kept(&world).await, world.positions().await.len()), (5, 5), "one listener has not started");

    // Also after Redis lost the stream and both groups.
    let key = world.redis.keyspace("events").unwrap().key("stream", NumberAdded::TOPIC).unwrap();
    let _gone: u64 = world.redis.run(Command::new("DEL").key(&key)).await.unwrap();
    let relay = world.relay_of(&[WITH_LATE_LISTENER], delete_everything());
    relay.round().await.unwrap();
    assert_eq!(world.positions().await.len(), 5, "the stream is complete again");

    world.stream(async |stream| stream.create_group("late", StreamId::ZERO).await).await.unwrap();
    let read = world.stream(async |stream| stream.read_group("late", "one", 10).await).await.unwrap();
    let ids: Vec<_> = read.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 5, "the late listener gets earlier events");
    world.stream(async |stream| stream.acknowledge("late", &ids).await).await.unwrap();
    relay.round().await.unwrap();
    assert_eq!((kept(&world).await, world.positions().await.len()), (0, 0));
}

#[tokio::test]
async fn only_listeners_of_the_contract_retain_events_forever() {
    let mut world = World::new().await;
    let config = RelayConfig { group_forgotten_after: Duration::ZERO, ..delete_everything() };
    let relay = world.relay_with(config);
    for group in [GROUP, "former"] {
        world.stream(async |stream| stream.create_group(group, StreamId::ZERO).await).await.unwrap();
    }
    world.produce("k", 0..3).await;
    for _ in 0..3 {
        relay.round().await.unwrap();
        assert_eq!(kept(&world).await, 3, "the listener has handled no event");
    }
    world.start_consumer(world.consumer(Apply));
    world.wait_for_effects(3).await;
    world.wait_until_idle().await;
    relay.round().await.unwrap();
    assert_eq!(kept(&world).await, 0, "the other group still retains events");
}

#[tokio::test]
async fn group_outside_the_contract_cannot_consume() {
    let world = World::new().await;
    let config = ConsumerConfig { group: "stranger".to_owned(), ..consumer_config() };
    let clock = Arc::new(SystemClock);
    let refused =
        Consumer::new::<NumberAdded>(world.postgres.clone(), world.redis.clone(), clock, config, Apply).err();
    let Some(Error::NotAListener { group, topic }) = refused else { panic!("{refused:?}") };
    assert_eq!((group.as_str(), topic), ("stranger", NumberAdded::TOPIC));
}

#[tokio::test]
async fn events_of_an_unknown_topic_wait_for_a_relay_that_knows_it() {
    let world = World::new().await;
    world.produce("k", [1, 2]).await;
    let another = Topic { source: "another", ..Topic::of::<NumberAdded>() };
    for topics in [&[][..], &[another]] {
        world.relay_of(topics, delete_everything()).round().await.unwrap();
        assert_eq!((kept(&world).await, world.positions().await.len()), (2, 0));
    }
    world.relay().round().await.unwrap();
    assert_eq!(world.positions().await, [1, 2]);
}

#[tokio::test]
async fn inbox_deletes_only_rows_past_their_retention() {
    let mut world = World::new().await;
    let config = ConsumerConfig { clean_every: Duration::from_millis(50), ..consumer_config() };
    // An event is handled up to this age; its inbox row is kept one hour longer.
    let retention = config.inbox_retention.as_secs_f64();
    world.start_relay();
    world.start_consumer(world.consumer_with(config, Apply));
    let ids = world.produce("k", [1, 2, 3]).await;
    world.wait_for_effects(3).await;
    for (id, age) in [(ids[0], retention + 3_700.0), (ids[1], retention + 3_500.0)] {
        let sql = "UPDATE inbox SET handled_at = now() - make_interval(secs => $2) WHERE event_id = $1";
        assert_eq!(world.postgres.execute("age", sql, &[&id, &age]).await.unwrap(), 1);
    }
    let remembered = async || -> Vec<uuid::Uuid> {
        let rows = world.postgres.query("inbox", "SELECT event_id FROM inbox ORDER BY 1", &[]).await.unwrap();
        rows.iter().map(|row| column(row, "event_id").unwrap()).collect()
    };
    wait_until("the oldest row is deleted", SOON, async || remembered().await.len() < 3).await;
    assert_eq!(remembered().await, ids[1..]);
}

#[tokio::test]
async fn dead_consumers_without_pending_events_are_deleted() {
    let mut world = World::new().await;
    world.produce("k", 0..2).await;
    world.relay().round().await.unwrap();
    world.stream(async |stream| stream.create_group(GROUP, StreamId::ZERO).await).await.unwrap();
    for name in ["finished", "cut-off"] {
        let read = world.stream(async |stream| stream.read_group(GROUP, name, 1).await).await.unwrap();
        assert_eq!(read.len(), 1);
        if name == "finished" {
            world.stream(async |stream| stream.acknowledge(GROUP, &[read[0].id]).await).await.unwrap();
        }
    }
    let config = ConsumerConfig {
        clean_every: Duration::from_millis(50),
        consumer_dead_after: Duration::from_millis(500),
        // Prevents a takeover from the consumer that was cut off.
        claim_idle: Duration::from_secs(3_600),
        ..consumer_config()
    };
    world.start_consumer(world.consumer_with(config, Apply));
    wait_until("the finished consumer is deleted", SOON, async || {
        !consumers(&world).await.contains(&"finished".to_owned())
    })
    .await;
    let cut_off_idle = async || {
        let pending = world.stream(async |it| it.pending(GROUP, StreamId::ZERO, 1).await).await.unwrap();
        pending[0].idle
    };
    // Several rounds after it counts as dead.
    wait_until("the consumer is idle", SOON, async || cut_off_idle().await > Duration::from_secs(1)).await;
    assert!(consumers(&world).await.contains(&"cut-off".to_owned()));
}

/// Returns the consumer names in the group.
async fn consumers(world: &World) -> Vec<String> {
    let key = world.redis.keyspace("events").unwrap().key("stream", NumberAdded::TOPIC).unwrap();
    let command = Command::new("XINFO").arg("CONSUMERS").key(&key).arg(GROUP).idempotent();
    let facts: Vec<std::collections::HashMap<String, Value>> = world.redis.run(command).await.unwrap();
    facts
        .into_iter()
        .map(|mut facts| match facts.remove("name") {
            Some(Value::BulkString(name)) => String::from_utf8(name).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}
