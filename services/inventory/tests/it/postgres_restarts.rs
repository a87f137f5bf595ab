//! Postgres restarts while units are reserved: calls meanwhile fail with a retryable error, and every committed hold, answered
//! or not, exists exactly once.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use futures_util::{StreamExt, future::join, stream};
use onsale_testkit::{
    service::TestStores,
    stack::{
        self, PostgresServer, PostgresServerConfig, TestDatabase,
        process::{Scratch, free_port},
    },
    wait_until,
};
use tonic::Code;

use crate::{
    support::consistency::{Chance, REPAIRED_WITHIN},
    support::{SOON, World, a_reservation, count, general, numbers, reason, seated},
};

const CUSTOMERS: u32 = 150;

#[tokio::test]
async fn postgres_restart_during_a_sale_causes_no_loss_and_no_oversell() {
    let scratch = Scratch::create("restarts").unwrap();
    let config = PostgresServerConfig {
        directory: Some(scratch.path().to_owned()),
        port: Some(free_port().unwrap()),
        ..PostgresServerConfig::default()
    };
    let mut server = PostgresServer::start(config.clone()).await.unwrap();
    let database = TestDatabase::create_on(&server).await.unwrap();
    let redis = stack::redis().await.unwrap();
    let world = World::start_on(TestStores { database, redis }).await;
    let event = world.on_sale(vec![general("A", 200), seated("B", &[50, 50, 50, 50])]).await;

    let (served, refused) = (&AtomicU32::new(0), &AtomicU32::new(0));
    let (world, event) = (&world, &event);
    let customers = stream::iter(0..CUSTOMERS).map(|number| async move {
        let mut chance = Chance::of(number);
        let sector = usize::try_from(chance.below(2)).unwrap();
        // Together they ask for fewer units than exist, so every customer is served exactly once.
        let message = a_reservation(event, vec![count(event, sector, 1 + chance.below(2))]);
        let begun = Instant::now();
        loop {
            match world.reserve(message.clone()).await {
                Ok(answer) => {
                    served.fetch_add(1, Ordering::Relaxed);
                    return answer.hold.unwrap();
                }
                Err(status) => {
                    let (code, text) = reason(Err::<(), _>(status));
                    assert_eq!(code, Code::Unavailable, "{text}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            assert!(begun.elapsed() < REPAIRED_WITHIN, "no final answer within {REPAIRED_WITHIN:?}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    let restarts = async {
        // A restart as after a power cut, followed by a clean one.
        wait_until("some are served", SOON, async || served.load(Ordering::Relaxed) >= CUSTOMERS / 5).await;
        drop(server);
        server = PostgresServer::start(config.clone()).await.unwrap();
        wait_until("more are served", SOON, async || served.load(Ordering::Relaxed) >= CUSTOMERS / 2).await;
        server.stop().await.unwrap();
        PostgresServer::start(config.clone()).await.unwrap()
    };
    let (holds, server) = join(customers.buffer_unordered(16).collect::<Vec<_>>(), restarts).await;
    println!("{} times somebody was asked to come back", refused.load(Ordering::Relaxed));

    wait_until("postgres answers", SOON, async || {
        world.postgres.query_opt("ping", "SELECT 1", &[]).await.is_ok()
    })
    .await;
    for sector in [0, 1] {
        let sector_id = &event.sectors[sector].sector_id;
        let own = holds.iter().filter(|hold| hold.items[0].sector_id == *sector_id);
        let mut answered: Vec<u32> = own.flat_map(|hold| numbers(hold, 0)).collect();
        answered.sort_unstable();
        let taken: Vec<u32> = world.taken_of(event, sector).await.into_keys().collect();
        assert_eq!(answered, taken, "answered holds equal the taken units");
    }
    world.assert_consistent(event).await;
    world.assert_sells_out(event).await;
    drop(server);
}
