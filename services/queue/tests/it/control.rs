//! `QueueAdminService`: an organizer controls only the queues of their own events.

use std::time::Duration;

use onsale_proto::{
    auth::v1::Role,
    queue::v1::{self as pb, CloseReason, QueueState},
};
use onsale_types::{Clock, SystemClock};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::support::{Person, SOON, World, fact, refused, sector_of, to_pb};

async fn open(
    world: &World,
    organizer: &Person,
    event: &str,
    open_time: Option<prost_types::Timestamp>,
) -> Result<pb::Queue, Status> {
    let request = pb::OpenQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        open_time,
    };
    Ok(world.admin().open_queue(organizer.ask(request)).await?.into_inner().queue.unwrap())
}

fn stranger(world: &World) -> Person {
    world.again(&world.customer(), Role::Organizer)
}

#[tokio::test]
async fn only_the_owner_controls_and_foreign_drafts_are_not_found() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let stranger = stranger(&world);
    let id = || Uuid::now_v7().to_string();
    let event_id = || event.clone();
    let opened = open(&world, &stranger, &event, None).await;
    refused(opened, Code::PermissionDenied, "EVENT_NOT_OWNED");
    let pause = pb::PauseQueueRequest { request_id: id(), event_id: event_id(), ..Default::default() };
    refused(world.admin().pause_queue(stranger.ask(pause)).await, Code::PermissionDenied, "EVENT_NOT_OWNED");
    let resume = pb::ResumeQueueRequest { request_id: id(), event_id: event_id() };
    refused(
        world.admin().resume_queue(stranger.ask(resume)).await,
        Code::PermissionDenied,
        "EVENT_NOT_OWNED",
    );
    let remaining_sector_ids = vec![sector_of(&event)];
    let close = pb::CloseQueueRequest {
        request_id: id(),
        event_id: event_id(),
        remaining_sector_ids,
        ..Default::default()
    };
    refused(world.admin().close_queue(stranger.ask(close)).await, Code::PermissionDenied, "EVENT_NOT_OWNED");
    let policy = Some(pb::QueuePolicy::default());
    let update =
        pb::UpdateQueuePolicyRequest { request_id: id(), event_id: event_id(), policy, update_mask: None };
    refused(
        world.admin().update_queue_policy(stranger.ask(update)).await,
        Code::PermissionDenied,
        "EVENT_NOT_OWNED",
    );
    let draft = Uuid::now_v7().to_string();
    world.create_event(&draft, 1).await;
    world.wait_for_state(&draft, QueueState::Scheduled).await;
    refused(open(&world, &stranger, &draft, None).await, Code::NotFound, "EVENT_NOT_FOUND");
    refused(
        open(&world, &stranger, &Uuid::now_v7().to_string(), None).await,
        Code::NotFound,
        "EVENT_NOT_FOUND",
    );
}

#[tokio::test]
async fn queue_refuses_transitions_that_its_state_does_not_allow() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let not_now = |answer: Result<pb::Queue, Status>, state: &str| {
        let details = refused(answer, Code::FailedPrecondition, "QUEUE_TRANSITION_INVALID");
        assert_eq!(fact(&details, "state").as_deref(), Some(state));
    };
    not_now(open(&world, &world.organizer, &event, None).await, "OPEN");
    assert_eq!(world.pause(&event, false).await.state(), QueueState::Paused);
    not_now(open(&world, &world.organizer, &event, None).await, "PAUSED");
    assert_eq!(world.resume(&event).await.unwrap().state(), QueueState::Open);
    assert_eq!(world.resume(&event).await.unwrap().state(), QueueState::Open);
    let closed = world.close(&event, CloseReason::Organizer).await.unwrap();
    assert_eq!((closed.state(), closed.close_reason()), (QueueState::Closed, CloseReason::Organizer));
    not_now(world.resume(&event).await, "CLOSED");
    not_now(world.close(&event, CloseReason::Ended).await, "CLOSED");
    assert_eq!(open(&world, &world.organizer, &event, None).await.unwrap().state(), QueueState::Open);
    world.close(&event, CloseReason::Ended).await.unwrap();
    not_now(open(&world, &world.organizer, &event, None).await, "CLOSED");
}

