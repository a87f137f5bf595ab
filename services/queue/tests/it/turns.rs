//! `ValidateTurn` and `CompleteTurn`: validity and end of a turn.

use onsale_proto::{
    claim::v1::ReleaseReason,
    events::v1::{ClaimReleased, OrderCompleted},
    queue::v1::{self as pb, EntryState, ExpireReason},
};
use onsale_testkit::wait_until;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::block::{block, blocking};
use crate::support::{Person, SOON, World, fact, refused, summary};

async fn validate(
    world: &World,
    person: &Person,
    event: &str,
    fencing_number: u64,
) -> Result<pb::ValidateTurnResponse, Status> {
    let request = pb::ValidateTurnRequest {
        event_id: event.to_owned(),
        customer_id: person.customer_id(),
        fencing_number,
    };
    Ok(world.internal().validate_turn(world.as_claim(request)).await?.into_inner())
}

fn completion(person: &Person, event: &str, fencing_number: u64, claim_id: &str) -> pb::CompleteTurnRequest {
    pb::CompleteTurnRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        customer_id: person.customer_id(),
        fencing_number,
        claim_id: claim_id.to_owned(),
    }
}

async fn complete(world: &World, request: pb::CompleteTurnRequest) -> Result<pb::Entry, Status> {
    let answer = world.internal().complete_turn(world.as_claim(request)).await?;
    Ok(answer.into_inner().entry.unwrap())
}

#[tokio::test]
async fn open_turn_is_valid_for_its_customer_only() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let people = world.join_all(2, &event).await;
    let turn = world.turn(&people[0], &event).await;
    let valid = validate(&world, &people[0], &event, turn.fencing_number).await.unwrap();
    assert_eq!(valid.expire_time, turn.expire_time);
    assert_eq!(valid.entry_id, world.position(&people[0], &event).await.unwrap().entry.unwrap().entry_id);
    let theirs = world.turn(&people[1], &event).await.fencing_number;
    // The number of another customer, and one that was never given out.
    refused(validate(&world, &people[0], &event, theirs).await, Code::NotFound, "ENTRY_NOT_FOUND");
    refused(validate(&world, &people[0], &event, 99).await, Code::NotFound, "ENTRY_NOT_FOUND");
    refused(validate(&world, &people[0], &event, 0).await, Code::InvalidArgument, "FIELDS_INVALID");
    let unknown = Uuid::now_v7().to_string();
    refused(validate(&world, &people[0], &unknown, 1).await, Code::NotFound, "ENTRY_NOT_FOUND");
}

#[tokio::test]
async fn concurrent_validations_get_their_own_answers() {
    let world = World::start().await;
    let (event, other) = (world.selling_queue().await, world.selling_queue().await);
    let people = world.join_all(12, &event).await;
    let mut turns = Vec::new();
    for person in &people {
        turns.push(world.turn(person, &event).await);
    }
    block(&world, &world.organizer, blocking(&people[3], &event, "")).await.unwrap();
    let asked = people.iter().zip(&turns).enumerate().map(|(at, (person, turn))| {
        // Some requests name another customer's turn, or an event without a turn.
        let number = if at % 4 == 1 { turn.fencing_number + 100 } else { turn.fencing_number };
        let event = if at % 4 == 2 { &other } else { &event };
        let world = &world;
        async move { validate(world, person, event, number).await }
    });
    for (at, answer) in futures_util::future::join_all(asked).await.into_iter().enumerate() {
        match at % 4 {
            _ if at == 3 => drop(refused(answer, Code::PermissionDenied, "CUSTOMER_BLOCKED")),
            1 | 2 => drop(refused(answer, Code::NotFound, "ENTRY_NOT_FOUND")),
            _ => assert_eq!(answer.unwrap().expire_time, turns[at].expire_time),
        }
    }
}

#[tokio::test]
async fn abandoned_turn_has_ended_and_is_stale_after_a_newer_one() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let old = world.turn(&person, &event).await.fencing_number;
    world.leave(&person, &event).await.unwrap();
    let details =
        refused(validate(&world, &person, &event, old).await, Code::FailedPrecondition, "TURN_ENDED");
    assert_eq!(fact(&details, "state").as_deref(), Some("LEFT"));
    world.join(&person, &event).await.unwrap();
    let new = world.turn(&person, &event).await.fencing_number;
    assert!(new > old);
    refused(validate(&world, &person, &event, old).await, Code::FailedPrecondition, "TURN_STALE");
    let late = complete(&world, completion(&person, &event, old, &Uuid::now_v7().to_string())).await;
    refused(late, Code::FailedPrecondition, "TURN_STALE");
    validate(&world, &person, &event, new).await.unwrap();
}

