//! Dead letters: organizers list, read and retry those of their own events.

use onsale_proto::notification::v1::{
    Channel, DeadLetter, Delivery, DeliveryState, GetDeliveryRequest, ListDeadLettersRequest,
    NotificationJob, RetryDeadLetterRequest, Template, notification_job::Content,
};
use onsale_sandbox::mail::Behaviour;
use tonic::Code;

use crate::{
    enqueue_notifications as enqueue,
    support::{BUYER, World, id, reason},
};

const OWNER: &str = "olga";
const OTHER: &str = "oto";

fn list(event_id: &str) -> ListDeadLettersRequest {
    ListDeadLettersRequest { event_id: event_id.to_owned(), ..ListDeadLettersRequest::default() }
}

/// Returns a world with `count` dead letters about one event of the owner, and the event's id.
async fn with_dead(count: usize) -> (World, String) {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: u32::MAX, ..Behaviour::default() });
    let mut jobs: Vec<NotificationJob> = (0..count).map(|_| enqueue::job()).collect();
    let Some(Content::Refund(first)) = &jobs[0].content else { panic!("jobs are about refunds") };
    let event = first.event.clone().unwrap();
    for job in &mut jobs {
        if let Some(Content::Refund(refund)) = &mut job.content {
            refund.event = Some(event.clone());
        }
    }
    let request = world.as_service(enqueue::request(jobs));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.publish_owner(OWNER, &event).await;
    world.wait_until_idle().await;
    world.catcher.behave(Behaviour::default());
    (world, event.event_id)
}

async fn letters(world: &World, request: ListDeadLettersRequest) -> (Vec<DeadLetter>, String) {
    let answer = world.admin().await.list_dead_letters(world.as_organizer(OWNER, request)).await;
    let answer = answer.unwrap().into_inner();
    (answer.dead_letters, answer.next_page_token)
}

async fn get(world: &World, delivery_id: &str) -> Delivery {
    let request = GetDeliveryRequest { delivery_id: delivery_id.to_owned() };
    let answer = world.admin().await.get_delivery(world.as_organizer(OWNER, request)).await.unwrap();
    answer.into_inner().delivery.unwrap()
}

#[tokio::test]
async fn dead_letter_of_a_newer_version_does_not_hide_the_others() {
    let (world, event_id) = with_dead(2).await;
    for (step, sql) in [
        ("newer version", "ALTER TABLE job DROP CONSTRAINT job_template_check"),
        (
            "unknown template",
            "UPDATE job SET template = 'SONNET' WHERE job_id = (SELECT min(job_id::text)::uuid FROM job)",
        ),
        ("old address", "UPDATE job SET email = 'an a@example.com' WHERE template <> 'SONNET'"),
    ] {
        world.store.execute(step, sql, &[]).await.unwrap();
    }
    let (letters, _) = letters(&world, list(&event_id)).await;
    let [letter] = letters.try_into().unwrap();
    assert_eq!(letter.delivery.unwrap().masked_recipient, "a***@example.com");
}

#[tokio::test]
async fn refused_mail_is_dead_until_a_retry_delivers_it() {
    let (world, event_id) = with_dead(1).await;
    let (letters, next) = letters(&world, list(&event_id)).await;
    let [letter] = letters.try_into().unwrap();
    assert_eq!(next, "");
    assert!(letter.error.contains("451"), "{}", letter.error);
    assert!(letter.dead_time.is_some());
    let dead = letter.delivery.unwrap();
    assert_eq!(dead.state(), DeliveryState::Dead);
    assert_eq!((dead.template(), dead.channel()), (Template::Refund, Channel::Email));
    assert_eq!(dead.masked_recipient, "a***@example.com");
    assert_eq!(dead.attempts.len(), 3, "one attempt, and one after each of two pauses");
    assert!(dead.attempts.iter().all(|attempt| attempt.provider == "smtp" && !attempt.error.is_empty()));
    assert_eq!((dead.event_id.as_str(), &dead.next_attempt_time), (event_id.as_str(), &None));

    let retry = RetryDeadLetterRequest { request_id: id(), delivery_id: dead.delivery_id.clone() };
    let mut client = world.admin().await;
    let answer =
        client.retry_dead_letter(world.as_organizer(OWNER, retry.clone())).await.unwrap().into_inner();
    let queued = answer.delivery.clone().unwrap();
    assert_eq!(queued.state(), DeliveryState::Queued);
    assert!(queued.next_attempt_time.is_some() && queued.end_time.is_none());
    world.only_mail(BUYER).await;

    let again = client.retry_dead_letter(world.as_organizer(OWNER, retry)).await.unwrap().into_inner();
    assert_eq!(again, answer, "a repeat has the same response");
    let another = RetryDeadLetterRequest { request_id: id(), delivery_id: dead.delivery_id.clone() };
    let refused = client.retry_dead_letter(world.as_organizer(OWNER, another)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "DELIVERY_NOT_DEAD"));
    let delivered = get(&world, &dead.delivery_id).await;
    assert_eq!(delivered.state(), DeliveryState::Delivered);
    assert_eq!(delivered.attempts.len(), 4);
    assert!(delivered.attempts[3].provider_message_id.starts_with("kept as"), "{delivered:?}");
    world.only_mail(BUYER).await;
}