#[tokio::test]
async fn only_an_active_event_can_be_opened() {
    let world = World::start().await;
    let event = Uuid::now_v7().to_string();
    world.create_event(&event, 1).await;
    world.wait_for_state(&event, QueueState::Scheduled).await;
    let early = open(&world, &world.organizer, &event, None).await;
    refused(early, Code::FailedPrecondition, "QUEUE_TRANSITION_INVALID");
    let opens = SystemClock.now().checked_add(Duration::from_secs(3_600)).unwrap();
    world.activate_event(&event, 2, Some(opens)).await;
    onsale_testkit::wait_until("it is active", SOON, || async {
        let later = Some(to_pb(opens.checked_add(Duration::from_secs(60)).unwrap()));
        open(&world, &world.organizer, &event, later).await.is_ok_and(|queue| queue.open_time == later)
    })
    .await;
    let soon = SystemClock.now().checked_add(Duration::from_millis(300)).unwrap();
    let moved = open(&world, &world.organizer, &event, Some(to_pb(soon))).await.unwrap();
    assert_eq!(moved.state(), QueueState::Scheduled);
    // The sweep stores the opening; joins are accepted from the opening time on.
    world.wait_for_state(&event, QueueState::Open).await;
    world.join(&world.customer(), &event).await.unwrap();
    let far = SystemClock.now().checked_add(Duration::from_secs(2 * 366 * 24 * 3_600)).unwrap();
    let answer = open(&world, &world.organizer, &event, Some(to_pb(far))).await;
    refused(answer, Code::InvalidArgument, "FIELDS_INVALID");
}

#[tokio::test]
async fn repeated_control_takes_effect_once() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let request = pb::PauseQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        joins_paused: true,
        notice: "wait".to_owned(),
    };
    let pause = |request: pb::PauseQueueRequest| {
        let mut admin = world.admin();
        let asked = world.organizer.ask(request);
        async move { admin.pause_queue(asked).await.map(|answer| answer.into_inner().queue.unwrap()) }
    };
    let first = pause(request.clone()).await.unwrap();
    world.resume(&event).await.unwrap();
    assert_eq!(pause(request.clone()).await.unwrap(), first);
    world.wait_for_state(&event, QueueState::Open).await;
    let other = pb::PauseQueueRequest { joins_paused: false, ..request };
    refused(pause(other).await, Code::InvalidArgument, "REQUEST_ID_REUSED");
}

#[tokio::test]
async fn close_names_the_sectors_with_free_units() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.inventory.set_free(12);
    let close = |sectors: Vec<String>| {
        let request = pb::CloseQueueRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.clone(),
            remaining_sector_ids: sectors,
            notice: "try the north stand".to_owned(),
            ..pb::CloseQueueRequest::default()
        };
        let mut admin = world.admin();
        let asked = world.organizer.ask(request);
        async move { admin.close_queue(asked).await.map(|answer| answer.into_inner().queue.unwrap()) }
    };
    let unknown = close(vec![Uuid::now_v7().to_string()]).await;
    refused(unknown, Code::InvalidArgument, "FIELDS_INVALID");
    let queue = close(vec![sector_of(&event)]).await.unwrap();
    assert_eq!((queue.close_reason(), queue.notice.as_str()), (CloseReason::SoldOut, "try the north stand"));
    let sector = &queue.remaining_sectors[0];
    assert_eq!((sector.name.as_str(), sector.free_count), ("North", 12));
}

