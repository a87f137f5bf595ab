//! `GetQueueStats` and `WatchQueueStats`: an organizer's live numbers, and the viewers of the event.

use std::time::Duration;

use onsale_proto::{
    auth::v1::Role,
    claim::v1::ReleaseReason,
    events::v1::ClaimReleased,
    queue::v1::{self as pb, QueueState, queue_admin_service_client::QueueAdminServiceClient},
};
use onsale_queue::store::keys::Keys;
use onsale_storage::redis::{Command, Key};
use onsale_testkit::wait_until;
use onsale_types::EventId;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::support::{Person, SOON, World, refused, summary};

async fn ask(world: &World, organizer: &Person, event: &str) -> Result<pb::GetQueueStatsResponse, Status> {
    let request = pb::GetQueueStatsRequest { event_id: event.to_owned() };
    Ok(world.admin().get_queue_stats(organizer.ask(request)).await?.into_inner())
}

async fn stats(world: &World, event: &str) -> pb::QueueStats {
    ask(world, &world.organizer, event).await.unwrap().stats.unwrap()
}

async fn watch(
    world: &World,
    organizer: &Person,
    event: &str,
    interval: Option<Duration>,
) -> Result<Streaming<pb::WatchQueueStatsResponse>, Status> {
    let interval = interval.map(|interval| prost_types::Duration::try_from(interval).unwrap());
    let request = pb::WatchQueueStatsRequest { event_id: event.to_owned(), interval };
    Ok(world.admin().watch_queue_stats(organizer.ask(request)).await?.into_inner())
}

async fn next(stream: &mut Streaming<pb::WatchQueueStatsResponse>) -> pb::QueueStats {
    let message = tokio::time::timeout(SOON, stream.message()).await.expect("a message comes in time");
    message.unwrap().unwrap().stats.unwrap()
}

fn seconds(span: Option<prost_types::Duration>) -> Option<i64> {
    span.map(|span| span.seconds)
}

#[tokio::test]
async fn stats_count_what_happened() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "2")]).await;
    let event = world.open_queue().await;
    let answer = ask(&world, &world.organizer, &event).await.unwrap();
    let (empty, queue) = (answer.stats.unwrap(), answer.queue.unwrap());
    assert_eq!((empty.event_id.as_str(), empty.state()), (event.as_str(), QueueState::Open));
    assert_eq!((empty.joined_count, empty.wait_p50, empty.wait_p95), (0, None, None));
    assert_eq!((empty.average_service_time, empty.move_log_lag.is_some()), (None, true));
    assert_eq!((queue.event_id, queue.policy.unwrap().open_turns_max), (event.clone(), 2));
    let people = world.join_all(6, &event).await;
    world.inventory.set_free(1_000);
    let bought = world.turn(&people[0], &event).await.fencing_number;
    let lost = world.turn(&people[1], &event).await.fencing_number;
    let complete = pb::CompleteTurnRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        customer_id: people[0].customer_id(),
        fencing_number: bought,
        claim_id: Uuid::now_v7().to_string(),
    };
    world.internal().complete_turn(world.as_claim(complete)).await.unwrap();
    let released = ClaimReleased {
        claim_id: Uuid::now_v7().to_string(),
        event: Some(summary(&event)),
        customer_id: people[1].customer_id(),
        reason: ReleaseReason::Expired.into(),
        fencing_number: lost,
        ..ClaimReleased::default()
    };
    world.say("claim", &released).await;
    world.turn(&people[2], &event).await;
    world.leave(&people[2], &event).await.unwrap();
    world.turn(&people[4], &event).await;
    wait_until("the numbers are those", SOON, || async {
        let now = stats(&world, &event).await;
        let counts =
            [now.joined_count, now.admitted_count, now.completed_count, now.expired_count, now.left_count];
        counts == [6, 5, 1, 1, 1] && (now.waiting_count, now.open_turn_count) == (1, 2)
    })
    .await;
    let now = stats(&world, &event).await;
    assert_eq!(now.admitted_last_minute, 5);
    assert!(now.wait_p50.is_some() && now.wait_p95.is_some() && now.average_service_time.is_some());
    assert!(now.revision > empty.revision && now.stats_time.is_some());
}

