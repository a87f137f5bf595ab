//! `JoinQueue`: fair places, one per customer, and every reason to be turned away.

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
async fn a_join_answers_a_durable_place_with_token_and_estimate() {
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
async fn a_second_device_gets_the_same_entry_seq_and_token() {
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
async fn a_repeated_request_answers_its_entry_even_when_it_has_ended() {
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
async fn one_request_id_with_two_bodies_is_a_mistake() {
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
    // Another customer's id is another id.
    world.customers().join_queue(world.customer().ask(asked)).await.unwrap();
}

#[tokio::test]
async fn nobody_joins_what_does_not_exist() {
    let world = World::start().await;
    let unknown = Uuid::now_v7().to_string();
    let details = refused(world.join(&world.customer(), &unknown).await, Code::NotFound, "EVENT_NOT_FOUND");
    assert_eq!(fact(&details, "event_id"), Some(unknown));
}

#[tokio::test]
async fn nobody_joins_before_the_opening_and_hears_when_it_is() {
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
async fn a_pause_keeps_newcomers_out_only_when_it_says_so() {
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
    // Who is in line stays, on every device.
    assert_eq!(world.join(&early, &event).await.unwrap().standing.unwrap().position, 1);
}

#[tokio::test]
async fn nobody_joins_a_closed_queue_and_hears_why() {
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
async fn nobody_joins_what_is_sold_out() {
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
async fn a_full_queue_takes_nobody_until_somebody_goes() {
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
async fn bad_input_is_named_field_by_field_and_nothing_is_written() {
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
