//! Streams: explicit ids, groups, claims, and blocking reads.

use std::time::Duration;

use onsale_storage::redis::{Appended, Command, Entry, Key, NewEntry, Redis, StreamId};
use onsale_testkit::stack::RedisCluster;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::redis::{client, config, key_on_shard, keys};

const GROUP: &str = "workers";

fn id(number: u64) -> StreamId {
    StreamId::new(number, 0)
}

fn ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.millis).collect()
}

async fn append(redis: &Redis, key: &Key, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let appended = redis.stream(key).append(id(number), &[("body", b"x")]).await.unwrap();
        assert_eq!(appended, Appended::Added);
    }
}

/// Returns true if a node has a client in a blocking group read. Tests with such reads use their own cluster.
async fn has_blocked_reader(redis: &Redis) -> bool {
    for url in &redis.config().nodes {
        let client = ::redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let clients: String = ::redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
        if clients.contains("cmd=xreadgroup") {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn entry_is_appended_once_per_id() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    assert_eq!(stream.last_id().await.unwrap(), None, "the stream does not exist yet");
    assert_eq!(stream.append(id(5), &[("body", b"\0\xff")]).await.unwrap(), Appended::Added);
    assert_eq!(stream.append(id(5), &[("body", b"again")]).await.unwrap(), Appended::Passed);
    assert_eq!(stream.append(id(4), &[("body", b"late")]).await.unwrap(), Appended::Passed);
    let entries = stream.range(StreamId::ZERO, StreamId::MAX, 10).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].field("body"), Some(b"\0\xff".as_slice()));
    assert_eq!(entries[0].field("missing"), None);
    assert_eq!(stream.last_id().await.unwrap(), Some(id(5)));
}

#[tokio::test]
async fn batch_skips_existing_entries_and_adds_the_rest() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    let batch = |numbers: std::ops::RangeInclusive<u64>| {
        numbers
            .map(|number| NewEntry { id: id(number), fields: vec![("body", b"x".as_slice())] })
            .collect::<Vec<_>>()
    };
    stream.append_all(&batch(1..=3)).await.unwrap();
    stream.append_all(&batch(2..=6)).await.unwrap();
    stream.append_all(&[]).await.unwrap();
    let entries = stream.range(StreamId::ZERO, StreamId::MAX, 10).await.unwrap();
    assert_eq!(ids(&entries), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn last_id_survives_the_deletion_of_its_entry() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    append(&redis, &key, 1..=4).await;
    let stream = redis.stream(&key);
    assert_eq!(stream.trim_before(id(3)).await.unwrap(), 2);
    assert_eq!(stream.delete(&[id(3), id(4), id(9)]).await.unwrap(), 2);
    assert_eq!(stream.length().await.unwrap(), 0);
    assert_eq!(stream.last_id().await.unwrap(), Some(id(4)));
}