#[tokio::test]
async fn dead_letters_are_paged_newest_first() {
    let (world, event_id) = with_dead(5).await;
    let mut seen = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListDeadLettersRequest { page_size: 2, page_token, ..list(&event_id) };
        let (page, next) = letters(&world, request).await;
        assert!(page.len() <= 2);
        seen.extend(page);
        if next.is_empty() {
            break;
        }
        page_token = next;
    }
    assert_eq!(seen.len(), 5);
    let times: Vec<_> = seen.iter().map(|it| it.dead_time.map(|time| (time.seconds, time.nanos))).collect();
    assert!(times.is_sorted_by(|earlier, later| earlier >= later), "{times:?}");
    let mut ids: Vec<_> = seen.iter().map(|it| it.delivery.clone().unwrap().delivery_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[tokio::test]
async fn dead_letters_are_filtered_by_template_and_channel() {
    let (world, event_id) = with_dead(5).await;
    let refunds = ListDeadLettersRequest { templates: vec![Template::Refund.into()], ..list(&event_id) };
    assert_eq!(letters(&world, refunds).await.0.len(), 5);
    let pushes = ListDeadLettersRequest { channels: vec![Channel::Push.into()], ..list(&event_id) };
    assert_eq!(letters(&world, pushes).await.0.len(), 0);
}

#[tokio::test]
async fn page_token_of_another_list_is_refused() {
    let (world, event_id) = with_dead(2).await;
    let (_, token) = letters(&world, ListDeadLettersRequest { page_size: 1, ..list(&event_id) }).await;
    let other_list = ListDeadLettersRequest {
        page_token: token,
        templates: vec![Template::Refund.into()],
        ..list(&event_id)
    };
    let refused =
        world.admin().await.list_dead_letters(world.as_organizer(OWNER, other_list)).await.unwrap_err();
    assert_eq!(reason(&refused), "FIELDS_INVALID");
}

#[tokio::test]
async fn dead_letters_of_another_organizer_are_refused() {
    let (world, event_id) = with_dead(1).await;
    let delivery_id = letters(&world, list(&event_id)).await.0[0].delivery.clone().unwrap().delivery_id;
    let mut client = world.admin().await;
    let status = client.list_dead_letters(world.as_organizer(OTHER, list(&event_id))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "EVENT_NOT_OWNED"));
    let get = GetDeliveryRequest { delivery_id: delivery_id.clone() };
    let status = client.get_delivery(world.as_organizer(OTHER, get)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "DELIVERY_NOT_FOUND"));
    let retry = RetryDeadLetterRequest { request_id: id(), delivery_id };
    let status = client.retry_dead_letter(world.as_organizer(OTHER, retry)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "DELIVERY_NOT_FOUND"));
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await, 1);
}

#[tokio::test]
async fn unknown_event_and_foreign_draft_are_not_found() {
    let world = World::new().await;
    let mut client = world.admin().await;
    let status = client.list_dead_letters(world.as_organizer(OWNER, list(&id()))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "EVENT_NOT_FOUND"));
    // Without a job, another organizer's event may still be a draft.
    let draft = crate::support::event("Draft");
    world.publish_owner(OTHER, &draft).await;
    let status =
        client.list_dead_letters(world.as_organizer(OWNER, list(&draft.event_id))).await.unwrap_err();
    assert_eq!(reason(&status), "EVENT_NOT_FOUND");
}

#[tokio::test]
async fn unknown_delivery_is_not_found_and_malformed_id_is_invalid() {
    let world = World::new().await;
    let mut client = world.admin().await;
    let status = client
        .get_delivery(world.as_organizer(OWNER, GetDeliveryRequest { delivery_id: id() }))
        .await
        .unwrap_err();
    assert_eq!(reason(&status), "DELIVERY_NOT_FOUND");
    let status = client
        .get_delivery(world.as_organizer(OWNER, GetDeliveryRequest { delivery_id: "x".to_owned() }))
        .await
        .unwrap_err();
    assert_eq!(reason(&status), "FIELDS_INVALID");
}
