//! Leases under faults: Redis fails over, loses leases and gives them to unknown holders; leaders pause, leave and
//! return. In every case, lines are written in the order of their epochs.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use onsale_storage::{
    lease::Lease,
    postgres::column,
    redis::{Command, Redis},
};
use onsale_testkit::{stack::RedisCluster, wait_until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    lease::{LONG, LeaseStores, Process, SHORT, elected},
    redis::{client, config, keys},
};

/// Asserts that epochs never decrease from line to line, and that each belongs to one writer.
fn assert_fenced(written: &[(i64, String)]) {
    assert!(
        written.is_sorted_by_key(|(epoch, _)| *epoch),
        "an old leader wrote after a new one: {written:?}"
    );
    let mut owners: BTreeMap<i64, &str> = BTreeMap::new();
    for (epoch, writer) in written {
        assert_eq!(*owners.entry(*epoch).or_insert(writer), writer, "two writers under epoch {epoch}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_failover_changes_the_leader_at_most() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let stores = LeaseStores::new(Redis::connect(&config(&cluster)).await.unwrap()).await;
    let settings = onsale_storage::lease::LeaseConfig { ttl: Duration::from_secs(8), ..LONG };
    let processes: Vec<Process> = (0..2).map(|_| stores.process(&settings)).collect();
    let mut candidacies: Vec<_> =
        processes.iter().map(|process| process.election.enter("event-1").unwrap()).collect();
    wait_until("a process leads", Duration::from_secs(10), async || {
        candidacies.iter().any(|it| it.lease().is_some())
    })
    .await;
    let key = keys(&stores.redis).key("lease", "event-1").unwrap();
    cluster.kill_master_of(key.as_str()).await.unwrap();
    let begin = Instant::now();
    let mut lines_after_failover = 0;
    while lines_after_failover < 20 {
        assert!(begin.elapsed() < Duration::from_secs(40), "no process leads");
        for (number, candidacy) in candidacies.iter().enumerate() {
            if let Some(lease) = candidacy.lease() {
                let written = stores.write(&lease, &number.to_string(), Duration::ZERO).await;
                // Count only once the cluster serves the lease again.
                if written.is_ok() && begin.elapsed() > Duration::from_secs(6) {
                    lines_after_failover += 1;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_fenced(&stores.written("event-1").await);
    candidacies.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_redis_gives_a_new_epoch_and_one_valid_leader() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let stores = LeaseStores::new(Redis::connect(&config(&cluster)).await.unwrap()).await;
    let processes: Vec<Process> = (0..3).map(|_| stores.process(&LONG)).collect();
    let mut candidacies: Vec<_> =
        processes.iter().map(|process| process.election.enter("event-1").unwrap()).collect();
    let mut last = 0;
    for _ in 0..4 {
        let new_leader = || candidacies.iter().filter_map(|it| it.lease()).find(|lease| lease.epoch() > last);
        wait_until("a new process leads", Duration::from_secs(10), async || new_leader().is_some()).await;
        let lease = new_leader().expect("a new process leads");
        stores.write(&lease, &lease.epoch().to_string(), Duration::ZERO).await.unwrap();
        last = lease.epoch();
        cluster.flush_all().await.unwrap();
    }
    assert_fenced(&stores.written("event-1").await);
    candidacies.clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_keep_lines_in_the_order_of_epochs() {
    const PROCESSES: usize = 3;
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let stores = LeaseStores::new(client().await).await;
    let processes: Vec<Process> = (0..PROCESSES).map(|_| stores.process(&SHORT)).collect();
    let stop = AtomicBool::new(false);
    let writers = processes
        .iter()
        .enumerate()
        .map(|(number, process)| write_with_stale_leases(&stores, process, number, seed, &stop));
    let chaos = async {
        let mut random = StdRng::seed_from_u64(seed);
        let key = keys(&stores.redis).key("lease", "event-1").unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(random.random_range(50..600))).await;
            // Errors do not matter: these commands only cause faults.
            let _ignored = match random.random_range(0..3) {
                0 => stores.redis.run::<()>(Command::new("DEL").key(&key)).await,
                1 => {
                    let strange = Command::new("SET").key(&key).arg("stranger").arg("PX").arg(300);
                    stores.redis.run(strange).await
                }
                _ => {
                    stores
                        .redis
                        .run(Command::new("PEXPIRE").key(&key).arg(random.random_range(1..3_000)))
                        .await
                }
            };
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (lines, ()) = tokio::join!(join_all(writers), chaos);
    let written = stores.written("event-1").await;
    println!("{lines:?} lines, epochs up to {}", stores.epoch("event-1").await);
    assert!(written.len() > 50, "{} lines", written.len());
    assert!(stores.epoch("event-1").await > 5, "leadership did not change");
    assert_fenced(&written);
}

/// Writes with the last lease it saw, current or not, and keeps some transactions open for up to 1.5 s. Leaves and
/// enters again at random.
async fn write_with_stale_leases(
    stores: &LeaseStores,
    process: &Process,
    number: usize,
    seed: u64,
    stop: &AtomicBool,
) -> usize {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(1 + u64::try_from(number).unwrap()));
    let writer = number.to_string();
    let mut lines = 0;
    let mut candidacy = Some(process.election.enter("event-1").unwrap());
    let mut lease: Option<Lease> = None;
    while !stop.load(Ordering::Relaxed) {
        if let Some(candidacy) = &candidacy
            && let Some(seen) = candidacy.leadership().borrow().lease()
        {
            lease = Some(seen.clone());
        }
        let hold = if random.random_ratio(1, 10) { random.random_range(0..1_500) } else { 0 };
        if let Some(lease) = &lease
            && stores.write(lease, &writer, Duration::from_millis(hold)).await.is_ok()
        {
            lines += 1;
        }
        if random.random_ratio(1, 40) {
            candidacy = None;
        } else if candidacy.is_none() {
            candidacy = Some(process.election.enter("event-1").unwrap());
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(1..40))).await;
    }
    lines
}

#[tokio::test]
async fn epoch_rises_by_one_with_each_takeover() {
    let stores = LeaseStores::new(client().await).await;
    let processes = [stores.process(&LONG), stores.process(&LONG)];
    for round in 1..=6_i64 {
        let process = &processes[usize::try_from(round % 2).unwrap()];
        let mut candidacy = process.election.enter("event-1").unwrap();
        assert_eq!(elected(&mut candidacy).await.epoch(), round);
        let row = stores.postgres.query_one("row", "SELECT epoch, holder FROM lease", &[]).await.unwrap();
        assert_eq!(column::<i64>(&row, "epoch").unwrap(), round);
    }
    assert!(!stores.database.name.is_empty());
}
