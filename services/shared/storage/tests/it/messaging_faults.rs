//! Events under crashes and data loss: none is lost, and each takes effect once.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onsale_kit::tasks::Tasks;
use onsale_proto::{EventPayload, Topic};
use onsale_storage::messaging::{Consumer, ConsumerConfig, NewEvent};
use onsale_storage::postgres::{Postgres, PostgresConfig};
use onsale_storage::redis::{Redis, RedisConfig, StreamId};
use onsale_testkit::stack::{self, RedisCluster};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;
use tokio_util::sync::CancellationToken;

use crate::events::{Apply, GROUP, NumberAdded, SOON, Slow, World, calls, consumer_config, relay_config};
use crate::support::run_sql;

const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn events_of_an_aborted_consumer_are_handled_once_by_another() {
    let mut world = World::new().await;
    world.start_relay();
    let slow = Slow { postgres: world.postgres.clone(), hold: LONG };
    let consumer = world.start_consumer(world.consumer(slow));
    world.produce("k", 0..3).await;
    wait_until("the handler runs", SOON, async || calls(&world.postgres).await == 1).await;
    consumer.abort();
    world.start_consumer(world.consumer(Apply));
    world.wait_for_effects(3).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [0, 1, 2]);
}

/// Passes the stores of the killed-process test to its child, as `url prefix node,…`.
const CHILD: &str = "ONSALE_TEST_CHILD_CONSUMER";

#[tokio::test]
async fn events_of_a_killed_process_are_handled_once_by_another() {
    let mut world = World::new().await;
    let config = world.redis.config();
    let names = format!("{} {} {}", world.database.url, config.prefix, config.nodes.join(","));
    world.produce("k", 0..3).await;
    world.start_relay();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "messaging_faults::child_consumer"])
        .env(CHILD, names)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the child's handler runs", SOON, async || calls(&world.postgres).await == 1).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(world.effects().await.is_empty());
    world.start_consumer(world.consumer(Apply));
    world.wait_for_effects(3).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [0, 1, 2]);
}

/// Child process of the test above, which kills it. Without the variable it does nothing.
#[tokio::test]
async fn child_consumer() {
    let Some(names) = std::env::var_os(CHILD) else { return };
    let names = names.into_string().unwrap();
    let [url, prefix, nodes] = names.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let nodes = nodes.split(',').map(str::to_owned).collect();
    let redis = Redis::connect(&RedisConfig::new(nodes, prefix)).await.unwrap();
    let postgres = Postgres::connect(&PostgresConfig::new(url, stack::SANDBOX_SCHEMA)).await.unwrap();
    let handler = Slow { postgres: postgres.clone(), hold: LONG };
    // Longer than a transaction may be idle, so that only the kill ends it.
    let config = ConsumerConfig { handler_timeout: LONG, ..consumer_config() };
    let consumer =
        Consumer::new::<NumberAdded>(postgres, redis, Arc::new(SystemClock), config, handler).unwrap();
    consumer.run(CancellationToken::new()).await;
}

#[tokio::test]
async fn event_that_crashes_its_consumers_becomes_a_dead_letter() {
    let mut world = World::new().await;
    world.produce("k", [1]).await;
    world.relay().round().await.unwrap();
    world.stream(async |it| it.create_group(GROUP, StreamId::ZERO).await).await.unwrap();
    let read = world.stream(async |it| it.read_group(GROUP, "first", 1).await).await.unwrap();
    assert_eq!(read.len(), 1);
    for name in ["second", "third", "fourth"] {
        let claim = async |it: onsale_storage::redis::Stream<'_>| {
            it.auto_claim(GROUP, name, Duration::ZERO, StreamId::ZERO, 1).await
        };
        assert_eq!(world.stream(claim).await.unwrap().entries.len(), 1);
    }
    world.start_consumer(world.consumer(Apply));
    world.wait_for_letters(1).await;
    world.wait_until_idle().await;
    assert!(world.effects().await.is_empty());
    assert!(world.letters().list(None, 1).await.unwrap().letters[0].error.contains("crashed"));
}