#[tokio::test]
async fn joins_per_second_cover_the_last_ten_seconds() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.join_all(20, &event).await;
    let event_id = Uuid::parse_str(&event).unwrap();
    // Makes all but the last joins old.
    let age = "UPDATE entry SET join_time = CASE WHEN seq > 20 - $2::bigint THEN now() ELSE now() - interval '11 seconds' END
        WHERE event_id = $1";
    for (joined, per_second) in [(20_i64, 2), (14, 1), (4, 0), (5, 1), (0, 0), (15, 2)] {
        wait_until(&format!("{joined} joined lately"), SOON, || async {
            world.postgres.execute("age", age, &[&event_id, &joined]).await.unwrap();
            stats(&world, &event).await.joined_per_second == per_second
        })
        .await;
    }
    // Deleted entries count as old.
    wait_until("nobody joined lately", SOON, || async {
        world
            .postgres
            .execute("forget", "DELETE FROM entry WHERE event_id = $1", &[&event_id])
            .await
            .unwrap();
        stats(&world, &event).await.joined_per_second == 0
    })
    .await;
}

#[tokio::test]
async fn waits_cover_admissions_of_the_last_ten_minutes() {
    let world = World::start().await;
    let event = world.selling_queue().await;
    let people = world.join_all(20, &event).await;
    for person in &people {
        world.turn(person, &event).await;
    }
    let event_id = Uuid::parse_str(&event).unwrap();
    let waits = "UPDATE entry SET join_time = grant_time - seq * interval '1 second' WHERE event_id = $1";
    world.postgres.execute("set waits", waits, &[&event_id]).await.unwrap();
    wait_until("waits are told", SOON, || async {
        let now = stats(&world, &event).await;
        (seconds(now.wait_p50), seconds(now.wait_p95)) == (Some(10), Some(19))
    })
    .await;
    let long_ago = "UPDATE entry SET grant_time = grant_time - interval '11 minutes',
            join_time = join_time - interval '11 minutes' WHERE event_id = $1 AND seq > 2";
    world.postgres.execute("age", long_ago, &[&event_id]).await.unwrap();
    wait_until("old waits are forgotten", SOON, || async {
        let now = stats(&world, &event).await;
        (seconds(now.wait_p50), seconds(now.wait_p95)) == (Some(1), Some(2)) && now.admitted_last_minute == 2
    })
    .await;
}

