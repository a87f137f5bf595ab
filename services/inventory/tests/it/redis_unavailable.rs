//! Redis is unavailable: Postgres alone sells, slower. Afterwards the stale pools cause no wrong sale.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use onsale_testkit::{
    service::TestStores,
    stack::{self, RedisCluster, TestRedis},
};

use crate::support::{World, count, exactly, general, numbers, reason, seated};

async fn start_on(cluster: &RedisCluster) -> World {
    start_on_with(cluster, &[]).await
}

async fn start_on_with(cluster: &RedisCluster, settings: &[(&str, &str)]) -> World {
    let redis = TestRedis { urls: cluster.urls(), prefix: "test".to_owned() };
    let database = stack::database().await.unwrap();
    World::start_on_with(TestStores { database, redis }, settings).await
}

#[tokio::test]
async fn sale_without_redis_causes_no_oversell_after_its_return() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = start_on(&cluster).await;
    let event = world.on_sale(vec![general("A", 30), seated("B", &[10, 10])]).await;
    let first = world.hold(&event, vec![count(&event, 0, 3), count(&event, 1, 3)]).await.unwrap();

    let mut nodes = Vec::new();
    for sector in [0, 1] {
        let pool = world.pool(&event, sector);
        nodes.push(cluster.master_of(pool.as_str()).await.unwrap());
        nodes.push(cluster.replica_of(pool.as_str()).await.unwrap());
    }
    for node in &nodes {
        cluster.freeze(*node).unwrap();
    }
    let holds = join_all((0..10).map(|index| world.hold(&event, vec![count(&event, index % 2, 2)]))).await;
    assert!(holds.iter().all(Result::is_ok), "{holds:?}");
    assert_eq!(world.taken().await, 26);
    let taken = world.hold(&event, vec![exactly(&event, 1, &[1])]).await;
    assert_eq!(reason(taken).1, "UNITS_TAKEN");
    world.release(&first.hold_id).await.unwrap();
    let again = world.hold(&event, vec![count(&event, 0, 3)]).await.unwrap();
    assert_eq!(numbers(&again, 0), [1, 2, 3]);

    for node in nodes {
        cluster.thaw(node).unwrap();
    }
    // The pools are older than the freeze: half of the units that they offer are taken.
    let rush = join_all((0..60).map(|index| world.hold(&event, vec![count(&event, index % 2, 1)]))).await;
    for refused in rush.into_iter().filter(Result::is_err) {
        assert_eq!(reason(refused).1, "NOT_ENOUGH_UNITS");
    }
    assert_eq!(world.taken().await, 50);
}

#[tokio::test]
async fn processes_without_redis_see_units_taken_by_the_other() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let first = start_on(&cluster).await;
    let second = first.twin(&[]).await;
    let event = first.on_sale(vec![general("A", 200)]).await;
    let pool = first.pool(&event, 0);
    for node in [cluster.master_of(pool.as_str()).await, cluster.replica_of(pool.as_str()).await] {
        cluster.freeze(node.unwrap()).unwrap();
    }
    // Each process sees the units of the other only when it reads Postgres.
    for round in 0..12 {
        for world in [&first, &second] {
            let hold = world.hold(&event, vec![count(&event, 0, 2)]).await;
            assert!(hold.is_ok(), "round {round}: {hold:?}");
        }
    }
    let both = [&first, &second];
    let rush = join_all((0..80).map(|index| both[index % 2].hold(&event, vec![count(&event, 0, 2)]))).await;
    for refused in rush.into_iter().filter(Result::is_err) {
        assert_eq!(reason(refused).1, "NOT_ENOUGH_UNITS");
    }
    assert_eq!(first.taken().await, 200);
}

#[tokio::test]
async fn refusing_nodes_cost_only_the_first_call_its_timeout() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let patience = Duration::from_secs(2);
    let world = start_on_with(&cluster, &[("POOL__PATIENCE", "2s"), ("POOL__AWAY_FOR", "1m")]).await;
    let event = world.on_sale(vec![general("A", 100)]).await;
    cluster.stop().await.unwrap();
    let begin = Instant::now();
    for _ in 0..50 {
        world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    }
    // Without a breaker each call would wait twice for 50 ms: to take the unit, and to remove it.
    assert!(begin.elapsed() < patience * 2, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn loss_of_all_redis_data_during_a_sale_costs_no_unit() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let world = start_on(&cluster).await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let buyers = (0..40).map(|index| {
        let (world, event, cluster) = (&world, &event, &cluster);
        async move {
            if index == 10 {
                cluster.flush_all().await.unwrap();
            }
            world.hold(event, vec![count(event, 0, 1)]).await
        }
    });
    let held = join_all(buyers).await.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((held, world.taken().await), (20, 20));
}
