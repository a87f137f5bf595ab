//! Open streams: which messages are sent and how often, slow readers, and the end of streams when a pod stops.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use onsale_proto::queue::v1::{self as pb, queue_service_client::QueueServiceClient, queue_update::Update};
use onsale_testkit::wait_until;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, transport::Endpoint};
use tonic_types::StatusExt;

use crate::{
    crowd::{Door, Watchers, join_at_once},
    support::watcher::Watcher,
    support::{Person, SOON, World, refused},
};

/// Long enough for sent messages to arrive.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Reads the messages that arrive shortly.
async fn heard(watcher: &mut Watcher) -> Vec<Update> {
    let mut heard = Vec::new();
    let end = Instant::now() + A_MOMENT;
    while let Ok(Some(update)) = timeout_at(end, watcher.read()).await {
        heard.push(update.unwrap());
    }
    heard
}

/// Opens the stream of a client with a tiny receive buffer.
async fn watch_narrowly(world: &World, person: &Person, event: &str) -> Watcher {
    let endpoint = Endpoint::from_shared(format!("http://{}", world.service.server.address())).unwrap();
    let channel = endpoint.initial_stream_window_size(16).connect().await.unwrap();
    let request = pb::WatchQueueRequest { event_id: event.to_owned(), ..pb::WatchQueueRequest::default() };
    let stream = QueueServiceClient::new(channel).watch_queue(person.ask(request)).await.unwrap();
    Watcher::new(stream.into_inner(), 0)
}

#[tokio::test]
async fn leave_moves_entries_behind_it_and_none_before_it() {
    let world = World::start_with(&[("POLICY__IDLE_TIMEOUT", "3s"), ("SWEEP__IDLE_INTERVAL", "100ms")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(4, &event).await;
    let mut front = world.watch(&people[0], &event).await.unwrap();
    let mut behind = world.watch(&people[3], &event).await.unwrap();
    front.until_position(1).await;
    behind.until_position(4).await;
    world.leave(&people[1], &event).await.unwrap();
    behind.until_position(3).await;
    // The third has had no heartbeat since it joined.
    behind.until_position(2).await;
    assert_eq!(heard(&mut front).await, []);
}

#[tokio::test]
async fn watcher_gets_moves_and_snapshots_with_the_right_counts() {
    let world = World::start_with(&[
        ("WATCH__MOVED_INTERVAL", "100ms"),
        ("WATCH__SNAPSHOT_INTERVAL", "300ms"),
        ("POLICY__OPEN_TURNS_MAX", "3"),
    ])
    .await;
    let event = world.open_queue().await;
    let people = world.join_all(6, &event).await;
    let mut watcher = world.watch(&people[5], &event).await.unwrap();
    watcher.until_position(6).await;
    world.inventory.set_free(1_000);
    let mut admitted = 0;
    while admitted < 3 {
        let moved = watcher.until(|update| match update {
            Update::QueueMoved(moved) => Some(*moved),
            _ => None,
        });
        let moved = moved.await;
        admitted += u64::from(moved.admitted_count);
        assert_eq!((moved.last_admitted_seq, moved.waiting_count), (admitted, 6 - admitted));
    }
    assert_eq!(admitted, 3);
    let facts = watcher.until(|update| match update {
        Update::QueueSnapshot(facts) => Some(facts.clone()).filter(|facts| facts.waiting_count == 3),
        _ => None,
    });
    let facts = facts.await;
    assert_eq!((facts.event_id.as_str(), facts.state()), (event.as_str(), pb::QueueState::Open));
    assert_eq!((facts.viewer_count, facts.admitted_last_minute), (1, 3));
    // The line no longer moves, so no message about moves follows.
    let is_moved = |update: &Update| matches!(update, Update::QueueMoved(_));
    assert!(!heard(&mut watcher).await.iter().any(is_moved));
}

#[tokio::test]
async fn position_is_sent_in_time_among_other_messages() {
    let world =
        World::start_with(&[("WATCH__POSITION_INTERVAL", "1s"), ("WATCH__SNAPSHOT_INTERVAL", "200ms")]).await;
    let event = world.open_queue().await;
    let person = world.join_all(1, &event).await.remove(0);
    let mut watcher = world.watch(&person, &event).await.unwrap();
    watcher.until_position(1).await;
    let mut facts = 0;
    for _ in 0..2 {
        loop {
            match watcher.next().await.expect("the stream goes on") {
                Update::PositionUpdate(_) => break,
                Update::QueueSnapshot(_) => facts += 1,
                other => panic!("{other:?}"),
            }
            assert!(facts < 40, "only facts are told, and no position");
        }
    }
    assert!(facts > 2);
}

#[tokio::test]
async fn every_watcher_gets_a_pause_while_the_line_moves() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 2).await];
    let members = join_at_once(&world, &doors, &event, 120).await;
    let mut watchers = Vec::new();
    for member in &members[60..] {
        let mut watcher = world.watch(&member.person, &event).await.unwrap();
        watcher.until_position(member.position).await;
        watchers.push(watcher);
    }
    for round in members[..60].chunks(6) {
        let leaves = round.iter().map(|member| world.leave(&member.person, &event));
        let (left, _) = tokio::join!(join_all(leaves), world.pause(&event, false));
        left.into_iter().for_each(|left| drop(left.unwrap()));
        let told = watchers
            .iter_mut()
            .map(|watcher| watcher.until(|update| matches!(update, Update::QueuePaused(_)).then_some(())));
        timeout(Duration::from_secs(5), join_all(told)).await.expect("the pause is told at once");
        world.resume(&event).await.unwrap();
        let told = watchers
            .iter_mut()
            .map(|watcher| watcher.until(|update| matches!(update, Update::QueueResumed(_)).then_some(())));
        timeout(Duration::from_secs(5), join_all(told)).await.expect("its end is told at once");
    }
}

