//! Redis fails during a rush: it is wiped, corrupted, loses a master, or is frozen. No unit is sold twice, no free unit is
//! refused, and soon afterwards the pools match Postgres again.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::{StreamExt, future::join, stream};
use onsale_proto::inventory::v1 as pb;
use onsale_storage::redis::Command;
use onsale_testkit::{
    service::TestStores,
    stack::{self, RedisCluster, TestRedis},
    wait_until,
};
use onsale_types::RequestId;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::{
    support::consistency::{Chance, REPAIRED_WITHIN, assert_short},
    support::{RECONCILING, SOON, World, a_reservation, count, general, seated},
};

const CUSTOMERS: u32 = 120;
const UNITS: u32 = 120;
const AT_ONCE: usize = 24;
/// Served customers at the time of the fault.
const SERVED: u32 = 20;

/// A cluster that these tests break and repair, one test at a time.
async fn cluster() -> MutexGuard<'static, RedisCluster> {
    static CLUSTER: OnceCell<Mutex<RedisCluster>> = OnceCell::const_new();
    let start = || async { Mutex::new(RedisCluster::start_private().await.unwrap()) };
    CLUSTER.get_or_init(start).await.lock().await
}

async fn world_on(cluster: &RedisCluster) -> World {
    let prefix = format!("test-{}", RequestId::generate());
    let redis = TestRedis { urls: cluster.urls(), prefix };
    let database = stack::database().await.unwrap();
    World::start_on_with(TestStores { database, redis }, RECONCILING).await
}

async fn an_event(world: &World) -> pb::Event {
    world.on_sale(vec![general("A", UNITS / 2), seated("B", &[UNITS / 6; 3])]).await
}

/// Runs more customers than there are units; `fault` happens in the middle.
async fn rush(world: &World, event: &pb::Event, fault: impl AsyncFnOnce()) {
    let served = &AtomicU32::new(0);
    let customers = stream::iter(0..CUSTOMERS).map(|number| async move {
        let mut chance = Chance::of(number);
        let sector = usize::try_from(chance.below(2)).unwrap();
        let message = a_reservation(event, vec![count(event, sector, 1 + chance.below(4))]);
        match world.reserve_until_final(&message).await {
            Ok(hold) => {
                served.fetch_add(1, Ordering::Relaxed);
                if chance.one_in(2) {
                    world.release_until_final(&hold.hold_id).await;
                }
            }
            Err(status) => assert_short(&message, &status),
        }
    });
    let struck = async {
        let midst = async || served.load(Ordering::Relaxed) >= SERVED;
        wait_until("the rush has begun", SOON, midst).await;
        fault().await;
    };
    join(customers.buffer_unordered(AT_ONCE).collect::<()>(), struck).await;
}

/// Asserts that every unit is accounted for, that free units can be reserved, and that the pools match Postgres.
async fn assert_repaired(world: &World, event: &pb::Event) {
    world.assert_consistent(event).await;
    world.assert_sells_out(event).await;
    wait_until("the pools match postgres", REPAIRED_WITHIN, async || {
        for sector in 0..event.sectors.len() {
            let command = Command::new("GET").key(&world.pool(event, sector));
            let pool = world.redis.run::<Option<Vec<u8>>>(command).await;
            // All units are taken, so a pool is empty or missing.
            if !pool.is_ok_and(|pool| pool.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))) {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test]
async fn redis_wiped_during_a_rush_costs_no_unit() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    let wipe = async || {
        for _ in 0..5 {
            cluster.flush_all().await.unwrap();
        }
    };
    rush(&world, &event, wipe).await;
    assert_repaired(&world, &event).await;
}

#[tokio::test]
async fn master_killed_during_a_rush_costs_no_unit() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    let pool = world.pool(&event, 0);
    let mut killed = None;
    rush(&world, &event, async || {
        killed = Some(cluster.kill_master_of(pool.as_str()).await.unwrap());
    })
    .await;
    assert_repaired(&world, &event).await;
    cluster.restart(killed.unwrap()).await.unwrap();
    cluster.wait_until_settled().await.unwrap();
}

