//! No mail is lost when the mail server is unavailable, refuses or does not respond, or when a worker crashes.

use std::net::SocketAddr;

use onsale_proto::{
    auth::v1::Role, notification::v1::notification_internal_service_client::NotificationInternalServiceClient,
};
use onsale_sandbox::mail::{Behaviour, Catcher, Config, Query};
use onsale_testkit::{
    service::{TestService, TestStores},
    wait_until,
};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    enqueue_notifications as enqueue,
    support::{BUYER, WAIT_MAX, World, catcher, order, start, stores},
};

/// Returns the address of a stopped mail server, and a folder for its restart.
async fn stopped_mail_server() -> (SocketAddr, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let catcher = catcher(folder.path()).await;
    let address = catcher.smtp_address();
    catcher.stop().await;
    (address, folder)
}

#[tokio::test]
async fn restarted_mail_server_gets_the_waiting_mail() {
    let (address, folder) = stopped_mail_server().await;
    let pauses = ("DELIVERY__PAUSES", r#"["200ms", "200ms", "500ms", "1s", "1s", "5s", "5s", "5s"]"#);
    let world = World::with(&[("MAIL__SMTP_URL", &format!("smtp://{address}")), pauses]).await;
    let (order, tickets) = order("Koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    wait_until("an attempt failed", WAIT_MAX, async || {
        world.count("SELECT count(*) FROM delivery_attempt WHERE error IS NOT NULL").await > 0
    })
    .await;
    let restarted =
        Catcher::start(Config { smtp_listen: address, ..Config::new(folder.path()) }).await.unwrap();
    world.wait_until_idle().await;
    assert_eq!(restarted.mails(&Query::default()).await.unwrap().len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DELIVERED'").await, 1);
    restarted.stop().await;
}

#[tokio::test]
async fn refused_mail_is_sent_again() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: 2, ..Behaviour::default() });
    let (order, tickets) = order("Koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    let mail = world.only_mail(BUYER).await;
    assert!(mail.message_id.unwrap().ends_with("@onsale.localhost"));
    assert_eq!(world.count("SELECT count(*) FROM delivery_attempt WHERE error LIKE '%451%'").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM delivery_attempt WHERE error IS NULL").await, 1);
}

#[tokio::test]
async fn mail_without_a_confirmation_is_repeated_with_its_message_id() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { close_after_data_next: 1, ..Behaviour::default() });
    let (order, tickets) = order("Koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    wait_until("the mail arrives twice", WAIT_MAX, async || world.mails(BUYER).await.len() == 2).await;
    world.wait_until_idle().await;
    let mails = world.mails(BUYER).await;
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0].message_id, mails[1].message_id);
}

#[tokio::test]
async fn delivery_of_a_crashed_worker_is_sent_by_the_next() {
    let stores = stores().await;
    // This mail server accepts connections but never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let smtp_url = format!("smtp://{}", silent.local_addr().unwrap());
    let first = tokio::runtime::Runtime::new().unwrap();
    let timeouts = [("MAIL__COMMAND_TIMEOUT", "2s"), ("MAIL__SEND_TIMEOUT", "2s"), ("DELIVERY__LEASE", "4s")];
    let started = first.spawn(async move { start(stores, &smtp_url, &timeouts).await });
    let crashing = started.await.unwrap();
    assert_eq!(enqueue_job(&crashing).await, 1);
    let (_stream, _) = silent.accept().await.expect("the worker connects");
    // Like a kill: all tasks end in the middle of the SMTP session.
    first.shutdown_background();

    let TestService { database, redis, .. } = crashing;
    let world = World::on(TestStores { database, redis }, &[]).await;
    let mail = world.only_mail(BUYER).await;
    assert!(mail.message_id.is_some());
    assert_eq!(world.count("SELECT count(*) FROM delivery_attempt").await, 2);
    let lost = "SELECT count(*) FROM delivery_attempt WHERE number = 1 AND error LIKE 'the worker stopped%'";
    assert_eq!(world.count(lost).await, 1);
}

