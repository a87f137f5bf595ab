//! Leadership of events, and the replacement of a leader.

use std::{sync::Mutex, time::Duration};

use onsale_proto::queue::v1::EntryState;
use onsale_storage::postgres::{self, Postgres, Transaction};
use onsale_testkit::{service::TestStores, wait_until};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    admission::assert_fifo,
    support::pod::Pod,
    support::{SOON, World},
};

/// Starts a pod, waits until it leads every shard, and then starts a world beside it.
async fn beside_a_leader(settings: &[(&str, &str)]) -> (Pod, World) {
    let leads_all = async |stores: &TestStores, settings: &[(String, String)]| {
        let leader = Pod::start(&stores.database.url, &stores.redis, settings).await;
        let postgres = Postgres::connect(&stores.database.config("queue")).await.unwrap();
        let sql = "SELECT count(*) FROM lease WHERE name LIKE 'line-keeper-%' AND epoch > 0";
        wait_until("the first pod leads every lane", SOON, || async {
            postgres.query_one("count", sql, &[]).await.unwrap().get::<_, i64>(0) == 8
        })
        .await;
        leader
    };
    World::start_after(settings, leads_all).await
}

async fn epochs(world: &World) -> i64 {
    world.count("SELECT sum(epoch)::bigint FROM lease WHERE name LIKE 'line-keeper-%'", &[]).await
}

#[tokio::test]
async fn leader_killed_in_a_batch_admits_nobody_twice_and_skips_nobody() {
    let (leader, world) = beside_a_leader(&[]).await;
    let event = world.open_queue().await;
    let people = world.join_all(10, &event).await;
    let leader = Mutex::new(Some(leader));
    let kill = |transaction: Transaction| {
        let (world, leader, event_id) = (&world, &leader, Uuid::parse_str(&event).unwrap());
        async move {
            let fifth = "SELECT 1 FROM entry WHERE event_id = $1 AND seq = 5 FOR UPDATE";
            transaction.query_one(fifth, &[&event_id]).await?;
            world.inventory.set_free(1_000);
            wait_until("four have their turns, uncommitted, and the fifth is waited for", SOON, || async {
                let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND wait_event_type = 'Lock' AND query LIKE 'UPDATE entry SET state = ''ADMITTED''%'";
                world.count(sql, &[]).await == 1
            })
            .await;
            let begin = Instant::now();
            let leader = leader.lock().unwrap().take().unwrap();
            leader.kill().await;
            Ok::<_, postgres::Error>(begin)
        }
    };
    let begin = world.postgres.transaction("hold the fifth", kill).await.unwrap();
    world.turn(&people[9], &event).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_fifo(&world, &event).await;
    for (person, number) in people.iter().zip(1..) {
        assert_eq!(world.turn(person, &event).await.fencing_number, number);
    }
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.turn_granted'", &[]).await;
    assert_eq!(told, 10);
}

#[tokio::test]
async fn next_leader_takes_over_the_events_of_every_shard() {
    let settings = [("POLICY__TURN_DURATION", "300ms"), ("POLICY__OPEN_TURNS_MAX", "1")];
    let (leader, world) = beside_a_leader(&settings).await;
    // More events than shards: every event is led by the next leader.
    let mut lines = Vec::new();
    for _ in 0..10 {
        let event = world.open_queue().await;
        let people = world.join_all(2, &event).await;
        lines.push((event, people));
    }
    let before = epochs(&world).await;
    world.inventory.set_free(1_000);
    leader.kill().await;
    for (event, people) in &lines {
        for person in people {
            wait_until("the turn has come and is over", SOON, || async {
                let entry = world.position(person, event).await.unwrap().entry.unwrap();
                entry.state() == EntryState::Expired
            })
            .await;
        }
        assert_fifo(&world, event).await;
    }
    assert!(epochs(&world).await >= before + 8, "every lane changed hands");
}