#[tokio::test]
async fn redis_frozen_during_a_rush_stops_no_sale() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    // The rush continues and ends without Redis.
    rush(&world, &event, async || cluster.freeze_all().unwrap()).await;
    world.assert_consistent(&event).await;
    let hold = world.reserve_until_final(&a_reservation(&event, vec![count(&event, 0, 1)])).await;
    if let Ok(hold) = hold {
        world.release_until_final(&hold.hold_id).await;
    }
    cluster.thaw_all().unwrap();
    assert_repaired(&world, &event).await;
    cluster.wait_until_settled().await.unwrap();
}

/// Overwrites the pool of a sector with a random corruption.
async fn corrupt(world: &World, event: &pb::Event, sector: usize, chance: &mut Chance) {
    let key = world.pool(event, sector);
    let bytes = usize::try_from(event.sectors[sector].capacity.div_ceil(8)).unwrap();
    match chance.below(5) {
        // All units are free, also the taken ones.
        0 => world.set_pool(event, sector, &vec![0xff; bytes]).await,
        // No unit is free.
        1 => world.set_pool(event, sector, &vec![0; bytes]).await,
        // Ten times as many units as exist.
        2 => world.set_pool(event, sector, &vec![0xff; bytes * 10]).await,
        // A key that is not a bitmap.
        3 => world.wipe_pool(event, sector).await,
        _ => {
            world.wipe_pool(event, sector).await;
            // The service may have created the pool in between.
            let _ = world.redis.run::<i64>(Command::new("RPUSH").key(&key).arg("garbage")).await;
        }
    }
}

#[tokio::test]
async fn corrupted_pools_cause_no_oversell_and_no_refusal() {
    let world = World::start_with(RECONCILING).await;
    let event = an_event(&world).await;
    let twin = world.twin(&[]).await;
    rush(&twin, &event, async || {
        let mut chance = Chance::of(CUSTOMERS);
        for _ in 0..100 {
            corrupt(&world, &event, 0, &mut chance).await;
            corrupt(&world, &event, 1, &mut chance).await;
        }
    })
    .await;
    assert_repaired(&world, &event).await;
}

#[tokio::test]
async fn free_units_can_be_held_whatever_a_pool_offers() {
    let world = World::start().await;
    for number in 0..10 {
        let event = world.on_sale(vec![general("A", 12), seated("B", &[6, 6])]).await;
        let mut chance = Chance::of(number);
        for sector in [0, 1] {
            world.hold(&event, vec![count(&event, sector, 5)]).await.unwrap();
            corrupt(&world, &event, sector, &mut chance).await;
        }
        world.assert_sells_out(&event).await;
    }
}

#[tokio::test]
async fn pool_of_a_sold_out_event_is_corrected() {
    let world = World::start_with(RECONCILING).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 8)]).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), pb::EventState::SoldOut);
    // The pool after a failover that lost the last writes.
    world.set_pool(&event, 0, &[0xff]).await;
    wait_until("the pool offers nothing", SOON, async || {
        world.pool_bytes(&event, 0).await.is_none_or(|bytes| bytes == [0])
    })
    .await;
}

#[tokio::test]
async fn unused_pool_of_another_type_is_replaced() {
    let world = World::start_with(RECONCILING).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    world.hold(&event, vec![count(&event, 0, 3)]).await.unwrap();
    let key = world.pool(&event, 0);
    wait_until("the pool has another type", SOON, async || {
        world.wipe_pool(&event, 0).await;
        world.redis.run::<i64>(Command::new("RPUSH").key(&key).arg("garbage")).await.is_ok()
    })
    .await;
    wait_until("the pool matches postgres", SOON, async || {
        let pool = world.redis.run::<Option<Vec<u8>>>(Command::new("GET").key(&key)).await;
        pool.is_ok_and(|bytes| bytes == Some(vec![0b0001_1111]))
    })
    .await;
}
