//! WINDOWED queues: numbers are given out in order of arrival, and the state of an entry follows from its number.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use onsale_proto::{
    claim::v1::ReleaseReason,
    events::v1::{ClaimReleased, OrderCompleted},
    queue::v1::{self as pb, EntryState, ExpireReason, queue_update::Update},
};
use onsale_testkit::wait_until;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::{
    support::watcher::Watcher,
    support::{Person, SOON, World, fact, refused, summary},
};

/// A customer with a number.
struct Holder {
    person: Person,
    token: String,
    seq: u64,
}

/// Creates an open WINDOWED queue with windows of this size and no free units, so that nothing slides until the test sets some.
async fn windowed_queue(world: &World, window_size: u32, active_windows: u32) -> String {
    let event = world.open_queue().await;
    let policy = pb::QueuePolicy {
        mode: pb::QueueMode::Windowed.into(),
        window_size,
        active_windows,
        ..pb::QueuePolicy::default()
    };
    world.update_policy(&event, policy, &[]).await;
    event
}

async fn quick_world() -> World {
    World::start_with(&[("POLICY__SLIDE_INTERVAL", "300ms")]).await
}

async fn join_all(world: &World, count: usize, event: &str) -> Vec<Holder> {
    let mut holders = Vec::new();
    for _ in 0..count {
        let person = world.customer();
        let joined = world.join(&person, event).await.unwrap();
        let seq = joined.standing.unwrap().entry.unwrap().seq;
        holders.push(Holder { person, token: joined.queue_token, seq });
    }
    holders
}

async fn ask(world: &World, person: &Person, event: &str, token: &str) -> Result<pb::Standing, Status> {
    let request = pb::GetPositionRequest { event_id: event.to_owned(), queue_token: token.to_owned() };
    Ok(world.customers().get_position(person.ask(request)).await?.into_inner().standing.unwrap())
}

async fn standing(world: &World, holder: &Holder, event: &str) -> pb::Standing {
    ask(world, &holder.person, event, &holder.token).await.unwrap()
}

async fn state(world: &World, holder: &Holder, event: &str) -> EntryState {
    standing(world, holder, event).await.entry.unwrap().state()
}

async fn until(world: &World, holder: &Holder, event: &str, wanted: EntryState) -> pb::Standing {
    wait_until(&format!("number {} is {wanted:?}", holder.seq), SOON, || async {
        state(world, holder, event).await == wanted
    })
    .await;
    standing(world, holder, event).await
}

async fn validate(world: &World, holder: &Holder, event: &str) -> Result<pb::ValidateTurnResponse, Status> {
    let request = pb::ValidateTurnRequest {
        event_id: event.to_owned(),
        customer_id: holder.person.customer_id(),
        fencing_number: holder.seq,
    };
    Ok(world.internal().validate_turn(world.as_claim(request)).await?.into_inner())
}

async fn complete(
    world: &World,
    holder: &Holder,
    event: &str,
    claim: &str,
) -> Result<Option<pb::Entry>, Status> {
    let request = pb::CompleteTurnRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.to_owned(),
        customer_id: holder.person.customer_id(),
        fencing_number: holder.seq,
        claim_id: claim.to_owned(),
    };
    Ok(world.internal().complete_turn(world.as_claim(request)).await?.into_inner().entry)
}

async fn line(world: &World, event: &str, column: &str) -> i64 {
    let sql = match column {
        "last_seq" => "SELECT last_seq FROM line WHERE event_id = $1",
        "last_admitted_seq" => "SELECT last_admitted_seq FROM line WHERE event_id = $1",
        "last_fencing_number" => "SELECT last_fencing_number FROM line WHERE event_id = $1",
        "waiting_count" => "SELECT waiting_count FROM line WHERE event_id = $1",
        "completed_count" => "SELECT completed_count FROM line WHERE event_id = $1",
        _ => unreachable!("{column}"),
    };
    world.count(sql, &[&Uuid::parse_str(event).unwrap()]).await
}

