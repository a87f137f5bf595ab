//! A process that dies while it makes tickets; the next one ends what it began.

use onsale_proto::{auth::v1::Role, events::v1::GenerationCompleted};
use onsale_storage::postgres::Postgres;
use onsale_testkit::{
    service::{TestService, TestStores},
    wait_until,
};
use tokio::runtime::{Builder, Runtime};

use crate::support::{SOON, TestEvent, World};

const CAPACITIES: [u32; 2] = [15_000, 5_000];

/// Tickets so far.
async fn made(world: &World) -> i64 {
    world.count("SELECT count(*) AS count FROM ticket").await
}

#[tokio::test]
async fn a_process_killed_while_it_makes_tickets_leaves_no_unit_without_one_and_none_with_two() {
    // A runtime of its own: dropping it ends every task where it stands, connections and all.
    let (runtime, mut world) = tokio::task::spawn_blocking(|| {
        let runtime: Runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let world = runtime.block_on(World::with(&[("GENERATION__BATCH_SIZE", "40")]));
        (runtime, world)
    })
    .await
    .unwrap();
    let organizer = world.person(Role::Organizer);
    let event = TestEvent::new(&organizer, &CAPACITIES);
    world.publish_event(&event).await;
    wait_until("a part of the tickets", SOON, async || made(&world).await >= 1_000).await;
    runtime.shutdown_background();

    let World { service, signing_key, .. } = world;
    let TestService { database, redis, .. } = service;
    let store = Postgres::connect(&database.config(onsale_ticketing::SERVICE)).await.unwrap();
    let open = "SELECT 1 FROM generation WHERE state = 'RUNNING'";
    store.query_one("killed in the middle", open, &[]).await.unwrap();
    let world = World::on(TestStores { database, redis }, signing_key, &[]).await;
    world.wait_until_generated(&event).await;
    for (index, capacity) in CAPACITIES.into_iter().enumerate() {
        world.assert_exact(event.sector(index), capacity).await;
    }
    assert_eq!(made(&world).await, 20_000);
    assert_eq!(world.told::<GenerationCompleted>().await.len(), 1, "completed once");
}
