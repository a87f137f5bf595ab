//! What no client of ours sends: each is told what is wrong, and nothing is written.

use std::time::Duration;

use onsale_kit::auth::{SigningKey, TokenFields, TokenSigner};
use onsale_proto::queue::v1 as pb;
use onsale_types::{Clock, SystemClock};
use serde::Serialize;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::world::{Person, World, refused};

#[derive(Serialize)]
struct PlaceClaims {
    event_id: String,
    entry_id: String,
    seq: u64,
}

/// Everything that a call could have written.
async fn rows(world: &World) -> i64 {
    let sql = "SELECT (SELECT count(*) FROM entry) + (SELECT count(*) FROM outbox)
        + (SELECT count(*) FROM idempotency) + (SELECT coalesce(sum(revision), 0)::bigint FROM line)";
    world.count(sql, &[]).await
}

async fn watch(world: &World, person: &Person, event: &str, token: &str) -> Result<(), Status> {
    let request =
        pb::WatchQueueRequest { event_id: event.to_owned(), queue_token: token.to_owned(), last_revision: 0 };
    world.customers().watch_queue(person.ask(request)).await.map(|_stream| ())
}

#[tokio::test]
async fn malformed_and_unknown_events_are_refused_by_every_method_and_nothing_is_written() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let before = rows(&world).await;
    let upper = event.to_uppercase();
    let huge = "x".repeat(1_000_000);
    for bad in ["", "x", "00000000-0000-0000-0000-00000000000g", &format!(" {event}"), &huge] {
        refused(world.join(&person, bad).await, Code::InvalidArgument, "FIELDS_INVALID");
        refused(world.position(&person, bad).await, Code::InvalidArgument, "FIELDS_INVALID");
        refused(world.leave(&person, bad).await, Code::InvalidArgument, "FIELDS_INVALID");
        refused(watch(&world, &person, bad, "").await, Code::InvalidArgument, "FIELDS_INVALID");
        refused(world.snapshot(bad).await, Code::InvalidArgument, "FIELDS_INVALID");
    }
    let unknown = Uuid::now_v7().to_string();
    refused(world.join(&person, &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(world.position(&person, &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(world.leave(&person, &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(watch(&world, &person, &unknown, "").await, Code::NotFound, "EVENT_NOT_FOUND");
    // Another spelling of a UUID is the same UUID, or none; never another event.
    let spelled = world.position(&person, &upper).await;
    assert!(spelled.is_err() || spelled.unwrap().position == 1);
    assert_eq!(rows(&world).await, before);
}

#[tokio::test]
async fn only_ones_own_genuine_running_token_opens_a_stream() {
    let world = World::start().await;
    let (event, other_event) = (world.open_queue().await, world.open_queue().await);
    let (mine, theirs) = (world.customer(), world.customer());
    let joined = world.join(&mine, &event).await.unwrap();
    let other = world.join(&mine, &other_event).await.unwrap().queue_token;
    world.join(&theirs, &event).await.unwrap();
    let before = rows(&world).await;
    let entry_id = joined.standing.unwrap().entry.unwrap().entry_id;
    let signed = |key: &str, age: Duration| {
        let subject = mine.customer_id();
        let expiry =
            SystemClock.now().checked_sub(age).unwrap().checked_add(Duration::from_secs(60)).unwrap();
        let facts = TokenFields { audience: "onsale-place", subject: &subject, expiry };
        let claims = PlaceClaims { event_id: event.clone(), entry_id: entry_id.clone(), seq: 1 };
        TokenSigner::new(SigningKey::parse(key).unwrap(), "queue").sign(&facts, &claims).unwrap()
    };
    let own_key = world.signing_key();
    watch(&world, &mine, &event, &joined.queue_token).await.unwrap();
    watch(&world, &mine, &event, &signed(own_key, Duration::ZERO)).await.unwrap();
    let stranger_key = SigningKey::generate().unwrap();
    let half = &joined.queue_token[..joined.queue_token.len() / 2];
    for (what, person, bad) in [
        ("another's", &theirs, joined.queue_token.as_str()),
        ("of another event", &mine, other.as_str()),
        ("forged", &mine, signed(&stranger_key, Duration::ZERO).as_str()),
        ("expired", &mine, signed(own_key, Duration::from_secs(61)).as_str()),
        ("half", &mine, half),
        ("no token", &mine, "x"),
        ("far too long", &mine, "x".repeat(100_000).as_str()),
    ] {
        let answer = watch(&world, person, &event, bad).await;
        let status = answer.expect_err(what);
        let is_typed = [Code::PermissionDenied, Code::InvalidArgument].contains(&status.code());
        assert!(is_typed, "{what}: {status:?}");
    }
    let expired = watch(&world, &mine, &event, &signed(own_key, Duration::from_secs(61))).await;
    refused(expired, Code::PermissionDenied, "QUEUE_TOKEN_INVALID");
    assert_eq!(rows(&world).await, before);
}