#[tokio::test]
async fn thousand_joins_on_two_pods_get_every_number_once() {
    let world = World::start().await;
    let pod = world.pod().await;
    let event = windowed_queue(&world, 10, 1).await;
    let clients = [world.customers(), pod.customers().await];
    let joins = (0..1_000_usize).map(|place| {
        let (mut client, event_id) = (clients[place % 2].clone(), event.clone());
        let person = if place % 2 == 0 { world.customer() } else { pod.customer() };
        async move {
            let request_id = Uuid::now_v7().to_string();
            let request = pb::JoinQueueRequest { request_id, event_id, ..Default::default() };
            let joined = client.join_queue(person.ask(request)).await.unwrap().into_inner();
            let standing = joined.standing.unwrap();
            let entry = standing.entry.unwrap();
            assert_eq!((entry.state(), standing.position), (EntryState::Waiting, entry.seq));
            entry.seq
        }
    });
    let seqs: Vec<u64> = stream::iter(joins).buffer_unordered(64).collect().await;
    assert_eq!(seqs.into_iter().collect::<BTreeSet<_>>(), (1..=1_000).collect::<BTreeSet<_>>());
    assert_eq!(
        (line(&world, &event, "last_seq").await, line(&world, &event, "waiting_count").await),
        (1_000, 1_000)
    );
    assert_eq!(world.count("SELECT count(*) FROM entry", &[]).await, 0);
}

#[tokio::test]
async fn numbers_follow_arrival_and_a_repeat_gets_a_new_one() {
    let world = World::start().await;
    let event = windowed_queue(&world, 10, 1).await;
    let person = world.customer();
    let request = pb::JoinQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        ..pb::JoinQueueRequest::default()
    };
    let mut before = None;
    for expected in 1..=3 {
        let joined = world.customers().join_queue(person.ask(request.clone())).await.unwrap().into_inner();
        let standing = joined.standing.unwrap();
        assert_eq!((standing.entry.as_ref().unwrap().seq, standing.position), (expected, expected));
        let asked = ask(&world, &person, &event, &joined.queue_token).await.unwrap();
        assert_eq!(asked.entry, standing.entry);
        let range = asked.estimate.unwrap();
        assert!(range.wait_min.unwrap().seconds <= range.wait_max.unwrap().seconds);
        assert_ne!(before.replace(standing.entry.unwrap().entry_id), asked.entry.map(|entry| entry.entry_id));
    }
    wait_until("the public facts say so", SOON, || async {
        let facts = world.snapshot(&event).await.unwrap();
        facts.mode() == pb::QueueMode::Windowed && facts.waiting_count == 3
    })
    .await;
}

#[tokio::test]
async fn window_slides_in_order_up_to_the_last_number() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 2, 1).await;
    let holders = join_all(&world, 5, &event).await;
    assert_eq!(standing(&world, &holders[4], &event).await.position, 5);
    world.inventory.set_free(1);
    let active = until(&world, &holders[4], &event, EntryState::Admitted).await;
    let turn = active.turn.unwrap();
    assert_eq!((turn.fencing_number, active.position), (5, 0));
    let token = world.read_turn(&turn.token);
    assert_eq!((token.claims.fencing_number, token.subject), (5, holders[4].person.customer_id()));
    assert_eq!(token.claims.entry_id, active.entry.unwrap().entry_id);
    // The newest two are active after any number of slides.
    let mut states = Vec::new();
    for holder in &holders {
        states.push(state(&world, holder, &event).await);
    }
    use EntryState::{Admitted, Expired};
    assert_eq!(states, [Expired, Expired, Expired, Admitted, Admitted]);
    let expired = standing(&world, &holders[0], &event).await.entry.unwrap();
    assert_eq!(expired.expire_reason(), ExpireReason::TurnExpired);
    assert!(expired.end_time.is_some());
    // Without new customers nothing slides and active entries stay active, while another queue slides on.
    let other = windowed_queue(&world, 1, 1).await;
    let others = join_all(&world, 3, &other).await;
    until(&world, &others[2], &other, EntryState::Admitted).await;
    assert_eq!(line(&world, &event, "last_admitted_seq").await, 5);
    assert_eq!(state(&world, &holders[3], &event).await, EntryState::Admitted);
    // One new customer makes the window slide by one.
    let last = join_all(&world, 1, &event).await;
    until(&world, &last[0], &event, EntryState::Admitted).await;
    assert_eq!(state(&world, &holders[3], &event).await, EntryState::Expired);
    assert_eq!(state(&world, &holders[4], &event).await, EntryState::Admitted);
    for (column, expected) in [("last_admitted_seq", 6), ("last_fencing_number", 6), ("waiting_count", 0)] {
        assert_eq!(line(&world, &event, column).await, expected, "{column}");
    }
}

