//! Wiped, corrupted and lagging pools cost time but never a unit.

use futures_util::{StreamExt, future::join_all, stream};
use onsale_proto::inventory::v1 as pb;
use onsale_testkit::wait_until;

use crate::support::{RECONCILING, SOON, World, an_event, count, exactly, general, numbers, reason, seated};

/// Holds single units until none is left; returns them.
async fn buy_all(world: &World, event: &pb::Event, sector: usize) -> Vec<u32> {
    let mut units = Vec::new();
    loop {
        match world.hold(event, vec![count(event, sector, 1)]).await {
            Ok(hold) => units.extend(numbers(&hold, 0)),
            Err(status) => {
                assert_eq!(reason(Err::<(), _>(status)).1, "NOT_ENOUGH_UNITS");
                units.sort_unstable();
                return units;
            }
        }
    }
}

#[tokio::test]
async fn wiped_pool_is_rebuilt_from_postgres() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 9), seated("B", &[4, 4])]).await;
    for sector in [0, 1] {
        world.hold(&event, vec![count(&event, sector, 3)]).await.unwrap();
        world.wipe_pool(&event, sector).await;
        world.hold(&event, vec![count(&event, sector, 1)]).await.unwrap();
        assert!(world.pool_bytes(&event, sector).await.is_some());
        world.wipe_pool(&event, sector).await;
        let left = buy_all(&world, &event, sector).await;
        assert_eq!(left.len(), [5, 4][sector]);
    }
    assert_eq!(world.taken().await, 17);
}

#[tokio::test]
async fn pool_with_taken_units_sells_none_of_them_twice() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 40), seated("B", &[20, 20])]).await;
    for sector in [0, 1] {
        for _ in 0..6 {
            world.hold(&event, vec![count(&event, sector, 5)]).await.unwrap();
        }
        world.set_pool(&event, sector, &[0xff; 5]).await;
        let left = buy_all(&world, &event, sector).await;
        assert_eq!(left.len(), 10);
    }
    assert_eq!(world.taken().await, 80);
}

#[tokio::test]
async fn pool_with_units_beyond_the_capacity_sells_none_of_them() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 3), seated("B", &[3])]).await;
    for sector in [0, 1] {
        // Sets bits 4 to 24, counted from the highest of each byte, and none of the existing units.
        world.set_pool(&event, sector, &[0b0001_1111, 0xff, 0xff]).await;
        assert_eq!(buy_all(&world, &event, sector).await, [1, 2, 3]);
    }
}

#[tokio::test]
async fn pool_that_lacks_free_units_causes_no_refusal() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 8), seated("B", &[8])]).await;
    for sector in [0, 1] {
        world.set_pool(&event, sector, &[0]).await;
        world.hold(&event, vec![count(&event, sector, 4)]).await.unwrap();
        world.set_pool(&event, sector, &[0]).await;
        assert_eq!(buy_all(&world, &event, sector).await.len(), 4);
    }
    let exact = world.on_sale(vec![seated("C", &[4])]).await;
    world.set_pool(&exact, 0, &[0]).await;
    world.hold(&exact, vec![exactly(&exact, 0, &[2])]).await.unwrap();
}

#[tokio::test]
async fn pool_of_another_type_is_replaced() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 4), seated("B", &[4])]).await;
    for sector in [0, 1] {
        let command = onsale_storage::redis::Command::new("RPUSH").key(&world.pool(&event, sector)).arg("x");
        world.redis.run::<i64>(command).await.unwrap();
        assert_eq!(buy_all(&world, &event, sector).await, [1, 2, 3, 4]);
    }
}

#[tokio::test]
async fn pools_wiped_during_a_rush_sell_every_unit_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 30), seated("B", &[15, 15])]).await;
    let buyers = (0..100).map(|index| {
        let (world, event) = (&world, &event);
        async move {
            if index % 10 == 0 {
                world.wipe_pool(event, 0).await;
                world.set_pool(event, 1, &[0xff; 4]).await;
            }
            let answer = world.hold(event, vec![count(event, index % 2, 1)]).await;
            if let Err(status) = answer {
                assert_eq!(reason(Err::<(), _>(status)).1, "NOT_ENOUGH_UNITS");
            }
        }
    });
    join_all(buyers).await;
    assert_eq!(world.taken().await, 60);
}

#[tokio::test]
async fn reconciler_corrects_unused_pools() {
    let world = World::start_with(RECONCILING).await;
    let event = world.on_sale(vec![general("A", 8), seated("B", &[8])]).await;
    world.hold(&event, vec![count(&event, 0, 1), exactly(&event, 1, &[8])]).await.unwrap();
    world.set_pool(&event, 0, &[0]).await;
    world.set_pool(&event, 1, &[0xff]).await;
    wait_until("the pools match postgres", SOON, async || {
        world.pool_bytes(&event, 0).await == Some(vec![0b0111_1111])
            && world.pool_bytes(&event, 1).await == Some(vec![0b1111_1110])
    })
    .await;
}

