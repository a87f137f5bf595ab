//! `BlockCustomer` and `UnblockCustomer`: a blocked customer has neither an entry nor a turn and gets none.

use onsale_proto::queue::v1::{self as pb, EntryState, ExpireReason, queue_update::Update};
use onsale_testkit::wait_until;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::support::{Person, SOON, World, refused};

const TOLD: &str = "SELECT count(*) FROM outbox WHERE topic = 'queue.expired'";
const BLOCKED: &str = "SELECT count(*) FROM blocked_customer";

pub(crate) fn blocking(customer: &Person, event: &str, note: &str) -> pb::BlockCustomerRequest {
    pb::BlockCustomerRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        customer_id: customer.customer_id(),
        note: note.to_owned(),
    }
}

fn unblocking(customer: &Person, event: &str) -> pb::UnblockCustomerRequest {
    pb::UnblockCustomerRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        customer_id: customer.customer_id(),
    }
}

pub(crate) async fn block(
    world: &World,
    organizer: &Person,
    request: pb::BlockCustomerRequest,
) -> Result<pb::BlockCustomerResponse, Status> {
    Ok(world.admin().block_customer(organizer.ask(request)).await?.into_inner())
}

async fn unblock(
    world: &World,
    organizer: &Person,
    request: pb::UnblockCustomerRequest,
) -> Result<pb::UnblockCustomerResponse, Status> {
    Ok(world.admin().unblock_customer(organizer.ask(request)).await?.into_inner())
}

#[tokio::test]
async fn block_ends_the_entry_and_the_others_move_up() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    let mut out = world.watch(&people[0], &event).await.unwrap();
    let mut next = world.watch(&people[1], &event).await.unwrap();
    out.until_position(1).await;
    next.until_position(2).await;
    let answer = block(&world, &world.organizer, blocking(&people[0], &event, "a bot")).await.unwrap();
    assert!(answer.entry_removed);
    let blocked = answer.blocked_customer.unwrap();
    assert_eq!((blocked.event_id.as_str(), blocked.note.as_str()), (event.as_str(), "a bot"));
    assert_eq!(blocked.customer_id, people[0].customer_id());
    assert!(blocked.block_time.is_some());
    let Some(Update::EntryExpired(expired)) = out.next().await else { panic!("the end is told") };
    assert_eq!(expired.reason(), ExpireReason::Blocked);
    assert_eq!(out.next().await, None);
    next.until_position(1).await;
    let entry = world.position(&people[0], &event).await.unwrap().entry.unwrap();
    assert_eq!((entry.state(), entry.expire_reason()), (EntryState::Expired, ExpireReason::Blocked));
    assert_eq!(world.position(&people[2], &event).await.unwrap().position, 2);
    assert_eq!(world.count(TOLD, &[]).await, 1);
    refused(world.join(&people[0], &event).await, Code::PermissionDenied, "CUSTOMER_BLOCKED");
    assert_eq!(world.count("SELECT count(*) FROM entry", &[]).await, 3);
}

#[tokio::test]
async fn blocked_turn_frees_its_slot_and_a_paid_order_completes() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "1")]).await;
    let event = world.selling_queue().await;
    let people = world.join_all(2, &event).await;
    let fencing_number = world.turn(&people[0], &event).await.fencing_number;
    let answer = block(&world, &world.organizer, blocking(&people[0], &event, "")).await.unwrap();
    assert!(answer.entry_removed);
    world.turn(&people[1], &event).await;
    assert_eq!(world.count(TOLD, &[]).await, 1);
    let validate = pb::ValidateTurnRequest {
        event_id: event.clone(),
        customer_id: people[0].customer_id(),
        fencing_number,
    };
    let valid = world.internal().validate_turn(world.as_claim(validate)).await;
    refused(valid, Code::PermissionDenied, "CUSTOMER_BLOCKED");
    // The order was paid before the block, so it is completed.
    let complete = pb::CompleteTurnRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        customer_id: people[0].customer_id(),
        fencing_number,
        claim_id: Uuid::now_v7().to_string(),
    };
    let completed = world.internal().complete_turn(world.as_claim(complete)).await.unwrap().into_inner();
    assert_eq!(completed.entry.unwrap().state(), EntryState::Completed);
    refused(world.join(&people[0], &event).await, Code::PermissionDenied, "CUSTOMER_BLOCKED");
}

#[tokio::test]
async fn block_covers_one_event_and_customers_who_never_joined() {
    let world = World::start().await;
    let (event, other) = (world.open_queue().await, world.open_queue().await);
    let person = world.customer();
    let answer = block(&world, &world.organizer, blocking(&person, &event, "")).await.unwrap();
    assert!(!answer.entry_removed);
    refused(world.join(&person, &event).await, Code::PermissionDenied, "CUSTOMER_BLOCKED");
    world.join(&person, &other).await.unwrap();
    assert_eq!(world.count(TOLD, &[]).await, 0);
}

