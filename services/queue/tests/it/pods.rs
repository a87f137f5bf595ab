//! Two pods on the same stores: changes on one pod reach the watchers of the other, by the move log or without it.

use std::time::Duration;

use onsale_proto::{auth::v1::Role, queue::v1::queue_update::Update};
use tokio::time::{Instant, timeout};

use crate::{
    recovery::wipe,
    support::watcher::Watcher,
    support::{Person, World},
};

/// Longest time until another pod has a change.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The bound for a machine that compiles during the test.
const GRACE: Duration = Duration::from_secs(2);

/// Reads until the watcher gets this position; returns the time it took.
async fn hears(watcher: &mut Watcher, position: u64) -> Duration {
    let begin = Instant::now();
    let heard = timeout(AT_ONCE + GRACE, watcher.until_position(position)).await;
    heard.unwrap_or_else(|_| panic!("position {position} is not heard of on the other pod"));
    begin.elapsed()
}

#[tokio::test]
async fn watcher_on_another_pod_gets_every_step_even_without_the_log() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let pod = world.another_pod().await;
    let channel = pod.channel().await.unwrap();
    let people = world.join_all(8, &event).await;
    let last = people[7].known_to(&pod, Role::Customer);
    let mut watcher = last.watch(&channel, &event, 0).await.unwrap();
    hears(&mut watcher, 8).await;
    let mut slowest = Duration::ZERO;
    for (person, position) in people[..3].iter().zip([7, 6, 5]) {
        world.leave(person, &event).await.unwrap();
        slowest = slowest.max(hears(&mut watcher, position).await);
    }
    // A new log that begins with the next change, and one that is lost right after it.
    wipe(&world, &event).await;
    world.leave(&people[3], &event).await.unwrap();
    slowest = slowest.max(hears(&mut watcher, 4).await);
    world.leave(&people[4], &event).await.unwrap();
    wipe(&world, &event).await;
    slowest = slowest.max(hears(&mut watcher, 3).await);
    println!("a step was seen on the other pod after {slowest:?} at most");
    // A customer who joins on one pod can watch on the other immediately.
    let late = world.join_all(1, &event).await.remove(0).known_to(&pod, Role::Customer);
    let mut late = late.watch(&channel, &event, 0).await.unwrap();
    let Some(Update::PositionUpdate(first)) = late.next().await else { panic!("a position comes first") };
    assert_eq!((first.seq, first.position), (9, 4));
}

#[tokio::test]
async fn turn_granted_or_ended_on_one_pod_is_sent_on_the_other() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let pod = world.another_pod().await;
    let (here, there) = (world.channel.clone(), pod.channel().await.unwrap());
    let person = world.join_all(1, &event).await.remove(0);
    let elsewhere = person.known_to(&pod, Role::Customer);
    let mut phone = person.watch(&here, &event, 0).await.unwrap();
    let mut laptop = elsewhere.watch(&there, &event, 0).await.unwrap();
    phone.until_position(1).await;
    laptop.until_position(1).await;
    world.inventory.set_free(1);
    let turn = phone.until_turn().await;
    assert_eq!(laptop.until_turn().await, turn, "equal facts make equal tokens, on whichever pod");
    elsewhere.leave(&there, &event).await.unwrap();
    for watcher in [&mut phone, &mut laptop] {
        watcher.until(|update| matches!(update, Update::EntryExpired(_)).then_some(())).await;
        assert_eq!(watcher.next().await, None);
    }
}

#[tokio::test]
async fn reconnect_on_another_pod_never_shows_an_older_state() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let pod = world.another_pod().await;
    let (here, there) = (world.channel.clone(), pod.channel().await.unwrap());
    let mut people = world.join_all(24, &event).await;
    let last = people.pop().unwrap();
    let elsewhere = last.known_to(&pod, Role::Customer);
    let doors: [(&Person, _); 2] = [(&last, &here), (&elsewhere, &there)];
    let mut revision = 0;
    for (round, gone) in people.iter().enumerate() {
        gone.leave(&here, &event).await.unwrap();
        if round % 8 == 7 {
            wipe(&world, &event).await;
        }
        let (person, channel) = doors[round % 2];
        let mut watcher = person.watch(channel, &event, revision).await.unwrap();
        let Some(Update::PositionUpdate(first)) = watcher.next().await else {
            panic!("a position comes first")
        };
        // Every leave has returned, so no position can be higher than this.
        assert_eq!(first.position, 23 - u64::try_from(round).unwrap(), "round {round}");
        assert!(watcher.revision >= revision);
        revision = watcher.revision;
    }
}
