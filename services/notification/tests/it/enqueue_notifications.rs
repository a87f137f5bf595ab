//! `EnqueueNotifications`: each job of another service is sent once.

use onsale_proto::notification::v1::{
    Channel, EnqueueNotificationsRequest, NotificationJob, OrderConfirmationContent, QueueUpdateContent,
    QueueYourTurnContent, Recipient, RefundContent, ReminderContent, notification_job::Content,
};
use tonic::Code;
use tonic_types::StatusExt;

use crate::support::{BUYER, World, euros, event, id, order, reason, seconds};

pub(crate) fn request(jobs: Vec<NotificationJob>) -> EnqueueNotificationsRequest {
    EnqueueNotificationsRequest { request_id: id(), jobs }
}

/// Returns a job of a refund mail.
pub(crate) fn job() -> NotificationJob {
    let refund = RefundContent { event: Some(event("Koncert")), claim_id: id(), amount: euros(100) };
    job_of(Content::Refund(refund))
}

fn job_of(content: Content) -> NotificationJob {
    NotificationJob {
        job_id: id(),
        recipient: Some(Recipient {
            customer_id: String::new(),
            email: BUYER.to_owned(),
            locale: "en".to_owned(),
        }),
        channels: Vec::new(),
        expire_time: None,
        content: Some(content),
    }
}

#[tokio::test]
async fn repeated_request_returns_the_same_response() {
    let world = World::new().await;
    let mut client = world.internal().await;
    let first = request(vec![job(), job()]);
    let answer = client.enqueue_notifications(world.as_service(first.clone())).await.unwrap().into_inner();
    assert_eq!((answer.accepted_count, answer.duplicate_count), (2, 0));
    assert!(answer.enqueue_time.is_some());
    let again = client.enqueue_notifications(world.as_service(first.clone())).await.unwrap().into_inner();
    assert_eq!(again, answer, "a repeat has the same response");
    world.wait_until_idle().await;
    assert_eq!(world.mails(BUYER).await.len(), 2);
    let other = EnqueueNotificationsRequest { jobs: vec![job()], ..first };
    let refused = client.enqueue_notifications(world.as_service(other)).await.unwrap_err();
    assert_eq!(reason(&refused), "REQUEST_ID_REUSED");
}

#[tokio::test]
async fn job_id_that_is_known_is_not_sent_again() {
    let world = World::new().await;
    let mut client = world.internal().await;
    let first = request(vec![job(), job()]);
    client.enqueue_notifications(world.as_service(first.clone())).await.unwrap();
    let mixed = request(vec![first.jobs[0].clone(), job()]);
    let mixed = client.enqueue_notifications(world.as_service(mixed)).await.unwrap().into_inner();
    assert_eq!((mixed.accepted_count, mixed.duplicate_count), (1, 1));
    world.wait_until_idle().await;
    assert_eq!(world.mails(BUYER).await.len(), 3);
}

#[tokio::test]
async fn order_confirmed_by_events_is_not_confirmed_again_by_a_job() {
    let world = World::new().await;
    let (order, tickets) = order("Koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    world.only_mail(BUYER).await;
    let content = OrderConfirmationContent {
        event: order.event,
        claim_id: order.claim_id,
        items: order.items,
        total: order.total,
    };
    let request = world.as_service(request(vec![job_of(Content::OrderConfirmation(content))]));
    let answer = world.internal().await.enqueue_notifications(request).await.unwrap().into_inner();
    assert_eq!((answer.accepted_count, answer.duplicate_count), (0, 1));
    world.only_mail(BUYER).await;
}

#[tokio::test]
async fn queue_updates_turns_and_reminders_are_mailed() {
    let world = World::new().await;
    let about = || Some(event("Koncert"));
    let span = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let update = QueueUpdateContent { event: about(), position: 7, wait_min: span(60), wait_max: span(120) };
    let turn = QueueYourTurnContent {
        event: about(),
        turn_expire_time: Some(seconds(1_783_360_800)),
        checkout_url: String::new(),
    };
    let reminder = ReminderContent { event: about(), ticket_count: 2 };
    let contents = [Content::QueueUpdate(update), Content::QueueYourTurn(turn), Content::Reminder(reminder)];
    let request = world.as_service(request(contents.into_iter().map(job_of).collect()));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    let mut subjects: Vec<_> = world.mails(BUYER).await.into_iter().map(|mail| mail.subject).collect();
    subjects.sort();
    assert_eq!(subjects, ["It is your turn: Koncert", "Soon: Koncert", "Your place in line for Koncert: 7"]);
}

#[tokio::test]
async fn expired_backlog_does_not_delay_other_jobs() {
    // Far longer than the test: a mail that waits for the next poll does not arrive.
    let world = World::with(&[("DELIVERY__POLL_EVERY", "1h")]).await;
    let mut jobs: Vec<_> =
        (0..200).map(|_| NotificationJob { expire_time: Some(seconds(1)), ..job() }).collect();
    jobs.push(job());
    let request = world.as_service(request(jobs));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.only_mail(BUYER).await;
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'SKIPPED'").await, 200);
}

#[tokio::test]
async fn expired_job_is_skipped() {
    let world = World::new().await;
    let expired = NotificationJob { expire_time: Some(seconds(1)), ..job() };
    let request = world.as_service(request(vec![expired]));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'SKIPPED'").await, 1);
    assert!(world.mails(BUYER).await.is_empty());
}

#[tokio::test]
async fn all_violations_are_reported_together_and_no_job_is_stored() {
    let world = World::new().await;
    let mut client = world.internal().await;
    let twice = job();
    let push = NotificationJob { channels: vec![Channel::Push.into()], ..job() };
    let nobody = NotificationJob { recipient: Some(Recipient::default()), ..job() };
    let nothing = NotificationJob { content: None, job_id: "x".to_owned(), ..job() };
    let bad = request(vec![twice.clone(), twice, push, nobody, nothing]);
    let status = client.enqueue_notifications(world.as_service(bad)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    let details = status.get_details_bad_request().unwrap();
    let fields: Vec<_> = details.field_violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "jobs[1].job_id",
            "jobs[2].channels",
            "jobs[3].recipient.email",
            "jobs[4].job_id",
            "jobs[4].content"
        ]
    );
    for jobs in [Vec::new(), (0..501).map(|_| job()).collect()] {
        let status = client.enqueue_notifications(world.as_service(request(jobs))).await.unwrap_err();
        assert_eq!(reason(&status), "FIELDS_INVALID");
    }
    assert_eq!(world.count("SELECT count(*) FROM job").await, 0);
}

#[tokio::test]
async fn largest_request_of_five_hundred_jobs_is_sent() {
    let world = World::new().await;
    let jobs: Vec<_> = (0..500).map(|_| job()).collect();
    let request = world.as_service(request(jobs));
    let answer = world.internal().await.enqueue_notifications(request).await.unwrap().into_inner();
    assert_eq!(answer.accepted_count, 500);
    world.wait_until_idle().await;
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DELIVERED'").await, 500);
    let query = onsale_sandbox::mail::Query { to: None, limit: Some(500) };
    assert_eq!(world.catcher.mails(&query).await.unwrap().len(), 500);
}
