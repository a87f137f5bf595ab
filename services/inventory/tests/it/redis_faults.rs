//! Redis fails in the middle of a rush: it is wiped, lies, loses a master, or does not answer at all. Nothing is sold twice,
//! nobody is refused what is free, and soon after all is as if nothing had happened.

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
    books::{Chance, MENDED, assert_short},
    support::{RECONCILING, SOON, World, a_reservation, count, general, seated},
};

const CUSTOMERS: u32 = 120;
const UNITS: u32 = 120;
const AT_ONCE: usize = 24;
/// So many have been served when the fault comes.
const SERVED: u32 = 20;

/// A cluster that these tests break, one at a time, and mend again.
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

/// Customers come and go, more than there is for; `fault` strikes in their midst.
async fn rush(world: &World, event: &pb::Event, fault: impl AsyncFnOnce()) {
    let served = &AtomicU32::new(0);
    let customers = stream::iter(0..CUSTOMERS).map(|number| async move {
        let mut chance = Chance::of(number);
        let sector = usize::try_from(chance.below(2)).unwrap();
        let message = a_reservation(event, vec![count(event, sector, 1 + chance.below(4))]);
        match world.reserve_patiently(&message).await {
            Ok(hold) => {
                served.fetch_add(1, Ordering::Relaxed);
                if chance.one_in(2) {
                    world.release_patiently(&hold.hold_id).await;
                }
            }
            Err(status) => assert_short(&message, &status),
        }
    });
    let struck = async {
        let midst = async || served.load(Ordering::Relaxed) >= SERVED;
        wait_until("the rush is on", SOON, midst).await;
        fault().await;
    };
    join(customers.buffer_unordered(AT_ONCE).collect::<()>(), struck).await;
}

/// Every unit is accounted for and can be had, and the pools say what Postgres says.
async fn assert_mended(world: &World, event: &pb::Event) {
    world.assert_books(event).await;
    world.assert_sells_out(event).await;
    wait_until("the pools are as postgres has it", MENDED, async || {
        for sector in 0..event.sectors.len() {
            let command = Command::new("GET").key(&world.pool(event, sector));
            let pool = world.redis.run::<Option<Vec<u8>>>(command).await;
            // All is taken, so a pool is empty or not there.
            if !pool.is_ok_and(|pool| pool.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))) {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test]
async fn redis_wiped_again_and_again_in_the_rush_costs_no_unit() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    let wipe = async || {
        for _ in 0..5 {
            cluster.flush_all().await.unwrap();
        }
    };
    rush(&world, &event, wipe).await;
    assert_mended(&world, &event).await;
}

#[tokio::test]
async fn a_master_killed_in_the_rush_costs_no_unit() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    let pool = world.pool(&event, 0);
    let mut killed = None;
    rush(&world, &event, async || {
        killed = Some(cluster.kill_master_of(pool.as_str()).await.unwrap());
    })
    .await;
    assert_mended(&world, &event).await;
    cluster.restart(killed.unwrap()).await.unwrap();
    cluster.wait_until_settled().await.unwrap();
}

#[tokio::test]
async fn all_of_redis_frozen_in_the_rush_stops_no_sale() {
    let cluster = cluster().await;
    let world = world_on(&cluster).await;
    let event = an_event(&world).await;
    // The rush goes on and ends without Redis.
    rush(&world, &event, async || cluster.freeze_all().unwrap()).await;
    world.assert_books(&event).await;
    let hold = world.reserve_patiently(&a_reservation(&event, vec![count(&event, 0, 1)])).await;
    if let Ok(hold) = hold {
        world.release_patiently(&hold.hold_id).await;
    }
    cluster.thaw_all().unwrap();
    assert_mended(&world, &event).await;
    cluster.wait_until_settled().await.unwrap();
}

/// What somebody may write over the pool of a sector.
async fn lie(world: &World, event: &pb::Event, sector: usize, chance: &mut Chance) {
    let key = world.pool(event, sector);
    let bytes = usize::try_from(event.sectors[sector].capacity.div_ceil(8)).unwrap();
    match chance.below(5) {
        // All is free, also what is taken.
        0 => world.set_pool(event, sector, &vec![0xff; bytes]).await,
        // Nothing is free.
        1 => world.set_pool(event, sector, &vec![0; bytes]).await,
        // There are ten times as many units.
        2 => world.set_pool(event, sector, &vec![0xff; bytes * 10]).await,
        // Not even a pool.
        3 => world.wipe_pool(event, sector).await,
        _ => {
            world.wipe_pool(event, sector).await;
            // Somebody may have built the pool in between.
            let _ = world.redis.run::<i64>(Command::new("RPUSH").key(&key).arg("garbage")).await;
        }
    }
}

#[tokio::test]
async fn redis_that_lies_all_through_the_rush_sells_nothing_twice_and_refuses_nobody() {
    let world = World::start_with(RECONCILING).await;
    let event = an_event(&world).await;
    let twin = world.twin(&[]).await;
    rush(&twin, &event, async || {
        let mut chance = Chance::of(CUSTOMERS);
        for _ in 0..100 {
            lie(&world, &event, 0, &mut chance).await;
            lie(&world, &event, 1, &mut chance).await;
        }
    })
    .await;
    assert_mended(&world, &event).await;
}

#[tokio::test]
async fn whatever_a_pool_says_what_is_free_can_be_had() {
    let world = World::start().await;
    for number in 0..10 {
        let event = world.on_sale(vec![general("A", 12), seated("B", &[6, 6])]).await;
        let mut chance = Chance::of(number);
        for sector in [0, 1] {
            world.hold(&event, vec![count(&event, sector, 5)]).await.unwrap();
            lie(&world, &event, sector, &mut chance).await;
        }
        world.assert_sells_out(&event).await;
    }
}

#[tokio::test]
async fn the_pool_of_an_event_that_is_sold_out_is_set_right_too() {
    let world = World::start_with(RECONCILING).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 8)]).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), pb::EventState::SoldOut);
    // As a failover leaves it that lost the last writes.
    world.set_pool(&event, 0, &[0xff]).await;
    wait_until("the pool offers nothing", SOON, async || {
        world.pool_bytes(&event, 0).await.is_none_or(|bytes| bytes == [0])
    })
    .await;
}

#[tokio::test]
async fn a_pool_of_another_type_is_written_anew_though_nobody_asks_for_units() {
    let world = World::start_with(RECONCILING).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    world.hold(&event, vec![count(&event, 0, 3)]).await.unwrap();
    let key = world.pool(&event, 0);
    wait_until("the pool is something else", SOON, async || {
        world.wipe_pool(&event, 0).await;
        world.redis.run::<i64>(Command::new("RPUSH").key(&key).arg("garbage")).await.is_ok()
    })
    .await;
    wait_until("the pool is as postgres has it", SOON, async || {
        let pool = world.redis.run::<Option<Vec<u8>>>(Command::new("GET").key(&key)).await;
        pool.is_ok_and(|bytes| bytes == Some(vec![0b0001_1111]))
    })
    .await;
}