#[tokio::test]
async fn capped_stream_drops_its_oldest_entries() {
    let redis = client().await;
    let key = keys(&redis).key("moves", "event").unwrap();
    let stream = redis.stream(&key);
    let mut last = StreamId::ZERO;
    for _ in 0..1_000 {
        let id = stream.append_capped(100, &[("move", b"x")]).await.unwrap();
        assert!(id > last);
        last = id;
    }
    // "About" 100: Redis trims whole nodes of a hundred entries.
    assert!(stream.length().await.unwrap() <= 300);
    let tail = stream.read_after(StreamId::ZERO, 10_000).await.unwrap();
    assert_eq!(tail.last().map(|entry| entry.id), Some(last));
    assert!(stream.read_after(last, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn group_delivers_each_entry_to_one_consumer() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    assert!(stream.create_group(GROUP, StreamId::ZERO).await.unwrap());
    assert!(!stream.create_group(GROUP, StreamId::ZERO).await.unwrap(), "the group exists already");
    append(&redis, &key, 1..=5).await;
    let first = stream.read_group(GROUP, "one", 3).await.unwrap();
    let second = stream.read_group(GROUP, "two", 3).await.unwrap();
    assert_eq!((ids(&first), ids(&second)), (vec![1, 2, 3], vec![4, 5]));
    assert!(stream.read_group(GROUP, "one", 3).await.unwrap().is_empty());

    assert_eq!(stream.acknowledge(GROUP, &[id(1), id(4)]).await.unwrap(), 2);
    assert_eq!(stream.acknowledge(GROUP, &[id(1)]).await.unwrap(), 0);
    assert_eq!(stream.acknowledge(GROUP, &[]).await.unwrap(), 0);
    let summary = stream.pending_summary(GROUP).await.unwrap();
    assert_eq!((summary.count, summary.span), (3, Some((id(2), id(5)))));
    assert_eq!(summary.consumers, [("one".to_owned(), 2), ("two".to_owned(), 1)]);
    let groups = stream.groups().await.unwrap();
    assert_eq!((groups.len(), groups[0].pending, groups[0].lag), (1, 3, Some(0)));
    assert_eq!(groups[0].last_delivered, id(5));
}

#[tokio::test]
async fn idle_entry_is_claimed_and_renewed_entry_is_not() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    stream.create_group(GROUP, StreamId::ZERO).await.unwrap();
    append(&redis, &key, 1..=4).await;
    assert_eq!(stream.read_group(GROUP, "gone", 10).await.unwrap().len(), 4);
    stream.delete(&[id(4)]).await.unwrap();

    let idle = Duration::from_millis(200);
    let nothing =
        stream.auto_claim(GROUP, "heir", Duration::from_secs(60), StreamId::ZERO, 10).await.unwrap();
    assert!(nothing.entries.is_empty());
    assert_eq!(nothing.deleted, [id(4)], "deleted entries are no longer pending");
    onsale_testkit::wait_until("the entries are idle", Duration::from_secs(5), async || {
        stream.pending(GROUP, StreamId::ZERO, 10).await.unwrap().iter().all(|entry| entry.idle >= idle)
    })
    .await;
    assert_eq!(stream.renew(GROUP, "gone", &[id(2)]).await.unwrap(), [id(2)]);
    let claimed = stream.auto_claim(GROUP, "heir", idle, StreamId::ZERO, 10).await.unwrap();
    assert_eq!((ids(&claimed.entries), claimed.next), (vec![1, 3], StreamId::ZERO));
    let pending = stream.pending(GROUP, StreamId::ZERO, 10).await.unwrap();
    let owners: Vec<_> =
        pending.iter().map(|it| (it.id.millis, it.consumer.as_str(), it.deliveries)).collect();
    assert_eq!(owners, [(1, "heir", 2), (2, "gone", 1), (3, "heir", 2)]);
}

#[tokio::test]
async fn missing_stream_has_no_groups_and_no_last_id() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "nothing").unwrap();
    let stream = redis.stream(&key);
    assert_eq!(stream.last_id().await.unwrap(), None);
    assert_eq!(stream.length().await.unwrap(), 0);
    assert!(stream.groups().await.unwrap().is_empty());
    assert!(stream.read_after(StreamId::ZERO, 10).await.unwrap().is_empty());
    let error = stream.read_group(GROUP, "one", 1).await.unwrap_err();
    assert_eq!(error.code(), Some("NOGROUP"), "a missing group is reported as NOGROUP");
    let error =
        redis.reader().read_group(&key, GROUP, "one", 1, Duration::from_millis(10)).await.unwrap_err();
    assert_eq!(error.code(), Some("NOGROUP"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_reader_wakes_for_an_entry_and_delays_no_call() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    stream.create_group(GROUP, StreamId::ZERO).await.unwrap();
    let begin = Instant::now();
    let mut reader = redis.reader();
    let reading = reader.read_group(&key, GROUP, "one", 10, Duration::from_secs(20));
    let writing = async {
        // These commands go to the node on which the reader blocks.
        for _ in 0..20 {
            let () =
                redis.run(Command::new("GET").key(&keys(&redis).key("x", "orders").unwrap())).await.unwrap();
        }
        append(&redis, &key, 1..=1).await;
    };
    let (entries, ()) = tokio::join!(reading, writing);
    assert_eq!(ids(&entries.unwrap()), [1]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let nothing = reader.read_group(&key, GROUP, "one", 10, Duration::from_millis(50)).await.unwrap();
    assert!(nothing.is_empty(), "the read ends without entries");
    let log = redis.reader().read_after(&key, StreamId::ZERO, 10, Duration::from_millis(50)).await.unwrap();
    assert_eq!(ids(&log), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_read_loses_no_entry() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let redis = Redis::connect(&config(&cluster)).await.unwrap();
    let key = keys(&redis).key("topic", "orders").unwrap();
    let stream = redis.stream(&key);
    stream.create_group(GROUP, StreamId::ZERO).await.unwrap();
    let mut reader = redis.reader();
    for number in 1..=3 {
        let wait = Duration::from_secs(30);
        let read = reader.read_group(&key, GROUP, "one", 10, wait);
        assert!(tokio::time::timeout(Duration::from_millis(200), read).await.is_err(), "nothing to read yet");
        // Wait until the server has noticed that the reader closed its connection.
        onsale_testkit::wait_until("the dropped read has ended", Duration::from_secs(5), async || {
            !has_blocked_reader(&redis).await
        })
        .await;
        append(&redis, &key, number..=number).await;
        let entries = reader.read_group(&key, GROUP, "one", 10, Duration::from_secs(5)).await.unwrap();
        assert_eq!(ids(&entries), [number]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_resumes_after_a_failover() {
    for freeze in [false, true] {
        let cluster = RedisCluster::start_private().await.unwrap();
        let redis = Redis::connect(&config(&cluster)).await.unwrap();
        let key = key_on_shard(&keys(&redis), "topic", 0);
        redis.stream(&key).create_group(GROUP, StreamId::ZERO).await.unwrap();
        append(&redis, &key, 1..=1).await;
        let mut reader = redis.reader();
        let block = Duration::from_millis(300);
        assert_eq!(ids(&reader.read_group(&key, GROUP, "one", 10, block).await.unwrap()), [1]);
        let master = cluster.master_of(key.as_str()).await.unwrap();
        if freeze {
            cluster.freeze(master).unwrap();
        } else {
            cluster.kill(master).await.unwrap();
        }
        let begin = Instant::now();
        let mut read = Vec::new();
        while read.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the reader did not recover");
            // The append may be delayed or lost in the failover; repeating the same id is harmless.
            let _ignored = redis.stream(&key).append(id(2), &[("body", b"x")]).await;
            match reader.read_group(&key, GROUP, "one", 10, block).await {
                Ok(entries) => read.extend(entries.into_iter().filter(|entry| entry.id == id(2))),
                Err(error) => assert!(error.is_transient() || error.code() == Some("NOGROUP"), "{error:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn id_round_trips_and_keeps_its_order(one: (u64, u64), other: (u64, u64)) {
        let [one, other] = [one, other].map(|(millis, sequence)| StreamId::new(millis, sequence));
        prop_assert_eq!(one.to_string().parse::<StreamId>().unwrap(), one);
        prop_assert_eq!(one.cmp(&other), (one.millis, one.sequence).cmp(&(other.millis, other.sequence)));
        if let Some(next) = one.next() {
            prop_assert!(next > one);
        }
    }

    #[test]
    fn malformed_text_is_not_an_id(text in "[^0-9]*|[0-9]{1,5}|[0-9]{25}-1|.*-x") {
        prop_assert!(text.parse::<StreamId>().is_err());
    }
}

#[tokio::test]
async fn key_of_another_type_is_not_a_missing_stream() {
    let redis = client().await;
    let key = keys(&redis).key("topic", "text").unwrap();
    let () = redis.run(Command::new("SET").key(&key).arg("words")).await.unwrap();
    let stream = redis.stream(&key);
    assert_eq!(stream.groups().await.unwrap_err().code(), Some("WRONGTYPE"));
    assert_eq!(stream.last_id().await.unwrap_err().code(), Some("WRONGTYPE"));
}
