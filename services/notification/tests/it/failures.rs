//! Mail servers that are away, refuse, or say nothing; workers that die. Nothing vanishes.

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
    enqueue,
    support::{BUYER, SOON, World, catcher, order, start, stores},
};

/// The address of a mail server that is away, and the folder it will have when it comes back.
async fn away() -> (SocketAddr, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let catcher = catcher(folder.path()).await;
    let address = catcher.smtp_address();
    catcher.stop().await;
    (address, folder)
}

#[tokio::test]
async fn a_mail_server_that_comes_back_gets_what_waited() {
    let (address, folder) = away().await;
    let pauses = ("DELIVERY__PAUSES", r#"["200ms", "200ms", "500ms", "1s", "1s", "5s", "5s", "5s"]"#);
    let world = World::with(&[("MAIL__SMTP_URL", &format!("smtp://{address}")), pauses]).await;
    let (order, tickets) = order("Koncert");
    world.tell(&order).await;
    world.tell(&tickets).await;
    wait_until("an attempt failed", SOON, async || {
        world.count("SELECT count(*) FROM delivery_attempt WHERE error IS NOT NULL").await > 0
    })
    .await;
    let back = Catcher::start(Config { smtp_listen: address, ..Config::new(folder.path()) }).await.unwrap();
    world.wait_until_idle().await;
    assert_eq!(back.mails(&Query::default()).await.unwrap().len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DELIVERED'").await, 1);
    back.stop().await;
}

#[tokio::test]
async fn a_refused_mail_is_tried_again_and_keeps_its_name() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: 2, ..Behaviour::default() });
    let (order, tickets) = order("Koncert");
    world.tell(&order).await;
    world.tell(&tickets).await;
    let mail = world.only_mail(BUYER).await;
    assert!(mail.message_id.unwrap().ends_with("@onsale.localhost"));
    assert_eq!(world.count("SELECT count(*) FROM delivery_attempt WHERE error LIKE '%451%'").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM delivery_attempt WHERE error IS NULL").await, 1);
}

#[tokio::test]
async fn a_mail_whose_arrival_nobody_confirmed_is_sent_again_under_the_same_name() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { close_after_data_next: 1, ..Behaviour::default() });
    let (order, tickets) = order("Koncert");
    world.tell(&order).await;
    world.tell(&tickets).await;
    wait_until("it was sent twice", SOON, async || world.mails(BUYER).await.len() == 2).await;
    world.wait_until_idle().await;
    let mails = world.mails(BUYER).await;
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0].message_id, mails[1].message_id);
}

#[tokio::test]
async fn what_a_worker_had_in_hand_when_it_died_is_sent_by_the_next() {
    let stores = stores().await;
    // A mail server that takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let smtp_url = format!("smtp://{}", silent.local_addr().unwrap());
    let first = tokio::runtime::Runtime::new().unwrap();
    let timeouts = [("MAIL__COMMAND_TIMEOUT", "2s"), ("MAIL__SEND_TIMEOUT", "2s"), ("DELIVERY__LEASE", "4s")];
    let started = first.spawn(async move { start(stores, &smtp_url, &timeouts).await });
    let dying = started.await.unwrap();
    assert_eq!(enqueue_job(&dying).await, 1);
    let (_stream, _) = silent.accept().await.expect("it begins to send");
    // As sudden as a kill: every task of it is gone, in the middle of the conversation.
    first.shutdown_background();

    let TestService { database, redis, .. } = dying;
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
async fn a_delivery_that_only_kills_its_workers_ends_in_the_dead_letters() {
    let world = World::new().await;
    world.catcher.behave(Behaviour { reject_next: u32::MAX, ..Behaviour::default() });
    let request = world.as_service(enqueue::request(vec![enqueue::job()]));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    world.catcher.behave(Behaviour::default());
    // As if three workers in a row had died with it in hand.
    let dying = "UPDATE delivery SET state = 'SENDING', due_at = now(), ended_at = NULL";
    world.store.execute("die", dying, &[]).await.unwrap();
    world.wait_until_idle().await;
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await, 1);
    assert!(world.mails(BUYER).await.is_empty());
}

#[tokio::test]
async fn a_job_that_nobody_can_read_is_dead_and_one_of_a_newer_version_waits_for_it_and_neither_stops_the_others()
 {
    let world = World::new().await;
    // While nothing can be sent, three jobs of which two are spoilt; they stand before the third in line.
    world.catcher.behave(Behaviour { reject_next: u32::MAX, ..Behaviour::default() });
    let request = world.as_service(enqueue::request((0..3).map(|_| enqueue::job()).collect()));
    world.internal().await.enqueue_notifications(request).await.unwrap();
    world.wait_until_idle().await;
    for (step, sql) in [
        ("newer version", "ALTER TABLE job DROP CONSTRAINT job_template_check"),
        (
            "unknown template",
            "UPDATE job SET template = 'SONNET' WHERE job_id = (SELECT min(job_id::text)::uuid FROM job)",
        ),
        (
            "unreadable content",
            "UPDATE job SET content = '{\"template\": \"HAIKU\"}' WHERE job_id = (SELECT max(job_id::text)::uuid FROM job)",
        ),
        (
            "old address",
            "UPDATE job SET email = 'an a@example.com' WHERE job_id = (SELECT max(job_id::text)::uuid FROM job)",
        ),
    ] {
        world.store.execute(step, sql, &[]).await.unwrap();
    }
    world.catcher.behave(Behaviour::default());
    let again = "UPDATE delivery SET state = 'QUEUED', ended_at = NULL, round_attempt_count = 0,
            due_at = now() - CASE WHEN template = 'REFUND' AND content ->> 'template' = 'REFUND' THEN interval '0'
                ELSE interval '1 hour' END
        FROM job WHERE job.job_id = delivery.job_id";
    world.store.execute("again", again, &[]).await.unwrap();
    wait_until("the good one arrives", SOON, async || world.mails(BUYER).await.len() == 1).await;
    wait_until("the unreadable one is dead", SOON, async || {
        world.count("SELECT count(*) FROM delivery WHERE state = 'DEAD'").await == 1
    })
    .await;
    let waits = "SELECT count(*) FROM delivery JOIN job USING (job_id) WHERE state = 'QUEUED' AND template = 'SONNET'";
    assert_eq!(world.count(waits).await, 1);
    let why = "SELECT count(*) FROM delivery_attempt WHERE error LIKE 'the mail cannot be written%'";
    assert_eq!(world.count(why).await, 1);
}

#[tokio::test]
async fn a_restart_loses_nothing_that_was_heard() {
    let (address, _folder) = away().await;
    let pauses = ("DELIVERY__PAUSES", r#"["3s", "3s"]"#);
    let service = start(stores().await, &format!("smtp://{address}"), &[pauses]).await;
    assert_eq!(enqueue_job(&service).await, 1);
    let drained = service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
    let world = World::on(TestStores { database: service.database, redis: service.redis }, &[]).await;
    world.only_mail(BUYER).await;
}