#[tokio::test]
async fn stats_stream_begins_immediately_and_follows_changes() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let mut console = watch(&world, &world.organizer, &event, Some(Duration::from_secs(1))).await.unwrap();
    let mut slower = watch(&world, &world.organizer, &event, Some(Duration::from_secs(60))).await.unwrap();
    let first = next(&mut console).await;
    assert_eq!((first.waiting_count, first.state()), (0, QueueState::Open));
    assert_eq!(next(&mut slower).await.waiting_count, 0);
    world.join_all(2, &event).await;
    let mut revision = first.revision;
    loop {
        let now = next(&mut console).await;
        assert!(now.revision >= revision);
        revision = now.revision;
        if now.waiting_count == 2 {
            break;
        }
    }
    world.pause(&event, false).await;
    while next(&mut console).await.state() != QueueState::Paused {}
    // A draining instance ends the stream with a retry hint.
    world.service.server.shutdown().await;
    let ended = loop {
        match tokio::time::timeout(SOON, console.message()).await.expect("the stream ends") {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    refused(ended, Code::Unavailable, "DRAINING");
}

#[tokio::test]
async fn concurrent_callers_get_the_same_stats() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let asked = (0..10).map(|_| stats(&world, &event));
    let answers = futures_util::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn only_the_owner_reads_stats_and_foreign_drafts_are_not_found() {
    let world = World::start().await;
    let (event, draft) = (world.open_queue().await, world.draft().await);
    let stranger = world.stranger();
    refused(ask(&world, &stranger, &event).await, Code::PermissionDenied, "EVENT_NOT_OWNED");
    // Cached numbers are refused to other organizers too.
    assert_eq!(stats(&world, &draft).await.state(), QueueState::Scheduled);
    assert_eq!(stats(&world, &event).await.state(), QueueState::Open);
    refused(ask(&world, &stranger, &event).await, Code::PermissionDenied, "EVENT_NOT_OWNED");
    let foreign = watch(&world, &stranger, &event, None).await;
    refused(foreign, Code::PermissionDenied, "EVENT_NOT_OWNED");
    for event in [&draft, &Uuid::now_v7().to_string()] {
        refused(ask(&world, &stranger, event).await, Code::NotFound, "EVENT_NOT_FOUND");
        refused(watch(&world, &stranger, event, None).await, Code::NotFound, "EVENT_NOT_FOUND");
    }
    let customer = world.customer();
    refused(ask(&world, &customer, &event).await, Code::PermissionDenied, "ROLE_MISSING");
    refused(watch(&world, &customer, &event, None).await, Code::PermissionDenied, "ROLE_MISSING");
    refused(ask(&world, &world.organizer, "x").await, Code::InvalidArgument, "FIELDS_INVALID");
    for millis in [0, 999, 60_001] {
        let watched = watch(&world, &world.organizer, &event, Some(Duration::from_millis(millis))).await;
        refused(watched, Code::InvalidArgument, "FIELDS_INVALID");
    }
    let mut two_seconds = watch(&world, &world.organizer, &event, None).await.unwrap();
    next(&mut two_seconds).await;
    next(&mut two_seconds).await;
}

#[tokio::test]
async fn viewers_are_summed_over_pods() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(4, &event).await;
    let pod = world.another_pod().await;
    let channel = pod.channel().await.unwrap();
    let mut customers = pb::queue_service_client::QueueServiceClient::new(channel.clone());
    let mut admin = QueueAdminServiceClient::new(channel);
    for person in &people[..2] {
        world.position(person, &event).await.unwrap();
        world.position(person, &event).await.unwrap();
    }
    // A pod counts its own viewers without a delay.
    assert_eq!(stats(&world, &event).await.viewer_count, 2);
    for person in &people[2..] {
        let person = person.known_to(&pod, Role::Customer);
        let request = pb::HeartbeatRequest { event_id: event.clone(), queue_token: String::new() };
        customers.heartbeat(person.ask(request)).await.unwrap();
    }
    wait_until("each pod knows of the other's", SOON, || async {
        stats(&world, &event).await.viewer_count == 4
            && world.snapshot(&event).await.unwrap().viewer_count == 4
    })
    .await;
    let organizer = world.organizer.known_to(&pod, Role::Organizer);
    let request = pb::GetQueueStatsRequest { event_id: event.clone() };
    let there = admin.get_queue_stats(organizer.ask(request)).await.unwrap().into_inner().stats.unwrap();
    assert_eq!((there.viewer_count, there.waiting_count), (4, 4));
}

fn pods(world: &World, event: &str) -> Key {
    let keys = Keys::new(world.redis.keyspace("queue").unwrap());
    keys.pods(EventId::parse(event).unwrap()).unwrap()
}

#[tokio::test]
async fn slowest_pod_counts_and_a_gone_pod_does_not() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let key = pods(&world, &event);
    let reports = [
        ("gone", "7 9000 1"),
        ("odd", "many"),
        ("near", "5 20 99999999999999"),
        ("far", "1 1250 99999999999999"),
    ];
    let report = Command::new("HSET").key(&key).arg(&reports[..]);
    let _added: i64 = world.redis.run(report).await.unwrap();
    let now = stats(&world, &event).await;
    assert_eq!(now.viewer_count, 6);
    assert_eq!(now.move_log_lag, Some(prost_types::Duration { seconds: 1, nanos: 250_000_000 }));
    let kept: Vec<String> = world.redis.run(Command::new("HKEYS").key(&key)).await.unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
}

#[tokio::test]
async fn stats_are_available_without_redis() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let _set: String =
        world.redis.run(Command::new("SET").key(&pods(&world, &event)).arg("away")).await.unwrap();
    world.position(&person, &event).await.unwrap();
    let now = stats(&world, &event).await;
    assert_eq!((now.viewer_count, now.waiting_count), (1, 1));
    assert_eq!(world.snapshot(&event).await.unwrap().viewer_count, 1);
}