async fn enqueue_job(service: &TestService) -> u32 {
    let mut client = NotificationInternalServiceClient::new(service.channel().await.unwrap());
    let mut request = tonic::Request::new(enqueue::request(vec![enqueue::job()]));
    let token = service.issuer.token_for("claim", &[Role::Service]);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    client.enqueue_notifications(request).await.unwrap().into_inner().accepted_count
}

#[tokio::test]
async fn delivery_that_crashes_its_workers_goes_to_dead_letters() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: u32::MAX, ..Behaviour::default() });
    let request = world.as_service(enqueue::request(vec![enqueue::job()]));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    world.catcher.behave(Behaviour::default());
    // The state after three workers in a row crashed while sending it.
    let crashed = "UPDATE delivery SET state = 'SENDING', due_at = now(), ended_at = NULL";
    world.store.execute("crash", crashed, &[]).await.unwrap();
    world.wait_until_idle().await;
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await, 1);
    assert!(world.mails(BUYER).await.is_empty());
}

/// Builds a world with three dead letters, runs the SQL statements `changes` on their jobs, and queues all three again. A job
/// that is no longer a readable refund is due an hour before the others.
async fn requeued_after(changes: &[(&'static str, &'static str)]) -> World {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: u32::MAX, ..Behaviour::default() });
    let request = world.as_service(enqueue::request((0..3).map(|_| enqueue::job()).collect()));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    for (step, sql) in changes {
        world.store.execute(step, sql, &[]).await.unwrap();
    }
    world.catcher.behave(Behaviour::default());
    let requeue = "UPDATE delivery SET state = 'QUEUED', ended_at = NULL, round_attempt_count = 0,
            due_at = now() - CASE WHEN template = 'REFUND' AND content ->> 'template' = 'REFUND' THEN interval '0'
                ELSE interval '1 hour' END
        FROM job WHERE job.job_id = delivery.job_id";
    world.store.execute("requeue", requeue, &[]).await.unwrap();
    world
}

#[tokio::test]
async fn unreadable_job_goes_to_dead_letters() {
    let world = requeued_after(&[
        (
            "unreadable content",
            "UPDATE job SET content = '{\"template\": \"HAIKU\"}' WHERE job_id = (SELECT max(job_id::text)::uuid FROM job)",
        ),
        (
            "old address",
            "UPDATE job SET email = 'an a@example.com' WHERE job_id = (SELECT max(job_id::text)::uuid FROM job)",
        ),
    ])
    .await;
    wait_until("the other mails arrive", WAIT_MAX, async || world.mails(BUYER).await.len() == 2).await;
    wait_until("the unreadable job is dead", WAIT_MAX, async || {
        world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await == 1
    })
    .await;
    let unreadable = "SELECT count(*) FROM delivery_attempt WHERE error LIKE 'the mail cannot be written%'";
    assert_eq!(world.count(unreadable).await, 1);
}

#[tokio::test]
async fn unknown_template_stays_queued() {
    let world = requeued_after(&[
        ("newer version", "ALTER TABLE job DROP CONSTRAINT job_template_check"),
        (
            "unknown template",
            "UPDATE job SET template = 'SONNET' WHERE job_id = (SELECT min(job_id::text)::uuid FROM job)",
        ),
    ])
    .await;
    wait_until("the other mails arrive", WAIT_MAX, async || world.mails(BUYER).await.len() == 2).await;
    let waits = "SELECT count(*) FROM delivery JOIN job USING (job_id) WHERE state = 'QUEUED' AND template = 'SONNET'";
    assert_eq!(world.count(waits).await, 1);
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await, 0);
}

#[tokio::test]
async fn restart_loses_no_job() {
    let (address, _folder) = stopped_mail_server().await;
    let pauses = ("DELIVERY__PAUSES", r#"["3s", "3s"]"#);
    let service = start(stores().await, &format!("smtp://{address}"), &[pauses]).await;
    assert_eq!(enqueue_job(&service).await, 1);
    let drained = service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
    let world = World::on(TestStores { database: service.database, redis: service.redis }, &[]).await;
    world.only_mail(BUYER).await;
}
