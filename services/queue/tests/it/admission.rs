//! Who gets a turn, when, and how many at a time.

use std::time::Duration;

use onsale_proto::queue::v1::{self as pb, EntryState};
use onsale_storage::postgres::{self, Transaction};
use onsale_testkit::wait_until;
use uuid::Uuid;

use crate::world::{SOON, World};

async fn open_turns(world: &World, event: &str) -> i64 {
    let event_id = Uuid::parse_str(event).unwrap();
    let sql = "SELECT count(*) FROM entry WHERE event_id = $1 AND state = 'ADMITTED'";
    world.count(sql, &[&event_id]).await
}

/// The rule of FIFO, as the table has it: seqs and fencing numbers rise together, without a gap in the numbers.
pub(crate) async fn assert_fifo(world: &World, event: &str) {
    let event_id = Uuid::parse_str(event).unwrap();
    let sql = "SELECT count(*) FROM (
            SELECT fencing_number, row_number() OVER (ORDER BY seq) AS place FROM entry
            WHERE event_id = $1 AND fencing_number IS NOT NULL) turns
        WHERE fencing_number <> place";
    assert_eq!(world.count(sql, &[&event_id]).await, 0);
}

#[tokio::test]
async fn turns_come_in_the_order_of_the_line_with_rising_fencing_numbers() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(20, &event).await;
    world.inventory.set_free(1_000);
    let mut last = 0;
    for person in &people {
        let turn = world.turn(person, &event).await;
        assert!(turn.fencing_number > last);
        last = turn.fencing_number;
    }
    assert_fifo(&world, &event).await;
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.turn_granted'", &[]).await;
    assert_eq!(told, 20);
    let facts = world.snapshot(&event).await.unwrap();
    assert_eq!(facts.waiting_count, 0);
}

#[tokio::test]
async fn a_leader_that_is_being_replaced_admits_nobody() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    wait_until("every lane is led", SOON, || async {
        world.count("SELECT count(*) FROM lease WHERE name LIKE 'line-keeper-%'", &[]).await == 8
    })
    .await;
    let takeover = |transaction: Transaction| {
        let (world, person, event) = (&world, &person, &event);
        async move {
            let take = "UPDATE lease SET epoch = epoch + 1 WHERE name LIKE 'line-keeper-%'";
            assert_eq!(transaction.execute(take, &[]).await?, 8);
            world.inventory.set_free(1_000);
            wait_until("the old leader asks whether it still leads", SOON, || async {
                let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND wait_event_type = 'Lock' AND query LIKE '%FROM lease%FOR SHARE%'";
                world.count(sql, &[]).await > 0
            })
            .await;
            let entry = world.position(person, event).await.unwrap().entry.unwrap();
            assert_eq!(entry.state(), EntryState::Waiting);
            Ok::<_, postgres::Error>(())
        }
    };
    world.postgres.transaction("take over", takeover).await.unwrap();
    // Elected anew, it goes on.
    assert_eq!(world.turn(&person, &event).await.fencing_number, 1);
}

#[tokio::test]
async fn a_turn_token_says_what_the_turn_is() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let turn = world.turn(&person, &event).await;
    let token = world.read_turn(&turn.token);
    let entry = world.position(&person, &event).await.unwrap().entry.unwrap();
    assert_eq!(token.subject, person.customer_id());
    assert_eq!((token.claims.event_id, token.claims.entry_id), (event, entry.entry_id));
    assert_eq!(token.claims.fencing_number, turn.fencing_number);
    assert_eq!(token.expiry.as_micros() / 1_000_000, turn.expire_time.unwrap().seconds);
}

#[tokio::test]
async fn no_more_turns_are_open_than_the_cap_and_a_free_slot_goes_to_the_next() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "2")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(5, &event).await;
    world.inventory.set_free(1_000);
    world.turn(&people[1], &event).await;
    assert_eq!(open_turns(&world, &event).await, 2);
    world.leave(&people[0], &event).await.unwrap();
    world.turn(&people[2], &event).await;
    let turn = world.turn(&people[1], &event).await;
    let complete = pb::CompleteTurnRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        customer_id: people[1].customer_id(),
        fencing_number: turn.fencing_number,
        claim_id: Uuid::now_v7().to_string(),
    };
    world.internal().complete_turn(world.as_claim(complete)).await.unwrap();
    world.turn(&people[3], &event).await;
    assert_eq!(open_turns(&world, &event).await, 2);
    assert_fifo(&world, &event).await;
    assert!(world.snapshot(&event).await.unwrap().average_service_time.is_some());
}

