//! `GetPosition`, `Heartbeat` and `GetQueueSnapshot`: the same truth for those who ask.

use onsale_kit::auth::{SigningKey, TokenFields, TokenSigner};
use onsale_proto::queue::v1::{self as pb, QueueMode, QueueState};
use onsale_types::Timestamp;
use serde::Serialize;
use tonic::Code;
use uuid::Uuid;

use crate::world::{Person, World, refused};

async fn ask(
    world: &World,
    person: &Person,
    event: &str,
    queue_token: &str,
) -> Result<pb::Standing, tonic::Status> {
    let request = pb::HeartbeatRequest { event_id: event.to_owned(), queue_token: queue_token.to_owned() };
    Ok(world.customers().heartbeat(person.ask(request)).await?.into_inner().standing.unwrap())
}

#[tokio::test]
async fn a_heartbeat_answers_what_a_question_answers() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    let asked = world.position(&people[2], &event).await.unwrap();
    assert_eq!(asked.position, 3);
    assert_eq!(ask(&world, &people[2], &event, "").await.unwrap(), asked);
}

#[tokio::test]
async fn who_never_joined_has_no_position() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.join_all(1, &event).await;
    refused(world.position(&world.customer(), &event).await, Code::NotFound, "ENTRY_NOT_FOUND");
    let unknown = Uuid::now_v7().to_string();
    refused(world.position(&world.customer(), &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(world.position(&world.customer(), "x").await, Code::InvalidArgument, "FIELDS_INVALID");
}

#[tokio::test]
async fn only_ones_own_genuine_token_for_this_event_is_taken() {
    let world = World::start().await;
    let (event, other_event) = (world.open_queue().await, world.open_queue().await);
    let (mine, theirs) = (world.customer(), world.customer());
    let token = world.join(&mine, &event).await.unwrap().queue_token;
    let other_token = world.join(&mine, &other_event).await.unwrap().queue_token;
    assert_eq!(ask(&world, &mine, &event, &token).await.unwrap().position, 1);
    world.join(&theirs, &event).await.unwrap();
    let forged = {
        #[derive(Serialize)]
        struct Claims {
            event_id: String,
            entry_id: String,
            seq: u64,
        }
        let key = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
        let subject = mine.customer_id();
        let expiry = Timestamp::from_secs(4_000_000_000);
        let facts = TokenFields { audience: "onsale-place", subject: &subject, expiry };
        let claims = Claims { event_id: event.clone(), entry_id: Uuid::now_v7().to_string(), seq: 1 };
        TokenSigner::new(key, "queue").sign(&facts, &claims).unwrap()
    };
    for (person, bad) in
        [(&theirs, &token), (&mine, &other_token), (&mine, &forged), (&mine, &"no token".to_owned())]
    {
        refused(ask(&world, person, &event, bad).await, Code::PermissionDenied, "QUEUE_TOKEN_INVALID");
    }
}

#[tokio::test]
async fn an_old_token_is_worth_nothing() {
    let world = World::start_with(&[("TURNS__QUEUE_TOKEN_LIFETIME", "1ms")]).await;
    let event = world.open_queue().await;
    let person = world.customer();
    let token = world.join(&person, &event).await.unwrap().queue_token;
    refused(ask(&world, &person, &event, &token).await, Code::PermissionDenied, "QUEUE_TOKEN_INVALID");
}

#[tokio::test]
async fn anybody_sees_the_public_facts() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.join_all(2, &event).await;
    let facts = world.snapshot(&event).await.unwrap();
    assert_eq!((facts.state(), facts.mode()), (QueueState::Open, QueueMode::Tracked));
    assert_eq!((facts.waiting_count, facts.admitted_last_minute), (2, 0));
    assert!(facts.open_time.is_some() && facts.snapshot_time.is_some());
    let unknown = Uuid::now_v7().to_string();
    refused(world.snapshot(&unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
}