#[tokio::test]
async fn slide_is_bounded_by_the_window_and_the_rate() {
    let world =
        World::start_with(&[("POLICY__ADMISSIONS_PER_MINUTE", "60"), ("POLICY__SLIDE_INTERVAL", "1s")]).await;
    let event = windowed_queue(&world, 2, 1_000).await;
    // One admission a second, at most three seconds' worth plus one saved up, and windows of two.
    let holders = join_all(&world, 12, &event).await;
    world.inventory.set_free(1_000);
    let begin = tokio::time::Instant::now();
    until(&world, &holders[9], &event, EntryState::Admitted).await;
    assert!(begin.elapsed() >= std::time::Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn pause_stops_the_window_and_not_the_joins() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 1, 5).await;
    world.pause(&event, false).await;
    world.inventory.set_free(1_000);
    let holders = join_all(&world, 2, &event).await;
    let other = windowed_queue(&world, 1, 1).await;
    let others = join_all(&world, 2, &other).await;
    // The other queue has slid twice, this one has not.
    until(&world, &others[1], &other, EntryState::Admitted).await;
    let waiting = standing(&world, &holders[1], &event).await;
    assert_eq!(
        (waiting.position, waiting.queue_state(), waiting.estimate),
        (2, pb::QueueState::Paused, None)
    );
    world.resume(&event).await.unwrap();
    until(&world, &holders[1], &event, EntryState::Admitted).await;
    world.pause(&event, true).await;
    refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_PAUSED");
    assert_eq!(line(&world, &event, "last_seq").await, 2);
}

#[tokio::test]
async fn window_does_not_slide_without_free_units() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 5, 5).await;
    let holders = join_all(&world, 1, &event).await;
    world.inventory.set_down(true);
    world.inventory.set_free(1);
    assert_eq!(standing(&world, &holders[0], &event).await.position, 1);
    world.inventory.set_down(false);
    until(&world, &holders[0], &event, EntryState::Admitted).await;
}

