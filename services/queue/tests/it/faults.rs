//! Redis dies or is wiped while a thousand customers watch: no number changes, no message is wrong, and every watcher gets
//! its right position within 10 s.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use onsale_queue::store::keys::Keys;
use onsale_testkit::stack::{RedisCluster, TestRedis};
use onsale_types::{EventId, SystemClock};
use tokio::time::Instant;

use crate::{
    crowd::{Door, Member, Watchers, assert_one_order, join_at_once, seqs_of},
    support::World,
};

const PEOPLE: usize = 1_000;

/// Longest time until every watcher has its right position.
const BOUND: Duration = Duration::from_secs(10);

/// Starts a world on a Redis of its own. Positions are sent every 2 s, so that small changes arrive within the bound too.
async fn start(cluster: &RedisCluster) -> World {
    let redis = TestRedis { urls: cluster.urls(), prefix: "test".to_owned() };
    World::start_on(redis, Arc::new(SystemClock), &[("WATCH__POSITION_INTERVAL", "2s")]).await
}

/// Lets some customers leave and others join twice while Redis is unavailable. Returns the median time of the first join, the
/// second join and the leave: single calls may take long, because they are the breaker's trials.
async fn come_and_go(world: &World, event: &str, members: &[Member]) -> [Duration; 3] {
    let (mut first, mut again, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for leaving in members.iter().step_by(97) {
        let person = world.customer();
        for took in [&mut first, &mut again] {
            let begin = Instant::now();
            world.join(&person, event).await.unwrap();
            took.push(begin.elapsed());
        }
        let begin = Instant::now();
        world.leave(&leaving.person, event).await.unwrap();
        left.push(begin.elapsed());
    }
    [first, again, left].map(|mut took| {
        took.sort();
        took[took.len() / 2]
    })
}

/// Admits twenty customers.
async fn admit_some(world: &World, event: &str) {
    let turns = || async { world.count("SELECT count(*) FROM entry WHERE state = 'ADMITTED'", &[]).await };
    let policy = onsale_proto::queue::v1::QueuePolicy { open_turns_max: 20, ..Default::default() };
    world.update_policy(event, policy, &["open_turns_max"]).await;
    world.inventory.set_free(1_000);
    onsale_testkit::wait_until("twenty are admitted", crate::support::SOON, || async { turns().await == 20 })
        .await;
}

#[tokio::test]
async fn thousand_watchers_survive_the_death_of_a_redis_master() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = start(&cluster).await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 4).await];
    let members = join_at_once(&world, &doors, &event, PEOPLE).await;
    assert_one_order(&world, &event, &members).await;
    let seqs = seqs_of(&world, &event).await;
    let watchers = Watchers::open(&doors[0], &event, &members).await;
    let log = Keys::new(world.redis.keyspace("queue").unwrap()).log(EventId::parse(&event).unwrap()).unwrap();
    cluster.kill_master_of(log.as_str()).await.unwrap();
    let took = come_and_go(&world, &event, &members).await;
    println!("while redis was away joining, joining again and leaving took {took:?}");
    assert!(took[0].max(took[1]) < Duration::from_millis(300), "a join does not wait for redis: {took:?}");
    watchers.converge(&world, &event, BOUND).await;
    admit_some(&world, &event).await;
    watchers.converge(&world, &event, BOUND).await;
    let after = seqs_of(&world, &event).await;
    assert!(seqs.iter().all(|(customer, seq)| after.get(customer) == Some(seq)), "no number changed");
}

#[tokio::test]
async fn joins_do_not_wait_for_an_unresponsive_redis() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = start(&cluster).await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 1).await];
    let members = join_at_once(&world, &doors, &event, 300).await;
    cluster.freeze_all().unwrap();
    let took = come_and_go(&world, &event, &members).await;
    println!("while redis did not answer joining, joining again and leaving took {took:?}");
    assert!(took[0].max(took[1]) < Duration::from_millis(300), "a join does not wait for redis: {took:?}");
    let asked = Instant::now();
    for member in members.iter().rev().take(8) {
        let expected = member.seq - 4;
        assert_eq!(world.position(&member.person, &event).await.unwrap().position, expected);
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "nor do polls: {:?}", asked.elapsed());
}

#[tokio::test]
async fn thousand_watchers_survive_a_wiped_redis() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = start(&cluster).await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 4).await];
    let members = join_at_once(&world, &doors, &event, PEOPLE).await;
    let seqs = seqs_of(&world, &event).await;
    let watchers = Watchers::open(&doors[0], &event, &members).await;
    let leaves =
        || join_all(members.iter().skip(3).step_by(89).map(|member| world.leave(&member.person, &event)));
    let (left, flushed) = tokio::join!(leaves(), cluster.flush_all());
    flushed.unwrap();
    left.into_iter().for_each(|left| drop(left.unwrap()));
    watchers.converge(&world, &event, BOUND).await;
    cluster.flush_all().await.unwrap();
    admit_some(&world, &event).await;
    watchers.converge(&world, &event, BOUND).await;
    let after = seqs_of(&world, &event).await;
    assert!(seqs.iter().all(|(customer, seq)| after.get(customer) == Some(seq)), "no number changed");
    // Position queries are answered from Redis again.
    for member in members.iter().rev().take(5) {
        let ahead = "SELECT count(*) FROM entry WHERE state = 'WAITING' AND seq <= $1";
        let truth = world.count(ahead, &[&i64::try_from(member.seq).unwrap()]).await;
        let standing = world.position(&member.person, &event).await.unwrap();
        assert_eq!(i64::try_from(standing.position).unwrap(), truth);
    }
}