#[tokio::test]
async fn idle_event_is_found_behind_40_renewed_ones() {
    let mut world = World::new().await;
    world.produce("k", 0..41).await;
    world.relay().round().await.unwrap();
    world.stream(async |it| it.create_group(GROUP, StreamId::ZERO).await).await.unwrap();
    let kept = world.stream(async |it| it.read_group(GROUP, "alive", 40).await).await.unwrap();
    let left = world.stream(async |it| it.read_group(GROUP, "dead", 10).await).await.unwrap();
    assert_eq!((kept.len(), left.len()), (40, 1));
    let kept: Vec<StreamId> = kept.iter().map(|entry| entry.id).collect();
    let config = ConsumerConfig {
        // With 1, Redis scans ten pending entries per call.
        concurrency: 1,
        // Long enough that the live consumer renews in time on a slow machine.
        claim_idle: Duration::from_secs(2),
        ..consumer_config()
    };
    world.start_consumer(world.consumer_with(config, Apply));
    wait_until("the idle event is handled", SOON, async || {
        world.stream(async |it| it.renew(GROUP, "alive", &kept).await).await.unwrap();
        world.effects().await.contains(&40)
    })
    .await;
    assert_eq!(world.effects().await, [40]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_without_redis_ends_relay_and_consumer() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let mut world = World::on_private(&cluster).await;
    world.produce("k", [1]).await;
    let shutdown = CancellationToken::new();
    let relay = world.start_relay();
    let consumer = world.spawn(world.consumer(Apply).run(shutdown.clone()));
    world.wait_for_effects(1).await;
    cluster.freeze_all().unwrap();
    world.produce("k", [2]).await;
    // By now both are in a call to Redis, which may take 8 s.
    tokio::time::sleep(consumer_config().claim_idle).await;
    let call_max = world.redis.config().overall_timeout;
    assert!(call_max > Duration::from_secs(7));
    shutdown.cancel();
    wait_until("the consumer ends", Duration::from_secs(5), async || consumer.is_finished()).await;
    // The relay finishes its round, whose calls to Redis run in parallel.
    let aborted = relay.shutdown(call_max + Duration::from_secs(5)).await;
    assert!(aborted.is_empty(), "{aborted:?}");
}

/// Payload whose topic is on another node than that of `NumberAdded`.
#[derive(Clone, PartialEq, prost::Message)]
struct Elsewhere {}

impl EventPayload for Elsewhere {
    const TOPIC: &'static str = "test.elsewhere";
    const TYPE: &'static str = "onsale.test.v1.Elsewhere";
    const SOURCE: &'static str = NumberAdded::SOURCE;
    const LISTENERS: &'static [&'static str] = &[GROUP];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_on_a_failed_node_delays_no_other_topic() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = World::on_private(&cluster).await;
    let down = "test:events:stream:{test.elsewhere}";
    let up = "test:events:stream:{test.noted}";
    assert_ne!(cluster.master_of(down).await.unwrap(), cluster.master_of(up).await.unwrap());
    // Freezes a master and its replica, so that the shard cannot fail over.
    for node in [cluster.replica_of(down).await.unwrap(), cluster.master_of(down).await.unwrap()] {
        cluster.freeze(node).unwrap();
    }
    let outbox = &world.outbox;
    let append = world.postgres.transaction("produce", |transaction| async move {
        outbox.append(&transaction, &[NewEvent::new("k", &Elsewhere {})]).await
    });
    append.await.unwrap();
    world.produce("k", [1]).await;
    let topics = [Topic::of::<Elsewhere>(), Topic::of::<NumberAdded>()];
    world.relay_of(&topics, relay_config()).start(&Tasks::new());
    // Less than the timeout of the call to the other topic.
    let soon = Duration::from_secs(5);
    assert!(world.redis.config().overall_timeout > soon);
    wait_until("the event is published", soon, async || world.positions().await == [1]).await;
}

#[tokio::test]
async fn repeatedly_ended_sessions_apply_each_event_once() {
    const EVENTS: i64 = 300;
    let mut world = World::new().await;
    for number in 0..EVENTS {
        world.produce(&(number % 7).to_string(), [number]).await;
    }
    for _ in 0..2 {
        world.start(Apply);
    }
    for _ in 0..12 {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        run_sql(&world.database, kill).await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(5..60))).await;
    }
    world.wait_for_effects(EVENTS.unsigned_abs().try_into().unwrap()).await;
    world.wait_until_idle().await;
    let mut effects = world.effects().await;
    effects.sort_unstable();
    assert_eq!(effects, (0..EVENTS).collect::<Vec<_>>());
    assert!(world.letters().list(None, 10).await.unwrap().letters.is_empty());
}