#[tokio::test]
async fn no_more_are_admitted_than_the_rate_allows() {
    // One every two seconds, and as many saved up as two seconds make, and one.
    let world = World::start_with(&[("POLICY__ADMISSIONS_PER_MINUTE", "30")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(6, &event).await;
    world.inventory.set_free(1_000);
    let begin = tokio::time::Instant::now();
    world.turn(&people[3], &event).await;
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    let waiting = world.position(&people[5], &event).await.unwrap();
    assert_eq!(waiting.entry.unwrap().state(), EntryState::Waiting);
    // Turned up live.
    let policy = pb::QueuePolicy { admissions_per_minute: 60_000, ..pb::QueuePolicy::default() };
    let queue = world.retune(&event, policy, &[]).await;
    assert_eq!(queue.policy.unwrap().admissions_per_minute, 60_000);
    let retuned = tokio::time::Instant::now();
    world.turn(&people[5], &event).await;
    // At the old rate it would have been the second of two, four seconds on.
    assert!(retuned.elapsed() < Duration::from_millis(3_500), "{:?}", retuned.elapsed());
}

#[tokio::test]
async fn a_rate_or_cap_of_zero_admits_nobody() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let zero = pb::QueuePolicy::default();
    world.retune(&event, zero.clone(), &["admissions_per_minute"]).await;
    let person = world.join_all(1, &event).await.remove(0);
    world.inventory.set_free(1_000);
    let other = world.selling_queue().await;
    // Others are admitted meanwhile, so rounds have passed.
    let neighbor = world.join_all(1, &other).await.remove(0);
    world.turn(&neighbor, &other).await;
    let standing = world.position(&person, &event).await.unwrap();
    assert_eq!((standing.position, standing.estimate), (1, None));
    world.retune(&event, pb::QueuePolicy { admissions_per_minute: 600, ..zero.clone() }, &[]).await;
    world.turn(&person, &event).await;
}

#[tokio::test]
async fn nobody_is_admitted_while_nothing_is_free_or_nobody_knows() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    world.inventory.set_down(true);
    world.inventory.set_free(1);
    assert_eq!(world.position(&people[0], &event).await.unwrap().position, 1);
    world.inventory.set_down(false);
    world.turn(&people[0], &event).await;
    world.inventory.set_free(0);
    assert_fifo(&world, &event).await;
}

#[tokio::test]
async fn an_expired_turn_frees_its_slot_and_its_customer_hears_of_it() {
    let world =
        World::start_with(&[("POLICY__OPEN_TURNS_MAX", "1"), ("POLICY__TURN_DURATION", "700ms")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(2, &event).await;
    let mut watcher = world.watch(&people[0], &event).await.unwrap();
    world.inventory.set_free(1_000);
    watcher.until_turn().await;
    let reason = watcher
        .until(|update| match update {
            pb::queue_update::Update::EntryExpired(expired) => Some(expired.reason()),
            _ => None,
        })
        .await;
    assert_eq!(reason, pb::ExpireReason::TurnExpired);
    assert_eq!(watcher.next().await, None);
    wait_until("the next has had a turn", SOON, || async {
        world.position(&people[1], &event).await.unwrap().entry.unwrap().state() != EntryState::Waiting
    })
    .await;
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.expired'", &[]).await;
    assert!(told >= 1);
    assert_fifo(&world, &event).await;
}

#[tokio::test]
async fn a_slot_whose_turn_ran_out_goes_to_the_next_at_once() {
    // Far longer than a slot may stay empty: it is the end of a turn that brings the next.
    let world = World::start_with(&[
        ("ADMISSION__INTERVAL", "5s"),
        ("POLICY__OPEN_TURNS_MAX", "1"),
        ("POLICY__TURN_DURATION", "300ms"),
    ])
    .await;
    let event = world.open_queue().await;
    world.join_all(4, &event).await;
    world.inventory.set_free(1_000);
    wait_until("all have had their turn", SOON, || async {
        let sql = "SELECT count(*) FROM entry WHERE state = 'EXPIRED' AND expire_reason = 'TURN_EXPIRED'";
        world.count(sql, &[]).await == 4
    })
    .await;
    let slowest = "SELECT max(extract(epoch FROM grant_time - ended) * 1000)::bigint FROM (
        SELECT grant_time, lag(end_time) OVER (ORDER BY seq) AS ended FROM entry) turns";
    let millis = world.count(slowest, &[]).await;
    assert!((0..2_000).contains(&millis), "{millis} ms");
    let told = world.count("SELECT count(*) FROM outbox WHERE topic = 'queue.expired'", &[]).await;
    assert_eq!(told, 4);
    assert_fifo(&world, &event).await;
}