#[tokio::test]
async fn windowed_queue_accepts_only_genuine_tokens_of_the_caller() {
    let world = World::start_with(&[("TURNS__QUEUE_TOKEN_LIFETIME", "3s")]).await;
    let event = windowed_queue(&world, 10, 1).await;
    let holders = join_all(&world, 2, &event).await;
    let (first, second) = (&holders[0], &holders[1]);
    let missing = ask(&world, &first.person, &event, "").await;
    refused(missing, Code::FailedPrecondition, "QUEUE_TOKEN_REQUIRED");
    let heartbeat = pb::HeartbeatRequest { event_id: event.clone(), queue_token: String::new() };
    let missing = world.customers().heartbeat(first.person.ask(heartbeat)).await;
    refused(missing, Code::FailedPrecondition, "QUEUE_TOKEN_REQUIRED");
    refused(
        world.watch(&first.person, &event).await.map(|_| ()),
        Code::FailedPrecondition,
        "QUEUE_TOKEN_REQUIRED",
    );
    let other = windowed_queue(&world, 10, 1).await;
    // The number of another customer in a genuine token of the caller.
    let (head, body) = (first.token.rsplit_once('.').unwrap().0, second.token.rsplit_once('.').unwrap().1);
    let forged = format!("{head}.{body}");
    for (token, event) in [
        (&second.token, &event),
        (&first.token, &other),
        (&forged, &event),
        (&"nonsense".to_owned(), &event),
        (&"x".repeat(1_000_000), &event),
    ] {
        refused(
            ask(&world, &first.person, event, token).await,
            Code::PermissionDenied,
            "QUEUE_TOKEN_INVALID",
        );
    }
    let heartbeat = pb::HeartbeatRequest { event_id: event.clone(), queue_token: first.token.clone() };
    let answer = world.customers().heartbeat(first.person.ask(heartbeat)).await.unwrap().into_inner();
    assert_eq!(answer.standing.unwrap().position, 1);
    wait_until("the token is too old", SOON, || async {
        ask(&world, &first.person, &event, &first.token).await.is_err()
    })
    .await;
    let old = ask(&world, &first.person, &event, &first.token).await;
    refused(old, Code::PermissionDenied, "QUEUE_TOKEN_INVALID");
}

#[tokio::test]
async fn active_entry_is_used_for_one_purchase() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 1, 3).await;
    let holders = join_all(&world, 5, &event).await;
    // A number that still waits, and one that was never given out.
    refused(validate(&world, &holders[0], &event).await, Code::NotFound, "ENTRY_NOT_FOUND");
    let stranger = Holder { person: world.customer(), token: String::new(), seq: 99 };
    refused(validate(&world, &stranger, &event).await, Code::NotFound, "ENTRY_NOT_FOUND");
    let claim = Uuid::now_v7().to_string();
    refused(complete(&world, &stranger, &event, &claim).await, Code::NotFound, "ENTRY_NOT_FOUND");
    world.inventory.set_free(1_000);
    let active = until(&world, &holders[4], &event, EntryState::Admitted).await;
    let valid = validate(&world, &holders[4], &event).await.unwrap();
    assert_eq!(valid.entry_id, active.entry.unwrap().entry_id);
    // A purchase that began in time may take a whole turn.
    assert!(valid.expire_time.unwrap().seconds >= active.turn.unwrap().expire_time.unwrap().seconds + 60);
    assert_eq!(complete(&world, &holders[4], &event, &claim).await.unwrap(), None);
    assert_eq!(complete(&world, &holders[4], &event, &claim).await.unwrap(), None);
    let other = complete(&world, &holders[4], &event, &Uuid::now_v7().to_string()).await;
    refused(other, Code::FailedPrecondition, "TURN_ENDED");
    let details =
        refused(validate(&world, &holders[4], &event).await, Code::FailedPrecondition, "TURN_ENDED");
    assert_eq!(fact(&details, "state").as_deref(), Some("COMPLETED"));
    // A passed entry is refused for a new purchase and completes the one under way.
    let details =
        refused(validate(&world, &holders[0], &event).await, Code::FailedPrecondition, "TURN_EXPIRED");
    assert!(fact(&details, "expire_time").is_some());
    complete(&world, &holders[0], &event, &Uuid::now_v7().to_string()).await.unwrap();
    assert_eq!(line(&world, &event, "completed_count").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM used_ticket", &[]).await, 2);
}

