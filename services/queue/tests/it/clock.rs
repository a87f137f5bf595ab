//! A pod whose clock is ten minutes off decides as every other: by the database's time.

use std::{sync::Arc, time::Duration};

use onsale_proto::queue::v1::{self as pb, EntryState, QueueState};
use onsale_testkit::{stack, wait_until};
use onsale_types::{Clock, SystemClock, Timestamp};
use tonic::Code;
use uuid::Uuid;

use crate::world::{Person, SOON, World, refused, sector_of};

const OFF: Duration = Duration::from_secs(600);

/// A clock that goes wrong.
enum Skewed {
    Ahead,
    Behind,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now();
        match self {
            Self::Ahead => now.checked_add(OFF),
            Self::Behind => now.checked_sub(OFF),
        }
        .unwrap()
    }
}

async fn start(clock: Skewed, settings: &[(&str, &str)]) -> World {
    World::start_on(stack::redis().await.unwrap(), Arc::new(clock), settings).await
}

async fn heartbeat(world: &World, person: &Person, event: &str, token: &str) -> Result<(), tonic::Status> {
    let request = pb::HeartbeatRequest { event_id: event.to_owned(), queue_token: token.to_owned() };
    world.customers().heartbeat(person.ask(request)).await.map(|_standing| ())
}

async fn validate(world: &World, person: &Person, event: &str, turn: &pb::Turn) -> Result<(), tonic::Status> {
    let request = pb::ValidateTurnRequest {
        event_id: event.to_owned(),
        customer_id: person.customer_id(),
        fencing_number: turn.fencing_number,
    };
    world.internal().validate_turn(world.as_claim(request)).await.map(|_valid| ())
}

/// A queue that opens in a moment; answers it and whether it is open then, and not before.
async fn opens_in_time(world: &World) -> String {
    let event = world.draft().await;
    world.inventory.set_sector(&sector_of(&event));
    let opens = SystemClock.now().checked_add(Duration::from_secs(3)).unwrap();
    world.activate_event(&event, 2, Some(opens)).await;
    let event_id = Uuid::parse_str(&event).unwrap();
    wait_until("the opening is known", SOON, || async {
        let sql = "SELECT count(*) FROM queue WHERE event_id = $1 AND open_time IS NOT NULL";
        world.count(sql, &[&event_id]).await == 1
    })
    .await;
    if SystemClock.now() < opens.checked_sub(Duration::from_millis(500)).unwrap() {
        let early = world.join(&world.customer(), &event).await;
        let details = refused(early, Code::FailedPrecondition, "QUEUE_NOT_OPEN");
        assert!(details.retry_info().unwrap().retry_delay.unwrap() <= Duration::from_secs(3));
    }
    world.wait_for_state(&event, QueueState::Open).await;
    let now = SystemClock.now();
    assert!(now >= opens && now.saturating_since(opens) < Duration::from_secs(5));
    event
}

#[tokio::test]
async fn a_clock_that_is_ahead_opens_nothing_early_and_ends_nothing_early() {
    let world = start(
        Skewed::Ahead,
        &[
            ("POLICY__TURN_DURATION", "5m"),
            ("TURNS__QUEUE_TOKEN_LIFETIME", "5m"),
            ("POLICY__IDLE_TIMEOUT", "5m"),
        ],
    )
    .await;
    let event = opens_in_time(&world).await;
    let person = world.customer();
    let token = world.join(&person, &event).await.unwrap().queue_token;
    heartbeat(&world, &person, &event, &token).await.unwrap();
    world.inventory.set_free(1_000);
    let turn = world.turn(&person, &event).await;
    validate(&world, &person, &event, &turn).await.unwrap();
    let left = turn.expire_time.unwrap().seconds - SystemClock.now().as_micros() / 1_000_000;
    assert!((290..=300).contains(&left), "{left}");
    // Rounds of every sweep pass: others come and go.
    let neighbor = world.join_all(1, &event).await.remove(0);
    world.turn(&neighbor, &event).await;
    world.leave(&neighbor, &event).await.unwrap();
    assert_eq!(world.turn(&person, &event).await, turn);
}

#[tokio::test]
async fn a_clock_that_is_behind_opens_nothing_late_and_ends_nothing_late() {
    let world = start(
        Skewed::Behind,
        &[
            ("POLICY__TURN_DURATION", "1s"),
            ("TURNS__QUEUE_TOKEN_LIFETIME", "1s"),
            ("POLICY__IDLE_TIMEOUT", "3s"),
            ("SWEEP__IDLE_INTERVAL", "100ms"),
        ],
    )
    .await;
    let event = opens_in_time(&world).await;
    let people = world.join_all(2, &event).await;
    let token = world.join(&people[0], &event).await.unwrap().queue_token;
    wait_until("the token is too old", SOON, || async {
        heartbeat(&world, &people[0], &event, &token).await.is_err()
    })
    .await;
    let old = heartbeat(&world, &people[0], &event, &token).await;
    refused(old, Code::PermissionDenied, "QUEUE_TOKEN_INVALID");
    wait_until("silence costs the place", SOON, || async {
        let sql = "SELECT count(*) FROM entry WHERE state = 'EXPIRED' AND expire_reason = 'NOT_SEEN'";
        world.position(&people[0], &event).await.unwrap();
        world.count(sql, &[]).await == 1
    })
    .await;
    world.inventory.set_free(1_000);
    let turn = world.turn(&people[0], &event).await;
    wait_until("the turn is over", SOON, || async {
        world.position(&people[0], &event).await.unwrap().entry.unwrap().state() == EntryState::Expired
    })
    .await;
    let late = validate(&world, &people[0], &event, &turn).await;
    refused(late, Code::FailedPrecondition, "TURN_EXPIRED");
}

#[tokio::test]
async fn of_two_pods_with_different_clocks_both_say_the_same() {
    let world = World::start_with(&[("POLICY__TURN_DURATION", "5m")]).await;
    let pod = world.another_pod_at(Arc::new(Skewed::Ahead)).await;
    let channel = pod.channel().await.unwrap();
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let turn = world.turn(&person, &event).await;
    let there = person.known_to(&pod, onsale_proto::auth::v1::Role::Customer);
    assert_eq!(there.position(&channel, &event).await.unwrap().turn, Some(turn.clone()));
    let mut watcher = there.watch(&channel, &event, 0).await.unwrap();
    assert_eq!(watcher.until_turn().await, turn);
}