#[tokio::test]
async fn slow_reader_delays_nobody_and_gets_the_newest_state() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(42, &event).await;
    let mut slow = watch_narrowly(&world, &people[41], &event).await;
    let mut quick = world.watch(&people[40], &event).await.unwrap();
    quick.until_position(41).await;
    for (person, position) in people[..40].iter().zip((1..=40).rev()) {
        world.leave(person, &event).await.unwrap();
        quick.until_position(position).await;
    }
    // Of forty changes it gets a few: those in flight before, and the newest.
    let mut positions = Vec::new();
    while positions.last() != Some(&2) {
        if let Update::PositionUpdate(update) = slow.next().await.expect("the stream goes on") {
            positions.push(update.position);
        }
    }
    assert!(positions.len() <= 4, "{positions:?}");
    assert!(positions.is_sorted_by(|one, other| one > other), "{positions:?}");
}

#[tokio::test]
async fn unread_stream_is_ended_and_a_read_stream_stays_open() {
    let world = World::start_with(&[("WATCH__SLOW_AFTER", "1s")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(7, &event).await;
    let mut slow = watch_narrowly(&world, &people[6], &event).await;
    let mut quick = world.watch(&people[5], &event).await.unwrap();
    quick.until_position(6).await;
    // The first messages may be in flight; of four changes at least one stays unread.
    for (person, position) in people[..4].iter().zip([5, 4, 3, 2]) {
        world.leave(person, &event).await.unwrap();
        quick.until_position(position).await;
    }
    // This sleep is the time under test.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.leave(&people[4], &event).await.unwrap();
    quick.until_position(1).await;
    let begin = Instant::now();
    let status = slow.end().await;
    assert!(begin.elapsed() < Duration::from_secs(5), "as soon as it reads again: {:?}", begin.elapsed());
    let details = refused(Err::<(), _>(status), Code::Unavailable, "WATCHER_TOO_SLOW");
    assert!(details.retry_info().and_then(|info| info.retry_delay).is_some());
    let mut again = world.watch_from(&people[6], &event, slow.revision).await.unwrap();
    again.until_position(2).await;
}

#[tokio::test]
async fn stopping_pod_ends_streams_with_spread_retry_hints() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(20, &event).await;
    let mut watchers = Vec::new();
    for person in &people {
        let mut watcher = world.watch(person, &event).await.unwrap();
        assert!(watcher.next().await.is_some());
        watchers.push(watcher);
    }
    let World { service, channel, .. } = world;
    let (drained, statuses) =
        tokio::join!(service.server.shutdown(), join_all(watchers.iter_mut().map(Watcher::end)));
    drop(channel);
    assert_eq!(drained.tasks_aborted, Vec::<&str>::new(), "{drained:?}");
    let mut hints = BTreeSet::new();
    for status in statuses {
        let hint = status.get_error_details().retry_info().and_then(|info| info.retry_delay);
        hints.insert(hint.expect("a hint when to come back"));
        refused(Err::<(), _>(status), Code::Unavailable, "DRAINING");
    }
    assert!(hints.len() > 10, "{hints:?}");
    assert!(hints.iter().all(|hint| *hint <= Duration::from_secs(3)), "{hints:?}");
}

#[tokio::test]
async fn thousand_ended_streams_leave_nothing_behind() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 4).await];
    let members = join_at_once(&world, &doors, &event, 1_000).await;
    let watchers = Watchers::open(&doors[0], &event, &members).await;
    let viewers = || async { world.snapshot(&event).await.unwrap().viewer_count };
    wait_until("all are counted", SOON, || async { viewers().await == 1_000 }).await;
    drop(watchers);
    wait_until("none is counted", SOON, || async { viewers().await == 0 }).await;
}