#[tokio::test]
async fn expired_turn_is_refused_and_completes_a_purchase_under_way() {
    let world = World::start_with(&[("POLICY__TURN_DURATION", "300ms")]).await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    wait_until("the turn is over", SOON, || async {
        world.position(&person, &event).await.unwrap().entry.unwrap().state() == EntryState::Expired
    })
    .await;
    let details =
        refused(validate(&world, &person, &event, 1).await, Code::FailedPrecondition, "TURN_EXPIRED");
    assert!(fact(&details, "expire_time").is_some());
    let claim = Uuid::now_v7().to_string();
    let entry = complete(&world, completion(&person, &event, 1, &claim)).await.unwrap();
    assert_eq!((entry.state(), entry.expire_reason()), (EntryState::Completed, ExpireReason::Unspecified));
    refused(validate(&world, &person, &event, 1).await, Code::FailedPrecondition, "TURN_ENDED");
}

#[tokio::test]
async fn turn_completes_for_one_claim_only() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let fencing_number = world.turn(&person, &event).await.fencing_number;
    let claim = Uuid::now_v7().to_string();
    let request = completion(&person, &event, fencing_number, &claim);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    let first = complete(&world, request.clone()).await.unwrap();
    assert_eq!(first.state(), EntryState::Completed);
    // A repeat of the request, and another request for the same claim.
    assert_eq!(complete(&world, request.clone()).await.unwrap(), first);
    assert_eq!(complete(&world, completion(&person, &event, fencing_number, &claim)).await.unwrap(), first);
    let other =
        complete(&world, completion(&person, &event, fencing_number, &Uuid::now_v7().to_string())).await;
    let details = refused(other, Code::FailedPrecondition, "TURN_ENDED");
    assert_eq!(fact(&details, "state").as_deref(), Some("COMPLETED"));
    let reused = pb::CompleteTurnRequest { claim_id: Uuid::now_v7().to_string(), ..request };
    refused(complete(&world, reused).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    // The stream ends without a message after a purchase.
    while watcher.next().await.is_some() {}
    // A customer may join again after a purchase.
    assert_eq!(world.join(&person, &event).await.unwrap().standing.unwrap().entry.unwrap().seq, 2);
}

#[tokio::test]
async fn repeated_order_completed_completes_its_turn_once() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let fencing_number = world.turn(&person, &event).await.fencing_number;
    let claim = Uuid::now_v7().to_string();
    let order = OrderCompleted {
        claim_id: claim.clone(),
        event: Some(summary(&event)),
        customer_id: person.customer_id(),
        fencing_number,
        ..OrderCompleted::default()
    };
    world.say(&claim, &order).await;
    world.say(&claim, &order).await;
    wait_until("the entry is completed", SOON, || async {
        world.position(&person, &event).await.unwrap().entry.unwrap().state() == EntryState::Completed
    })
    .await;
    let sql = "SELECT open_turn_count FROM line WHERE event_id = $1";
    assert_eq!(world.count(sql, &[&Uuid::parse_str(&event).unwrap()]).await, 0);
}

#[tokio::test]
async fn expired_claim_ends_the_turn_and_a_canceled_one_does_not() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let people = world.join_all(2, &event).await;
    let released = |person: &Person, fencing_number: u64, reason: ReleaseReason| ClaimReleased {
        claim_id: Uuid::now_v7().to_string(),
        event: Some(summary(&event)),
        customer_id: person.customer_id(),
        reason: reason.into(),
        fencing_number,
        ..ClaimReleased::default()
    };
    let keeps = world.turn(&people[0], &event).await.fencing_number;
    let loses = world.turn(&people[1], &event).await.fencing_number;
    for reason in [ReleaseReason::Customer, ReleaseReason::PaymentFailed] {
        world.say("claim", &released(&people[0], keeps, reason)).await;
    }
    world.say("claim", &released(&people[1], loses, ReleaseReason::Expired)).await;
    wait_until("the turn is over", SOON, || async {
        let entry = world.position(&people[1], &event).await.unwrap().entry.unwrap();
        entry.expire_reason() == ExpireReason::TurnExpired
    })
    .await;
    // Published before under the same key, so it was handled before.
    validate(&world, &people[0], &event, keeps).await.unwrap();
}

#[tokio::test]
async fn turn_outlives_the_close_of_its_queue() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let turn = world.turn(&person, &event).await;
    world.close(&event, pb::CloseReason::Ended).await.unwrap();
    validate(&world, &person, &event, turn.fencing_number).await.unwrap();
    assert_eq!(world.position(&person, &event).await.unwrap().turn, Some(turn));
}
