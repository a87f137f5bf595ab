//! Crash during a generation: another process completes it.

use onsale_proto::{auth::v1::Role, events::v1::GenerationCompleted};
use onsale_storage::postgres::Postgres;
use onsale_testkit::{
    service::{TestService, TestStores},
    wait_until,
};
use tokio::runtime::{Builder, Runtime};

use crate::support::{TIMEOUT, TestEvent, World};

const CAPACITIES: [u32; 2] = [15_000, 5_000];

/// Returns the number of tickets.
async fn ticket_count(world: &World) -> i64 {
    world.count("SELECT count(*) AS count FROM ticket").await
}

#[tokio::test]
async fn generation_continues_after_a_crash_with_one_ticket_per_unit() {
    // The service has a runtime of its own. Its shutdown ends all tasks and connections immediately, like a crash.
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
    wait_until("some of the tickets", TIMEOUT, async || ticket_count(&world).await >= 1_000).await;
    runtime.shutdown_background();

    let World { service, signing_key, .. } = world;
    let TestService { database, redis, .. } = service;
    let store = Postgres::connect(&database.config(onsale_ticketing::SERVICE)).await.unwrap();
    let open = "SELECT 1 FROM generation WHERE state = 'RUNNING'";
    store.query_one("find running generation", open, &[]).await.unwrap();
    let world = World::on(TestStores { database, redis }, signing_key, &[]).await;
    world.wait_until_generated(&event).await;
    for (index, capacity) in CAPACITIES.into_iter().enumerate() {
        world.assert_exact(event.sector(index), capacity).await;
    }
    assert_eq!(ticket_count(&world).await, 20_000);
    assert_eq!(world.published::<GenerationCompleted>().await.len(), 1, "completed once");
}