#[tokio::test]
async fn claim_events_use_an_entry_once_and_end_none() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 5, 3).await;
    let holders = join_all(&world, 2, &event).await;
    world.inventory.set_free(1_000);
    until(&world, &holders[1], &event, EntryState::Admitted).await;
    let claim_id = Uuid::now_v7().to_string();
    let released = ClaimReleased {
        claim_id: claim_id.clone(),
        event: Some(summary(&event)),
        customer_id: holders[1].person.customer_id(),
        fencing_number: holders[1].seq,
        reason: ReleaseReason::Expired.into(),
        ..ClaimReleased::default()
    };
    world.say(&claim_id, &released).await;
    let completed = OrderCompleted {
        claim_id: claim_id.clone(),
        event: Some(summary(&event)),
        customer_id: holders[0].person.customer_id(),
        fencing_number: holders[0].seq,
        ..OrderCompleted::default()
    };
    world.say(&claim_id, &completed).await;
    world.say(&claim_id, &completed).await;
    wait_until("all are handled", SOON, || async {
        world.count("SELECT count(*) FROM inbox WHERE consumer LIKE '%'", &[]).await >= 5
    })
    .await;
    assert_eq!(world.count("SELECT count(*) FROM used_ticket", &[]).await, 1);
    assert_eq!(line(&world, &event, "completed_count").await, 1);
    // A released claim does not use the entry.
    validate(&world, &holders[1], &event).await.unwrap();
    refused(validate(&world, &holders[0], &event).await, Code::FailedPrecondition, "TURN_ENDED");
}

#[tokio::test]
async fn leave_changes_nothing_and_a_final_close_is_sent() {
    let world = World::start_with(&[("POLICY__WAITING_MAX", "1")]).await;
    let event = windowed_queue(&world, 5, 3).await;
    // There is no limit on waiting entries.
    let holders = join_all(&world, 2, &event).await;
    let request = pb::LeaveQueueRequest { request_id: Uuid::now_v7().to_string(), event_id: event.clone() };
    let left = world.customers().leave_queue(holders[0].person.ask(request)).await.unwrap().into_inner();
    assert_eq!(left.entry, None);
    assert_eq!(standing(&world, &holders[0], &event).await.position, 1);
    world.close(&event, pb::CloseReason::Ended).await.unwrap();
    let entry = standing(&world, &holders[0], &event).await.entry.unwrap();
    assert_eq!((entry.state(), entry.expire_reason()), (EntryState::Expired, ExpireReason::QueueClosed));
    refused(world.join(&world.customer(), &event).await, Code::FailedPrecondition, "QUEUE_CLOSED");
}

#[tokio::test]
async fn watcher_is_notified_when_its_number_becomes_active_and_expires() {
    let world = quick_world().await;
    let event = windowed_queue(&world, 1, 1).await;
    let holders = join_all(&world, 3, &event).await;
    let watch = |holder: &Holder| {
        let request = pb::WatchQueueRequest {
            event_id: event.clone(),
            queue_token: holder.token.clone(),
            last_revision: 0,
        };
        let request = holder.person.ask(request);
        let mut customers = world.customers();
        async move { customers.watch_queue(request).await.map(|answer| Watcher::new(answer.into_inner(), 0)) }
    };
    let mut first = watch(&holders[0]).await.unwrap();
    let mut last = watch(&holders[2]).await.unwrap();
    first.until_position(1).await;
    last.until_position(3).await;
    world.inventory.set_free(10);
    assert_eq!(first.until_turn().await.fencing_number, 1);
    last.until_position(2).await;
    let expired = first
        .until(|update| match update {
            Update::EntryExpired(expired) => Some(expired.reason()),
            _ => None,
        })
        .await;
    assert_eq!(expired, ExpireReason::TurnExpired);
    assert_eq!(last.until_turn().await.fencing_number, 3);
    // A stream that opens now gets the same, and one without a token is refused.
    let mut late = watch(&holders[2]).await.unwrap();
    assert_eq!(late.until_turn().await.fencing_number, 3);
    let nobody = Holder { person: world.customer(), token: String::new(), seq: 0 };
    refused(watch(&nobody).await.map(|_| ()), Code::FailedPrecondition, "QUEUE_TOKEN_REQUIRED");
}
