//! `JoinQueue`: one entry per customer, in order of arrival, and every reason for a refusal.

use std::{collections::BTreeSet, time::Duration};

use onsale_proto::{
    events::v1::InventorySoldOut,
    queue::v1::{self as pb, CloseReason, QueueState},
};
use onsale_types::{Clock, SystemClock};
use tonic::Code;
use uuid::Uuid;

use crate::support::{World, fact, refused, sector_of};

fn request(event: &str) -> pb::JoinQueueRequest {
    pb::JoinQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        display_name: "Ana".to_owned(),
        avatar_url: "https://pictures.test/ana.png".to_owned(),
    }
}

#[tokio::test]
async fn join_returns_a_stored_entry_with_token_and_estimate() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let first = world.customer();
    let answer = world.customers().join_queue(first.ask(request(&event))).await.unwrap().into_inner();
    let standing = answer.standing.unwrap();
    let entry = standing.entry.clone().unwrap();
    assert_eq!((entry.seq, standing.position), (1, 1));
    assert_eq!((entry.display_name.as_str(), entry.event_id.as_str()), ("Ana", event.as_str()));
    assert_eq!(standing.queue_state(), QueueState::Open);
    assert!(standing.estimate.is_some() && standing.next_poll_after.is_some() && standing.revision > 0);
    assert_eq!(answer.follow_method, i32::from(pb::FollowMethod::Stream));
    assert_eq!(answer.queue_token.split('.').count(), 3);
    let second = world.join(&world.customer(), &event).await.unwrap().standing.unwrap();
    assert_eq!((second.entry.unwrap().seq, second.position), (2, 2));
}

#[tokio::test]
async fn second_device_gets_the_same_entry_and_token() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.customer();
    let (phone, laptop) = tokio::join!(world.join(&person, &event), world.join(&person, &event));
    let (phone, laptop) = (phone.unwrap(), laptop.unwrap());
    assert_eq!(phone.standing.unwrap().entry, laptop.standing.unwrap().entry);
    assert_eq!(phone.queue_token, laptop.queue_token);
    assert_eq!(world.snapshot(&event).await.unwrap().waiting_count, 1);
}

#[tokio::test]
async fn repeated_request_returns_its_entry_even_after_its_end() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.customer();
    let asked = request(&event);
    let join =
        || async { world.customers().join_queue(person.ask(asked.clone())).await.unwrap().into_inner() };
    let first = join().await.standing.unwrap().entry.unwrap();
    world.leave(&person, &event).await.unwrap();
    let again = join().await.standing.unwrap();
    let entry = again.entry.unwrap();
    assert_eq!((&entry.entry_id, entry.state()), (&first.entry_id, pb::EntryState::Left));
    assert_eq!(again.position, 0);
}

#[tokio::test]
async fn request_id_with_another_body_is_refused() {
    let world = World::start().await;
    let (event, other) = (world.open_queue().await, world.open_queue().await);
    let person = world.customer();
    let asked = request(&event);
    world.customers().join_queue(person.ask(asked.clone())).await.unwrap();
    for changed in [
        pb::JoinQueueRequest { display_name: "Eva".to_owned(), ..asked.clone() },
        pb::JoinQueueRequest { event_id: other.clone(), ..asked.clone() },
    ] {
        let answer = world.customers().join_queue(person.ask(changed)).await;
        refused(answer, Code::InvalidArgument, "REQUEST_ID_REUSED");
    }
    // The same request id of another customer is another request.
    world.customers().join_queue(world.customer().ask(asked)).await.unwrap();
}

#[tokio::test]
async fn unknown_event_cannot_be_joined() {
    let world = World::start().await;
    let unknown = Uuid::now_v7().to_string();
    let details = refused(world.join(&world.customer(), &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    assert_eq!(fact(&details, "event_id"), Some(unknown));
}

#[tokio::test]
async fn join_before_the_opening_is_refused_with_its_time() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    world.create_event(&event, 1).await;
    world.wait_for_state(&event, QueueState::Scheduled).await;
    let draft =
        refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_NOT_OPEN");
    assert_eq!(fact(&draft, "open_time"), None);
    let opens = SystemClock.now().checked_add(Duration::from_secs(3_600)).unwrap();
    world.activate_event(&event, 2, Some(opens)).await;
    onsale_testkit::wait_until("the time is known", crate::support::SOON, || async {
        world.join(&world.customer(), &event).await.err().is_some_and(|status| {
            fact(&tonic_types::StatusExt::get_error_details(&status), "open_time") == Some(opens.to_string())
        })
    })
    .await;
    let details =
        refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_NOT_OPEN");
    let wait = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::from_secs(3_500) && wait <= Duration::from_secs(3_600), "{wait:?}");
}