#[tokio::test]
async fn all_violations_of_a_policy_are_reported() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let update = |policy: pb::QueuePolicy, paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let request = pb::UpdateQueuePolicyRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.clone(),
            policy: Some(policy),
            update_mask: Some(prost_types::FieldMask { paths }),
        };
        let mut admin = world.admin();
        let asked = world.organizer.ask(request);
        async move { admin.update_queue_policy(asked).await }
    };
    let second = prost_types::Duration { seconds: 1, nanos: 0 };
    let bad = pb::QueuePolicy {
        mode: 3,
        admissions_per_minute: 1_000_001,
        open_turns_max: 1_000_001,
        turn_duration: Some(second),
        idle_timeout: Some(second),
        waiting_max: 100_000_001,
        milestones: vec![10, 10],
        window_size: 1_000_001,
        active_windows: 1_001,
        slide_interval: Some(prost_types::Duration { seconds: 3_601, nanos: 0 }),
    };
    let details = refused(update(bad, &[]).await, Code::InvalidArgument, "FIELDS_INVALID");
    assert_eq!(details.bad_request().unwrap().field_violations.len(), 10);
    for (policy, path) in [
        (pb::QueuePolicy { milestones: vec![10, 100], ..Default::default() }, "milestones"),
        (pb::QueuePolicy { milestones: vec![10, 0], ..Default::default() }, "milestones"),
        (pb::QueuePolicy { milestones: (1..=11).rev().collect(), ..Default::default() }, "milestones"),
        (pb::QueuePolicy::default(), "window_size"),
        (pb::QueuePolicy::default(), "active_windows"),
        (
            pb::QueuePolicy {
                slide_interval: Some(prost_types::Duration { seconds: 0, nanos: 999_999_999 }),
                ..Default::default()
            },
            "slide_interval",
        ),
    ] {
        refused(update(policy, &[path]).await, Code::InvalidArgument, "FIELDS_INVALID");
    }
    let unknown = update(pb::QueuePolicy::default(), &["speed"]).await;
    refused(unknown, Code::InvalidArgument, "FIELDS_INVALID");
    let minute = prost_types::Duration { seconds: 60, nanos: 0 };
    let set = pb::QueuePolicy { turn_duration: Some(minute), waiting_max: 5, ..Default::default() };
    let queue = update(set, &[]).await.unwrap().into_inner().queue.unwrap();
    let policy = queue.policy.unwrap();
    assert_eq!((policy.turn_duration, policy.waiting_max), (Some(minute), 5));
    assert_eq!((policy.admissions_per_minute, policy.open_turns_max), (3_000, 1_000));
    // A field that the mask names without a value is reset to the default.
    let queue = world.update_policy(&event, pb::QueuePolicy::default(), &["turn_duration"]).await;
    assert_eq!(queue.policy.unwrap().turn_duration.unwrap().seconds, 20 * 60);
}

#[tokio::test]
async fn line_settings_can_be_changed_and_are_shown() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let second = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let default = world.update_policy(&event, pb::QueuePolicy::default(), &[]).await.policy.unwrap();
    assert_eq!(
        (default.mode(), default.milestones.as_slice()),
        (pb::QueueMode::Tracked, &[1_000, 100, 10][..])
    );
    assert_eq!((default.window_size, default.active_windows), (1_000, 3));
    assert_eq!(default.slide_interval, second(10));
    let wanted = pb::QueuePolicy {
        mode: pb::QueueMode::Windowed.into(),
        milestones: vec![50, 5],
        window_size: 7,
        active_windows: 2,
        slide_interval: second(3),
        ..default.clone()
    };
    let set = world.update_policy(&event, wanted.clone(), &[]).await.policy.unwrap();
    assert_eq!(set, wanted);
    // Fields that the mask names without a value: no milestones, the default interval, the default mode.
    let empty = world
        .update_policy(&event, pb::QueuePolicy::default(), &["milestones", "slide_interval", "mode"])
        .await;
    let empty = empty.policy.unwrap();
    assert_eq!((empty.mode(), empty.milestones.len()), (pb::QueueMode::Tracked, 0));
    assert_eq!((empty.slide_interval, empty.window_size), (second(10), 7));
}

#[tokio::test]
async fn mode_is_fixed_after_the_first_join() {
    let world = World::start().await;
    let event = world.open_queue().await;
    world.join_all(1, &event).await;
    let set_mode = |mode: pb::QueueMode| {
        let request = pb::UpdateQueuePolicyRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.clone(),
            policy: Some(pb::QueuePolicy { mode: mode.into(), ..Default::default() }),
            update_mask: None,
        };
        let mut admin = world.admin();
        let asked = world.organizer.ask(request);
        async move { admin.update_queue_policy(asked).await }
    };
    let details =
        refused(set_mode(pb::QueueMode::Windowed).await, Code::FailedPrecondition, "QUEUE_MODE_FIXED");
    assert_eq!(fact(&details, "mode").as_deref(), Some("TRACKED"));
    set_mode(pb::QueueMode::Tracked).await.unwrap();
}
