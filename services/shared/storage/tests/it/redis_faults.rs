//! Redis client on a breaking cluster: killed and frozen masters, lost scripts, moving slots. Each test has its own
//! cluster. Time bounds only distinguish recovery from a hang.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use onsale_kit::deadline::Deadline;
use onsale_storage::redis::{Command, Error, Key, Pipeline, Redis, RedisConfig, Script};
use onsale_testkit::stack::RedisCluster;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

use crate::redis::{config, key_on_shard, keys};

/// Covers the node timeout, the vote, and a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(20);

static COUNT: LazyLock<Script> =
    LazyLock::new(|| Script::new("count", "redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])"));

/// Results of one shard's caller.
#[derive(Debug, Default)]
struct CallerResults {
    succeeded: u32,
    failed: u32,
    slowest: Duration,
    last_success: Option<Instant>,
}

/// Writes to `key` until `stop` is set, one call after the other.
async fn write_until(redis: Redis, key: Key, stop: Arc<AtomicBool>) -> CallerResults {
    let mut seen = CallerResults::default();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let answer = redis.run::<()>(Command::new("SET").key(&key).arg("x").idempotent()).await;
        seen.slowest = seen.slowest.max(begin.elapsed());
        match answer {
            Ok(()) => {
                seen.succeeded += 1;
                seen.last_success = Some(Instant::now());
            }
            Err(_) => seen.failed += 1,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

/// Breaks the master of one shard under load on all shards. Returns the results of each shard's caller, the broken
/// shard's first.
async fn break_under_load(redis: &Redis, broken: Key, break_it: impl AsyncFnOnce()) -> Vec<CallerResults> {
    let others = [1, 2].map(|shard| key_on_shard(&keys(redis), "load", shard));
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [broken.clone()]
        .into_iter()
        .chain(others)
        .map(|key| write_until(redis.clone(), key, Arc::clone(&stop)));
    let steering = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        break_it().await;
        let begin = Instant::now();
        // The shard is back once a new call succeeds.
        while redis.run::<()>(Command::new("SET").key(&broken).arg("y").idempotent()).await.is_err() {
            assert!(begin.elapsed() < FAILOVER_MAX, "the shard did not recover");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (seen, ()) = tokio::join!(join_all(writers), steering);
    seen
}

fn assert_survived(seen: &[CallerResults], config: &RedisConfig) {
    for shard in seen {
        assert!(shard.slowest < config.overall_timeout + Duration::from_secs(2), "a call hung: {seen:?}");
        assert!(shard.last_success.is_some_and(|at| at.elapsed() < Duration::from_secs(5)), "{seen:?}");
    }
    for other in &seen[1..] {
        assert_eq!(other.failed, 0, "another shard failed: {seen:?}");
        assert!(other.slowest < Duration::from_secs(2), "another shard stalled: {seen:?}");
        assert!(other.succeeded > 50, "another shard stalled: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_master_stalls_only_its_own_shard() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let config = config(&cluster);
    let redis = Redis::connect(&config).await.unwrap();
    let key = key_on_shard(&keys(&redis), "load", 0);
    let seen = break_under_load(&redis, key.clone(), async || {
        cluster.kill_master_of(key.as_str()).await.unwrap();
    })
    .await;
    println!("killed: {seen:?}");
    assert_survived(&seen, &config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_master_stalls_only_its_own_shard() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let config = config(&cluster);
    let redis = Redis::connect(&config).await.unwrap();
    let key = key_on_shard(&keys(&redis), "load", 0);
    let seen = break_under_load(&redis, key.clone(), async || {
        cluster.freeze(cluster.master_of(key.as_str()).await.unwrap()).unwrap();
    })
    .await;
    println!("frozen: {seen:?}");
    assert_survived(&seen, &config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_script_is_loaded_again() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let redis = Redis::connect(&config(&cluster)).await.unwrap();
    let places: Vec<[Key; 2]> = (0..3)
        .map(|shard| ["first", "second"].map(|name| key_on_shard(&keys(&redis), name, shard)))
        .collect();
    for round in 1..=3_u64 {
        for [first, second] in &places {
            let call = COUNT.call().key(first).key(second);
            assert_eq!(redis.run::<u64>(call).await.unwrap(), round);
        }
        for url in cluster.urls() {
            let client = redis_client(&url);
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let () = ::redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
        }
    }
}

fn redis_client(url: &str) -> ::redis::Client {
    ::redis::Client::open(url).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_fail_no_idempotent_call() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let redis = Redis::connect(&config(&cluster)).await.unwrap();
    let keys = keys(&redis);
    let names: Vec<Key> = (0..200).map(|name| keys.key(&format!("n{name}"), "moving").unwrap()).collect();
    let stop = AtomicBool::new(false);
    let worker = |offset: usize| {
        let (redis, names, stop) = (&redis, &names, &stop);
        async move {
            let mut calls = 0_u32;
            for step in 0_usize.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = &names[(offset * 31 + step) % names.len()];
                let other = &names[(offset * 17 + step * 7) % names.len()];
                redis.run::<()>(Command::new("SET").key(key).arg(step).idempotent()).await.unwrap();
                let pipeline = Pipeline::new("pair")
                    .push(Command::new("SET").key(key).arg(step).idempotent())
                    .push(Command::new("GET").key(other).idempotent());
                let pipeline = if step % 2 == 0 { pipeline.atomic() } else { pipeline };
                redis.run_all::<(String, Option<String>)>(pipeline).await.unwrap();
                redis.run::<u64>(COUNT.call().key(other).key(key).idempotent()).await.unwrap();
                calls += 3;
            }
            calls
        }
    };
    let moves = async {
        for _ in 0..4 {
            cluster.move_slot_of(names[0].as_str()).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (calls, ()) = tokio::join!(join_all((0..8).map(worker)), moves);
    assert!(calls.iter().all(|calls| *calls > 10), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_ends_a_call_to_a_frozen_node() {
    let cluster = RedisCluster::start_private().await.unwrap();
    // Far above the deadline, so that only the deadline can end the call.
    let config = RedisConfig { command_timeout: Duration::from_secs(4), ..config(&cluster) };
    let redis = Redis::connect(&config).await.unwrap();
    let key = key_on_shard(&keys(&redis), "count", 0);
    let master = cluster.master_of(key.as_str()).await.unwrap();
    cluster.freeze(master).unwrap();
    for command in [Command::new("GET").key(&key).idempotent(), Command::new("INCR").key(&key)] {
        let begin = Instant::now();
        let call = redis.run::<Option<u64>>(command);
        let error = Deadline::after(Duration::from_millis(50)).scope(call).await.unwrap_err();
        let took = begin.elapsed();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        assert!(took >= Duration::from_millis(45) && took < Duration::from_secs(2), "{took:?}");
    }
    cluster.thaw(master).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_attempt_is_retried_only_if_idempotent() {
    let cluster = RedisCluster::start_private().await.unwrap();
    // Longer than the test, because the frozen master must wake as master and run the commands in its socket.
    let config = RedisConfig {
        command_timeout: Duration::from_millis(200),
        overall_timeout: Duration::from_millis(900),
        ..config(&cluster)
    };
    let redis = Redis::connect(&config).await.unwrap();
    let [once, often] = ["once", "often"].map(|name| key_on_shard(&keys(&redis), name, 0));
    let master = cluster.master_of(once.as_str()).await.unwrap();
    cluster.freeze(master).unwrap();
    let calls = tokio::join!(
        redis.run::<u64>(Command::new("INCR").key(&once)),
        // INCR is not idempotent; the mark makes the retries countable.
        redis.run::<u64>(Command::new("INCR").key(&often).idempotent()),
    );
    cluster.thaw(master).unwrap();
    assert!(matches!(calls.0, Err(Error::Unknown { .. })), "{calls:?}");
    assert!(matches!(calls.1, Err(Error::Unknown { .. })), "{calls:?}");
    let count = async |key: &Key| redis.run::<Option<u64>>(Command::new("GET").key(key).idempotent()).await;
    // Sent earlier on the same connections, so they have run before this reply. A new connection may overtake them.
    onsale_testkit::wait_until("the waiting commands have run", Duration::from_secs(10), async || {
        count(&once).await.is_ok_and(|count| count == Some(1))
            && count(&often).await.is_ok_and(|count| count > Some(1))
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count(&once).await.unwrap(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_created_during_an_outage_serves_the_other_shards() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let settings = config(&cluster);
    let redis = Redis::connect(&settings).await.unwrap();
    let [dead, alive] = [0, 1].map(|shard| key_on_shard(&keys(&redis), "load", shard));
    drop(redis);
    cluster.freeze(cluster.master_of(dead.as_str()).await.unwrap()).unwrap();
    let begin = Instant::now();
    let redis = Redis::connect(&settings).await.unwrap();
    let () = redis.run(Command::new("SET").key(&alive).arg("x").idempotent()).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    redis.ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_failed_nodes_are_rate_limited() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let redis = Redis::connect(&config(&cluster)).await.unwrap();
    let all = [0, 1, 2].map(|shard| key_on_shard(&keys(&redis), "load", shard));
    let mut nodes = Vec::new();
    for key in &all {
        nodes.push(cluster.master_of(key.as_str()).await.unwrap());
    }
    for key in &all {
        nodes.push(cluster.replica_of(key.as_str()).await.unwrap());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers: JoinSet<_> = all
        .iter()
        .cycle()
        .take(12)
        .map(|key| write_until(redis.clone(), key.clone(), Arc::clone(&stop)))
        .collect();
    let begin = Instant::now();
    // Masters first: their replicas then redirect the client to them, and it refreshes its topology.
    for node in &nodes {
        cluster.kill(*node).await.unwrap();
    }
    let calls = Arc::new(AtomicU32::new(0));
    let mut listeners = JoinSet::new();
    for node in nodes {
        let gone = TcpListener::bind(cluster.address(node).unwrap()).await.unwrap();
        let calls = Arc::clone(&calls);
        listeners.spawn(async move {
            while gone.accept().await.is_ok() {
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (calls, took) = (calls.load(Ordering::Relaxed), begin.elapsed());
    stop.store(true, Ordering::Relaxed);
    while writers.join_next().await.transpose().unwrap().is_some() {}
    assert!(calls > 0, "the client does not reconnect");
    // For each of six nodes 8 connections at once, then one every 50 ms.
    let calls_max = 6 * (9 + took.as_millis() / 50);
    assert!(u128::from(calls) <= calls_max, "{calls} connections in {took:?}");
}