#[tokio::test]
async fn pause_refuses_joins_only_if_it_says_so() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let early = world.customer();
    world.join(&early, &event).await.unwrap();
    world.pause(&event, false).await;
    world.join(&world.customer(), &event).await.unwrap();
    world.pause(&event, true).await;
    let details =
        refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_PAUSED");
    assert!(details.retry_info().is_some());
    // Customers in line keep their entries on every device.
    assert_eq!(world.join(&early, &event).await.unwrap().standing.unwrap().position, 1);
}

#[tokio::test]
async fn join_of_a_closed_queue_is_refused_with_the_reason() {
    let world = World::start().await;
    for (reason, name) in [
        (CloseReason::Organizer, "ORGANIZER"),
        (CloseReason::Ended, "ENDED"),
        (CloseReason::Canceled, "CANCELED"),
    ] {
        let event = world.open_queue().await;
        world.close(&event, reason).await.unwrap();
        let details =
            refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_CLOSED");
        assert_eq!(fact(&details, "close_reason").as_deref(), Some(name));
    }
}

#[tokio::test]
async fn join_of_a_sold_out_event_is_refused() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let sold_out = InventorySoldOut { event_id: event.clone(), revision: 7, sold_out_time: None };
    world.say(&event, &sold_out).await;
    world.wait_for_state(&event, QueueState::Closed).await;
    refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "EVENT_SOLD_OUT");

    let other = world.open_queue().await;
    let close = pb::CloseQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: other.clone(),
        remaining_sector_ids: vec![sector_of(&other)],
        ..pb::CloseQueueRequest::default()
    };
    world.admin().close_queue(world.organizer.ask(close)).await.unwrap();
    let details =
        refused(world.join(&world.customer(), &other).await, Code::FailedPrecondition, "EVENT_SOLD_OUT");
    assert_eq!(fact(&details, "remaining_sector_ids"), Some(sector_of(&other)));
}

#[tokio::test]
async fn full_queue_accepts_a_join_after_somebody_leaves() {
    let world = World::start_with(&[("POLICY__WAITING_MAX", "2")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(2, &event).await;
    let late = world.customer();
    let details = refused(world.join(&late, &event).await, Code::ResourceExhausted, "QUEUE_FULL");
    assert_eq!(fact(&details, "waiting_max").as_deref(), Some("2"));
    assert!(details.quota_failure().is_some() && details.retry_info().is_some());
    world.leave(&people[0], &event).await.unwrap();
    assert_eq!(world.join(&late, &event).await.unwrap().standing.unwrap().entry.unwrap().seq, 3);
}

#[tokio::test]
async fn violations_are_reported_by_field_without_a_write() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let bad = pb::JoinQueueRequest {
        request_id: "not-a-uuid".to_owned(),
        event_id: format!("{event} "),
        display_name: "x".repeat(65),
        avatar_url: "http://pictures.test/a.png".to_owned(),
    };
    let answer = world.customers().join_queue(world.customer().ask(bad)).await;
    let details = refused(answer, Code::InvalidArgument, "FIELDS_INVALID");
    let fields: BTreeSet<String> =
        details.bad_request().unwrap().field_violations.iter().map(|it| it.field.clone()).collect();
    let expected = ["avatar_url", "display_name", "event_id", "request_id"].map(str::to_owned);
    assert_eq!(fields, expected.into());
    for name in ["a\0b", "line\nbreak"] {
        let bad = pb::JoinQueueRequest { display_name: name.to_owned(), ..request(&event) };
        let answer = world.customers().join_queue(world.customer().ask(bad)).await;
        refused(answer, Code::InvalidArgument, "FIELDS_INVALID");
    }
    let huge = pb::JoinQueueRequest { display_name: "x".repeat(1 << 20), ..request(&event) };
    let answer = world.customers().join_queue(world.customer().ask(huge)).await;
    refused(answer, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    assert_eq!(world.count("SELECT count(*) FROM entry", &[]).await, 0);
}