#[tokio::test]
async fn unblocked_customer_joins_at_the_end() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(3, &event).await;
    block(&world, &world.organizer, blocking(&people[0], &event, "")).await.unwrap();
    let request = unblocking(&people[0], &event);
    unblock(&world, &world.organizer, request.clone()).await.unwrap();
    let back = world.join(&people[0], &event).await.unwrap().standing.unwrap();
    assert_eq!((back.entry.unwrap().seq, back.position), (4, 3));
    // A second unblock changes nothing, with the same request or a new one.
    unblock(&world, &world.organizer, request.clone()).await.unwrap();
    unblock(&world, &world.organizer, unblocking(&people[1], &event)).await.unwrap();
    assert_eq!(world.position(&people[1], &event).await.unwrap().position, 1);
    // A repeat of the old unblock does not undo a newer block.
    block(&world, &world.organizer, blocking(&people[0], &event, "")).await.unwrap();
    unblock(&world, &world.organizer, request).await.unwrap();
    refused(world.join(&people[0], &event).await, Code::PermissionDenied, "CUSTOMER_BLOCKED");
}

#[tokio::test]
async fn repeated_block_returns_the_first_answer() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let request = blocking(&person, &event, "first");
    let first = block(&world, &world.organizer, request.clone()).await.unwrap();
    assert_eq!(block(&world, &world.organizer, request.clone()).await.unwrap(), first);
    // A customer who is blocked already keeps the first block.
    let again = block(&world, &world.organizer, blocking(&person, &event, "second")).await.unwrap();
    assert_eq!((again.blocked_customer, again.entry_removed), (first.blocked_customer.clone(), false));
    assert_eq!(world.count(TOLD, &[]).await, 1);
    let other = pb::BlockCustomerRequest { note: "other".to_owned(), ..request.clone() };
    refused(block(&world, &world.organizer, other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
    // After an unblock, a repeat of the old block does not block again.
    unblock(&world, &world.organizer, unblocking(&person, &event)).await.unwrap();
    world.join(&person, &event).await.unwrap();
    assert_eq!(block(&world, &world.organizer, request).await.unwrap(), first);
    assert_eq!(world.position(&person, &event).await.unwrap().position, 1);
}

#[tokio::test]
async fn only_the_owner_blocks_and_foreign_drafts_are_not_found() {
    let world = World::start().await;
    let (event, draft) = (world.open_queue().await, world.draft().await);
    let person = world.join_all(1, &event).await.remove(0);
    let stranger = world.stranger();
    let foreign = block(&world, &stranger, blocking(&person, &event, "")).await;
    refused(foreign, Code::PermissionDenied, "EVENT_NOT_OWNED");
    let foreign = unblock(&world, &stranger, unblocking(&person, &event)).await;
    refused(foreign, Code::PermissionDenied, "EVENT_NOT_OWNED");
    for event in [&draft, &Uuid::now_v7().to_string()] {
        let hidden = block(&world, &stranger, blocking(&person, event, "")).await;
        refused(hidden, Code::NotFound, "EVENT_NOT_FOUND");
        let hidden = unblock(&world, &stranger, unblocking(&person, event)).await;
        refused(hidden, Code::NotFound, "EVENT_NOT_FOUND");
    }
    let own_wish = block(&world, &person, blocking(&person, &event, "")).await;
    refused(own_wish, Code::PermissionDenied, "ROLE_MISSING");
    let own_wish = unblock(&world, &person, unblocking(&person, &event)).await;
    refused(own_wish, Code::PermissionDenied, "ROLE_MISSING");
    assert_eq!(world.count(BLOCKED, &[]).await, 0);
    assert_eq!(world.position(&person, &event).await.unwrap().position, 1);
}

#[tokio::test]
async fn all_violations_are_reported_at_once_without_a_write() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let bad = pb::BlockCustomerRequest {
        request_id: "1".to_owned(),
        event_id: "2".to_owned(),
        customer_id: "3".to_owned(),
        note: "x".repeat(1_000_000),
    };
    let details =
        refused(block(&world, &world.organizer, bad).await, Code::InvalidArgument, "FIELDS_INVALID");
    assert_eq!(details.bad_request().unwrap().field_violations.len(), 4);
    let bad = pb::UnblockCustomerRequest::default();
    let details =
        refused(unblock(&world, &world.organizer, bad).await, Code::InvalidArgument, "FIELDS_INVALID");
    assert_eq!(details.bad_request().unwrap().field_violations.len(), 3);
    let person = world.customer();
    for note in ["š".repeat(281), "two\nlines".to_owned()] {
        let answer = block(&world, &world.organizer, blocking(&person, &event, &note)).await;
        refused(answer, Code::InvalidArgument, "FIELDS_INVALID");
    }
    assert_eq!(world.count(BLOCKED, &[]).await, 0);
    block(&world, &world.organizer, blocking(&person, &event, &"š".repeat(280))).await.unwrap();
}

#[tokio::test]
async fn no_customer_joins_while_being_blocked() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people: Vec<Person> = (0..40).map(|_| world.customer()).collect();
    let crossing = people.iter().map(|person| {
        futures_util::future::join(
            world.join(person, &event),
            block(&world, &world.organizer, blocking(person, &event, "")),
        )
    });
    for (joined, blocked) in futures_util::future::join_all(crossing).await {
        blocked.unwrap();
        if joined.is_err() {
            refused(joined, Code::PermissionDenied, "CUSTOMER_BLOCKED");
        }
    }
    let open = "SELECT count(*) FROM entry WHERE state IN ('WAITING', 'ADMITTED')";
    assert_eq!(world.count(open, &[]).await, 0);
    wait_until("nobody is left in line", SOON, || async {
        world.snapshot(&event).await.unwrap().waiting_count == 0
    })
    .await;
}
