//! Hints on sharded Pub/Sub: recovery after a failover, and publishers that never block.

use std::time::Duration;

use futures_util::StreamExt;
use onsale_kit::tasks::Tasks;
use onsale_storage::redis::{Hint, Hints, Key, Redis, Subscription};
use onsale_testkit::stack::RedisCluster;
use tokio::time::{Instant, timeout};

use crate::redis::{client, config, key_on_shard, keys};

const FAILOVER_MAX: Duration = Duration::from_secs(20);

async fn next(hints: &mut Subscription) -> Hint {
    timeout(Duration::from_secs(5), hints.next())
        .await
        .expect("no hint arrived in time")
        .expect("the subscription ended")
}

/// Publishes until the subscriber receives the hint. Hints before the confirmed subscription are lost.
async fn publish_until_received(redis: &Redis, channel: &Key, hints: &mut Subscription, payload: &[u8]) {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < FAILOVER_MAX, "no hint arrived");
        // A failover may refuse this; hints may be lost.
        let _ignored = redis.publish(channel, payload).await;
        let received = timeout(Duration::from_millis(100), async {
            while let Some(hint) = hints.next().await {
                if hint == Hint::Message(payload.into()) {
                    return;
                }
            }
        });
        if received.await.is_ok() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hint_reaches_every_subscriber_of_its_channel_and_no_other() {
    let redis = client().await;
    let tasks = Tasks::new();
    let hints = Hints::start(&redis, &tasks);
    let [channel, other] = ["a", "b"].map(|tag| keys(&redis).key("moves", tag).unwrap());
    let mut subscriptions = [&channel, &channel, &other].map(|channel| hints.subscribe(channel));
    for subscription in &mut subscriptions {
        assert_eq!(next(subscription).await, Hint::Gap, "a subscription starts with a gap");
    }
    let [first, second, third] = &mut subscriptions;
    publish_until_received(&redis, &channel, first, b"move").await;
    loop {
        if next(second).await == Hint::Message(b"move".as_slice().into()) {
            break;
        }
    }
    publish_until_received(&redis, &other, third, b"other").await;
    assert!(tasks.shutdown(Duration::from_secs(5)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_subscriber_receives_a_gap() {
    let redis = client().await;
    let tasks = Tasks::new();
    let hints = Hints::start(&redis, &tasks);
    let channel = keys(&redis).key("moves", "a").unwrap();
    let (mut slow, mut quick) = (hints.subscribe(&channel), hints.subscribe(&channel));
    publish_until_received(&redis, &channel, &mut quick, b"begin").await;
    for number in 0..200_u32 {
        redis.publish(&channel, number.to_string().as_bytes()).await.unwrap();
    }
    publish_until_received(&redis, &channel, &mut quick, b"end").await;
    let mut received = Vec::new();
    loop {
        let hint = next(&mut slow).await;
        if hint == Hint::Message(b"end".as_slice().into()) {
            break;
        }
        received.push(hint);
    }
    assert!(received.len() < 100, "{} hints waited in a bounded buffer", received.len());
    assert!(received.iter().skip(1).any(|hint| *hint == Hint::Gap), "no gap was reported");
    assert!(tasks.shutdown(Duration::from_secs(5)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_arrive_again_after_a_failover() {
    for freeze in [false, true] {
        let cluster = RedisCluster::start_private().await.unwrap();
        let redis = Redis::connect(&config(&cluster)).await.unwrap();
        let tasks = Tasks::new();
        let hints = Hints::start(&redis, &tasks);
        let channels: Vec<Key> = (0..3).map(|shard| key_on_shard(&keys(&redis), "moves", shard)).collect();
        let mut subscriptions: Vec<Subscription> =
            channels.iter().map(|channel| hints.subscribe(channel)).collect();
        for (channel, hints) in channels.iter().zip(&mut subscriptions) {
            publish_until_received(&redis, channel, hints, b"before").await;
        }
        let master = cluster.master_of(channels[0].as_str()).await.unwrap();
        if freeze {
            cluster.freeze(master).unwrap();
        } else {
            cluster.kill(master).await.unwrap();
        }
        for (channel, hints) in channels.iter().zip(&mut subscriptions) {
            publish_until_received(&redis, channel, hints, b"after").await;
        }
        assert!(tasks.shutdown(Duration::from_secs(5)).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connection_announces_a_gap() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let redis = Redis::connect(&config(&cluster)).await.unwrap();
    let tasks = Tasks::new();
    let hints = Hints::start(&redis, &tasks);
    let channel = key_on_shard(&keys(&redis), "moves", 0);
    let mut subscription = hints.subscribe(&channel);
    publish_until_received(&redis, &channel, &mut subscription, b"before").await;
    cluster.kill_master_of(channel.as_str()).await.unwrap();
    let gap = timeout(FAILOVER_MAX, async { while subscription.next().await != Some(Hint::Gap) {} });
    gap.await.expect("no gap was reported");
    assert!(tasks.shutdown(Duration::from_secs(5)).await.is_empty());
}