#[tokio::test]
async fn dropped_relay_rounds_lose_and_duplicate_no_event() {
    let world = World::new().await;
    let mut produced = 0;
    for round in 0..120_u64 {
        if round < 60 {
            world.produce("k", produced..produced + 3).await;
            produced += 3;
        }
        let relay = world.relay();
        // A different point each time: before, during and after numbering and publishing.
        let moment = Duration::from_micros(round * 150);
        let _ = tokio::time::timeout(moment, relay.round()).await;
    }
    world.relay().round().await.unwrap();
    assert_eq!(world.positions().await, (1..=180).collect::<Vec<_>>());
}

#[tokio::test]
async fn flushed_stream_is_published_again_without_second_effects() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let mut world = World::on_private(&cluster).await;
    world.produce("k", 0..10).await;
    world.relay().round().await.unwrap();
    assert_eq!(world.positions().await.len(), 10);
    cluster.flush_all().await.unwrap();
    assert!(world.positions().await.is_empty());
    world.start(Apply);
    world.wait_for_effects(10).await;

    // Flushed after they were handled: published again without a second effect.
    world.wait_until_idle().await;
    cluster.flush_all().await.unwrap();
    wait_until("all events are published again", SOON, async || world.positions().await.len() == 10).await;
    world.wait_until_idle().await;
    world.produce("k", [10]).await;
    world.wait_for_effects(11).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, (0..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn failover_that_loses_writes_loses_no_event() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let mut world = World::on_private(&cluster).await;
    let key = "test:events:stream:{test.noted}";
    world.start(Apply);
    world.produce("k", 0..10).await;
    world.wait_for_effects(10).await;
    world.wait_until_idle().await;
    cluster.wait_until_settled().await.unwrap();

    let replica = cluster.cut_off_replica_of(key).await.unwrap();
    world.produce("k", 10..20).await;
    world.wait_for_effects(20).await;
    cluster.kill_master_of(key).await.unwrap();
    world.produce("k", 20..30).await;
    cluster.thaw(replica).unwrap();
    world.wait_for_effects(30).await;
    wait_until("the stream is complete again", SOON, async || world.positions().await.len() == 30).await;
    world.wait_until_idle().await;
    assert_eq!(world.positions().await, (1..=30).collect::<Vec<_>>());
    assert_eq!(world.effects().await, (0..30).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_aborts_and_flushes_apply_each_event_once() {
    const EVENTS: i64 = 600;
    let cluster = RedisCluster::start_private().await.unwrap();
    let mut world = World::on_private(&cluster).await;
    for writer in 0..4 {
        let (postgres, outbox) = (world.postgres.clone(), world.outbox.clone());
        world.spawn(async move {
            for number in (0..EVENTS).filter(|number| number % 4 == writer) {
                crate::events::produce(&postgres, &outbox, &(number % 7).to_string(), [number]).await;
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..8))).await;
            }
        });
    }
    let mut relays: Vec<_> = (0..2).map(|_| world.start_relay()).collect();
    let mut consumers: Vec<_> = (0..3).map(|_| world.start_consumer(world.consumer(Apply))).collect();
    for round in 0..40 {
        tokio::time::sleep(Duration::from_millis(rand::random_range(5..80))).await;
        let relay = &mut relays[rand::random_range(0..2)];
        // Aborts the running round.
        relay.shutdown(Duration::ZERO).await;
        *relay = world.start_relay();
        let consumer = &mut consumers[rand::random_range(0..3)];
        consumer.abort();
        *consumer = world.start_consumer(world.consumer(Apply));
        if round % 8 == 7 {
            cluster.flush_all().await.unwrap();
        }
    }
    world.wait_for_effects(EVENTS.unsigned_abs().try_into().unwrap()).await;
    world.wait_until_idle().await;
    let mut effects = world.effects().await;
    effects.sort_unstable();
    assert_eq!(effects, (0..EVENTS).collect::<Vec<_>>());
    assert!(world.letters().list(None, 10).await.unwrap().letters.is_empty());
}