#[tokio::test]
async fn pools_compared_during_a_rush_cause_no_refusal() {
    const CUSTOMERS: usize = 4_000;
    const SETTINGS: &[(&str, &str)] =
        &[("POOL__RECONCILE_EVERY", "1ms"), ("POOL__ON_THE_WAY_MAX", "500ms"), ("POOL__PATIENCE", "5s")];
    let world = World::start_with(SETTINGS).await;
    // Another process does not see the units in flight of this one.
    let twin = world.twin(SETTINGS).await;
    let event = world.on_sale(vec![general("A", 10_000)]).await;
    let buyers = stream::iter(0..CUSTOMERS).map(|index| {
        let (world, event) = (if index % 2 == 0 { &world } else { &twin }, &event);
        async move { world.hold(event, vec![count(event, 0, 2)]).await.unwrap() }
    });
    buyers.buffer_unordered(200).for_each(|_| async {}).await;
    assert_eq!(world.taken().await, 8_000);
}

#[tokio::test]
async fn first_units_are_taken_at_any_offset() {
    let world = World::start().await;
    let event = on_sale_by_hundreds(&world, general("A", 20_000)).await;
    for (first, step) in [(6, 1), (1, 3), (1, 8), (1, 97), (1, 199)] {
        let free: Vec<u32> = (first..=20_000).step_by(step).collect();
        world.set_pool(&event, 0, &bitmap(&free)).await;
        let held = world.hold(&event, vec![count(&event, 0, 100)]).await.unwrap();
        assert_eq!(numbers(&held, 0), free[..100]);
        assert_eq!(world.pool_bytes(&event, 0).await.unwrap(), bitmap(&free[100..]), "every {step}");
        world.release(&held.hold_id).await.unwrap();
    }
}

/// Creates an event on sale with a limit of a hundred units per customer.
async fn on_sale_by_hundreds(world: &World, sector: pb::Sector) -> pb::Event {
    let event = pb::Event { units_per_customer_max: 100, ..an_event(vec![sector]) };
    let event = world.create(event).await.unwrap();
    world.activate(&event.event_id).await.unwrap()
}

/// Returns the bitmap in the bit order of Redis, for 20,000 units.
fn bitmap(units: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 2_500];
    for unit in units {
        bytes[usize::try_from((unit - 1) / 8).unwrap()] |= 0b1000_0000 >> ((unit - 1) % 8);
    }
    bytes
}

#[tokio::test]
async fn thousand_seats_leave_the_pool_together_and_return() {
    let world = World::start().await;
    let event = on_sale_by_hundreds(&world, seated("B", &[100; 12])).await;
    let hold = || world.hold(&event, vec![count(&event, 0, 100)]);
    let holds = join_all((0..11).map(|_| hold())).await;
    let left = |pool: Option<Vec<u8>>| pool.unwrap().iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(left(world.pool_bytes(&event, 0).await), 100);
    let release = async |hold: &pb::Hold| world.release(&hold.hold_id).await.unwrap();
    join_all(holds.iter().map(|hold| release(hold.as_ref().unwrap()))).await;
    assert_eq!(left(world.pool_bytes(&event, 0).await), 1_200);
}

#[tokio::test]
async fn units_on_their_way_are_returned_only_when_they_count_as_lost() {
    let settings = [("POOL__RECONCILE_EVERY", "50ms"), ("POOL__ON_THE_WAY_MAX", "2s")];
    let world = World::start_with(&settings).await;
    let event = world.on_sale(vec![general("A", 8)]).await;
    let begun = std::time::Instant::now();
    world.set_pool(&event, 0, &[0b0001_1111]).await;
    wait_until("lost units are offered again", SOON, async || {
        world.pool_bytes(&event, 0).await == Some(vec![0xff])
    })
    .await;
    assert!(begun.elapsed() >= std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn unreadable_pool_does_not_stop_the_correction_of_others() {
    let world = World::start_with(RECONCILING).await;
    // Pools are compared in this order.
    let first = world.on_sale(vec![general("A", 8)]).await;
    let second = world.on_sale(vec![general("A", 8)]).await;
    assert!(first.event_id < second.event_id);
    let key = world.pool(&first, 0);
    world.redis.run::<i64>(onsale_storage::redis::Command::new("DEL").key(&key)).await.unwrap();
    let broken = onsale_storage::redis::Command::new("RPUSH").key(&key).arg("x");
    wait_until("the first pool is broken", SOON, async || {
        world.redis.run::<i64>(broken.clone()).await.is_ok() || {
            world.wipe_pool(&first, 0).await;
            false
        }
    })
    .await;
    world.set_pool(&second, 0, &[0]).await;
    wait_until("the second pool matches postgres", SOON, async || {
        world.pool_bytes(&second, 0).await == Some(vec![0xff])
    })
    .await;
}

#[tokio::test]
async fn pool_follows_holds_and_is_deleted_with_the_event() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("B", &[8])]).await;
    let first = world.hold(&event, vec![count(&event, 0, 3)]).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0b0001_1111]));
    world.hold(&event, vec![exactly(&event, 0, &[8])]).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0b0001_1110]));
    world.release(&first.hold_id).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0b1111_1110]));
    world.end(&event.event_id).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, None);
}

#[tokio::test]
async fn restart_during_a_sale_loses_nothing() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 6)]).await;
    let held = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    let sold = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.commit(&sold.hold_id).await.unwrap();
    let before = world.availability(&event).await;
    let world = world.restart().await;
    let after = world.availability(&event).await;
    assert_eq!((after.revision, &after.sectors), (before.revision, &before.sectors));
    assert_eq!(buy_all(&world, &event, 0).await, [4, 5, 6]);
    world.release(&held.hold_id).await.unwrap();
    assert_eq!(buy_all(&world, &event, 0).await, [1, 2]);
}
