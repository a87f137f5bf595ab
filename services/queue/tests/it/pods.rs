//! Two pods on the same stores: what happens on one is seen on the other, by the move log or without it.

use std::time::Duration;

use onsale_proto::{auth::v1::Role, queue::v1::queue_update::Update};
use tokio::time::{Instant, timeout};

use crate::{
    recovery::wipe,
    support::watcher::Watcher,
    support::{Person, World},
};

/// How soon another pod knows.
const AT_ONCE: Duration = Duration::from_secs(1);

/// On a machine that builds at the same time as it tests.
const GRACE: Duration = Duration::from_secs(2);

/// Reads until this position is told; answers how long it took.
async fn hears(watcher: &mut Watcher, position: u64) -> Duration {
    let begin = Instant::now();
    let heard = timeout(AT_ONCE + GRACE, watcher.until_position(position)).await;
    heard.unwrap_or_else(|_| panic!("position {position} is not heard of on the other pod"));
    begin.elapsed()
}

#[tokio::test]
async fn who_watches_on_another_pod_hears_of_every_step_even_when_the_log_is_lost() {
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
    // A new log that begins with the next step; and one that is lost again right after it.
    wipe(&world, &event).await;
    world.leave(&people[3], &event).await.unwrap();
    slowest = slowest.max(hears(&mut watcher, 4).await);
    world.leave(&people[4], &event).await.unwrap();
    wipe(&world, &event).await;
    slowest = slowest.max(hears(&mut watcher, 3).await);
    println!("a step was seen on the other pod after {slowest:?} at most");
    // Who joins on one pod watches on the other at once.
    let late = world.join_all(1, &event).await.remove(0).known_to(&pod, Role::Customer);
    let mut late = late.watch(&channel, &event, 0).await.unwrap();
    let Some(Update::PositionUpdate(first)) = late.next().await else { panic!("a position comes first") };
    assert_eq!((first.seq, first.position), (9, 4));
}

#[tokio::test]
async fn a_turn_granted_or_ended_by_one_pod_is_told_on_the_other() {
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
async fn coming_back_on_another_pod_never_shows_an_older_truth() {
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
        // Everybody who has left has been answered: the truth can be no worse.
        assert_eq!(first.position, 23 - u64::try_from(round).unwrap(), "round {round}");
        assert!(watcher.revision >= revision);
        revision = watcher.revision;
    }
}
