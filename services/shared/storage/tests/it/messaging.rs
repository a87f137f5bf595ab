//! Events from outbox to inbox without faults in the stores, and with failing handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onsale_kit::tasks::Tasks;
use onsale_kit::telemetry::propagation::{CallContext, TraceContext};
use onsale_kit::worker::Condition;
use onsale_storage::messaging::{
    Consumer, ConsumerConfig, Error, Handler, HandlerError, Message, NewEvent, OutgoingEvent, RelayConfig,
};
use onsale_storage::postgres::{self, Transaction};
use onsale_storage::redis::StreamId;
use onsale_testkit::wait_until;
use onsale_types::{Clock as _, ManualClock, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::events::{
    Apply, GROUP, Guarded, NumberAdded, SOON, Slow, World, calls, consumer_config, refused, relay_config,
    retry,
};

#[tokio::test]
async fn event_takes_effect_only_if_its_transaction_commits() {
    let mut world = World::new().await;
    let outbox = &world.outbox;
    let never: Result<(), postgres::Error> = world
        .postgres
        .transaction("fails", |transaction| async move {
            outbox.append(&transaction, &[NewEvent::new("k", &NumberAdded { number: 1 })]).await?;
            Err(refused())
        })
        .await;
    assert!(never.is_err());
    world.produce("k", [2, 3]).await;
    world.start(Apply);
    world.wait_for_effects(2).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [2, 3]);
    assert_eq!(world.positions().await, [1, 2]);
}

/// Domain event that the outbox encodes.
struct DomainNumber(i64);

impl OutgoingEvent for DomainNumber {
    fn to_new_event(&self) -> NewEvent {
        NewEvent::new(self.0, &NumberAdded { number: self.0 })
    }
}

#[tokio::test]
async fn outbox_encodes_domain_events() {
    let mut world = World::new().await;
    let outbox = &world.outbox;
    let events = &[DomainNumber(7), DomainNumber(8)];
    world
        .postgres
        .transaction("note", |transaction| async move { outbox.append(&transaction, events).await })
        .await
        .unwrap();
    world.start(Apply);
    world.wait_for_effects(2).await;
    let mut effects = world.effects().await;
    effects.sort_unstable();
    assert_eq!(effects, [7, 8]);
}

#[tokio::test]
async fn two_relays_publish_each_event_once_and_in_order() {
    let world = World::new().await;
    for _ in 0..2 {
        world.start_relay();
    }
    let writers = (0..4).map(|writer| {
        let (postgres, outbox) = (world.postgres.clone(), world.outbox.clone());
        async move {
            for number in 0..50 {
                crate::events::produce(&postgres, &outbox, "k", [writer * 1_000 + number]).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;
    wait_until("all events are published", SOON, async || world.positions().await.len() == 200).await;
    assert_eq!(world.positions().await, (1..=200).collect::<Vec<_>>());
    let mut ids: Vec<_> = world.entries().await.iter().map(|it| it.field("id").unwrap().to_vec()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

#[tokio::test]
async fn relay_without_its_condition_publishes_nothing() {
    let world = World::new().await;
    let (leads, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let condition = {
        let (leads, looks) = (Arc::clone(&leads), Arc::clone(&looks));
        let is_leader = move || {
            looks.fetch_add(1, Ordering::Relaxed);
            leads.load(Ordering::Relaxed)
        };
        Condition::new(is_leader, futures_util::stream::empty())
    };
    world.produce("k", [1]).await;
    world.relay().start_while(condition, &Tasks::new());
    wait_until("the condition was checked often", SOON, async || looks.load(Ordering::Relaxed) > 3).await;
    assert!(world.positions().await.is_empty());
    leads.store(true, Ordering::Relaxed);
    wait_until("the event is published", SOON, async || world.positions().await == [1]).await;
}

#[tokio::test]
async fn failed_handler_is_rolled_back_and_retried() {
    let mut world = World::new().await;
    world.start(Guarded::new(|_, calls| if calls < 3 { Err(retry("not yet")) } else { Ok(()) }));
    world.produce("k", [1]).await;
    world.wait_for_effects(1).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [1]);
}

#[tokio::test]
async fn failing_event_delays_only_its_own_key() {
    let mut world = World::new().await;
    let is_repaired = Arc::new(AtomicBool::new(false));
    let config = ConsumerConfig { attempts_max: u32::MAX, ..consumer_config() };
    let handler = {
        let is_repaired = Arc::clone(&is_repaired);
        Guarded::new(move |number, _| match number {
            1 if !is_repaired.load(Ordering::Relaxed) => Err(retry("broken")),
            _ => Ok(()),
        })
    };
    world.produce("a", [1, 2, 3]).await;
    world.produce("b", [10, 11]).await;
    world.start_relay();
    world.start_consumer(world.consumer_with(config, handler));
    world.wait_for_effects(2).await;
    assert_eq!(world.effects().await, [10, 11]);
    is_repaired.store(true, Ordering::Relaxed);
    world.wait_for_effects(5).await;
    assert_eq!(world.effects().await, [10, 11, 1, 2, 3]);
}

#[tokio::test]
async fn poison_event_becomes_a_dead_letter_and_can_be_retried() {
    let mut world = World::new().await;
    let is_repaired = Arc::new(AtomicBool::new(false));
    let handler = {
        let is_repaired = Arc::clone(&is_repaired);
        Guarded::new(move |number, _| match number {
            2 if !is_repaired.load(Ordering::Relaxed) => Err(HandlerError::Poison("bad number".into())),
            _ => Ok(()),
        })
    };
    world.start(handler);
    let ids = world.produce("k", [1, 2, 3]).await;
    world.wait_for_letters(1).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [1, 3]);
    let letters = world.letters();
    let page = letters.list(None, 10).await.unwrap();
    let letter = &page.letters[0];
    assert_eq!((letter.event_id, letter.attempts, letter.position), (ids[1], 1, 2));
    assert!(letter.error.contains("bad number"), "{}", letter.error);

    // A retry before the cause is gone fails again and records its error.
    assert!(letters.retry(ids[1]).await.unwrap());
    wait_until("the retry failed", SOON, async || {
        let letter = &letters.list(None, 10).await.unwrap().letters[0];
        letter.attempts == 2 && !letter.is_retrying
    })
    .await;

    is_repaired.store(true, Ordering::Relaxed);
    assert!(letters.retry(ids[1]).await.unwrap());
    letters.retry(ids[1]).await.unwrap();
    world.wait_for_letters(0).await;
    assert!(!letters.retry(ids[1]).await.unwrap(), "a handled letter still exists");
    assert_eq!(world.effects().await, [1, 3, 2]);
}

#[tokio::test]
async fn failing_event_becomes_a_dead_letter_after_its_attempts() {
    let mut world = World::new().await;
    world.start(Guarded::new(|_, _| Err(retry("always"))));
    world.produce("k", [1]).await;
    world.wait_for_letters(1).await;
    world.wait_until_idle().await;
    assert_eq!(world.letters().list(None, 10).await.unwrap().letters[0].attempts, 4);
    assert!(world.effects().await.is_empty());
}

#[tokio::test]
async fn panicking_handler_counts_as_a_failed_attempt() {
    let mut world = World::new().await;
    world.start(Guarded::new(|number, _| if number == 1 { panic!("on purpose") } else { Ok(()) }));
    world.produce("k", [1, 2]).await;
    world.wait_for_letters(1).await;
    world.wait_for_effects(1).await;
    assert_eq!(world.effects().await, [2]);
}

#[tokio::test]
async fn unreadable_event_becomes_a_dead_letter_and_delays_no_other() {
    let mut world = World::new().await;
    let garbage: &[(&str, &[u8])] = &[("key", b"k"), ("envelope", &[0xff; 20])];
    world.stream(async |stream| stream.append(StreamId::new(1, 0), garbage).await).await.unwrap();
    let nothing: &[(&str, &[u8])] = &[("x", b"")];
    world.stream(async |stream| stream.append(StreamId::new(2, 0), nothing).await).await.unwrap();
    world.start_consumer(world.consumer(Apply));
    world.wait_for_letters(2).await;
    world.wait_until_idle().await;
}

#[tokio::test]
async fn dead_letters_are_paged_and_can_be_discarded() {
    let mut world = World::new().await;
    world.start(Guarded::new(|_, _| Err(HandlerError::Poison("all bad".into()))));
    let ids = world.produce("k", 0..5).await;
    world.wait_for_letters(5).await;
    let letters = world.letters();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = letters.list(after, 2).await.unwrap();
        seen.extend(page.letters.iter().map(|it| it.event_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    assert!(letters.discard(ids[0]).await.unwrap());
    assert!(!letters.discard(ids[0]).await.unwrap());
    world.wait_for_letters(4).await;
}

#[tokio::test]
async fn long_handler_keeps_its_event_by_heartbeats() {
    let mut world = World::new().await;
    // Long enough that a heartbeat arrives in time on a slow machine.
    let config = ConsumerConfig { claim_idle: Duration::from_millis(1_500), ..consumer_config() };
    // Several times the idle time after which others take over.
    let hold = config.claim_idle * 3;
    for _ in 0..2 {
        let handler = Slow { postgres: world.postgres.clone(), hold };
        world.start_consumer(world.consumer_with(config.clone(), handler));
    }
    world.start_relay();
    world.produce("k", [1]).await;
    world.wait_for_effects(1).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [1]);
    assert_eq!(calls(&world.postgres).await, 1);
}

#[tokio::test]
async fn stopping_consumer_finishes_running_events_and_releases_others() {
    let mut world = World::new().await;
    let config = ConsumerConfig {
        concurrency: 1,
        // Without the release, the second consumer would wait this long.
        claim_idle: Duration::from_secs(3_600),
        ..consumer_config()
    };
    world.produce("k", 0..5).await;
    world.relay().round().await.unwrap();
    let handler = Slow { postgres: world.postgres.clone(), hold: Duration::from_millis(300) };
    let shutdown = CancellationToken::new();
    let first = world.spawn(world.consumer_with(config.clone(), handler).run(shutdown.clone()));
    wait_until("the first event is handled", SOON, async || calls(&world.postgres).await == 1).await;
    shutdown.cancel();
    wait_until("the consumer ends", SOON, async || first.is_finished()).await;
    assert_eq!(world.effects().await, [0]);
    let pending = world.stream(async |it| it.pending(GROUP, StreamId::ZERO, 10).await).await.unwrap();
    assert_eq!(pending.len(), 4);
    assert!(pending.iter().all(|it| it.idle >= config.claim_idle), "{pending:?}");
    assert!(pending.iter().all(|it| it.deliveries == 0), "a delivery was counted: {pending:?}");
}

/// Handler that reports the trace in which it ran.
struct Traced(tokio::sync::mpsc::UnboundedSender<TraceContext>);

impl Handler for Traced {
    async fn handle(&self, _transaction: &Transaction, _message: &Message) -> Result<(), HandlerError> {
        let _ = self.0.send(CallContext::current().unwrap().trace);
        Ok(())
    }
}

#[tokio::test]
async fn event_is_handled_in_the_trace_of_its_cause() {
    let mut world = World::new().await;
    let (sender, mut traces) = tokio::sync::mpsc::unbounded_channel();
    let cause = TraceContext::root();
    CallContext { trace: cause, name: "test" }.scope(world.produce("k", [1])).await;
    world.start(Traced(sender));
    let seen = tokio::time::timeout(SOON, traces.recv()).await.unwrap().unwrap();
    assert_eq!(seen.trace_id().to_string(), cause.trace_id().to_string());
    assert_ne!(seen, cause, "the handler has a span of its own");
}

#[tokio::test]
async fn event_older_than_the_inbox_retention_is_not_handled() {
    let mut world = World::new().await;
    let config = consumer_config();
    let later = SystemClock.now().checked_add(config.inbox_retention + Duration::from_secs(60)).unwrap();
    let clock = Arc::new(ManualClock::new(later));
    let consumer =
        Consumer::new::<NumberAdded>(world.postgres.clone(), world.redis.clone(), clock, config, Apply)
            .unwrap();
    world.start_relay();
    world.start_consumer(consumer);
    world.produce("k", [1]).await;
    world.wait_for_letters(1).await;
    assert!(world.letters().list(None, 1).await.unwrap().letters[0].error.contains("older"));
    assert!(world.effects().await.is_empty());
}

#[tokio::test]
async fn events_stay_until_every_known_group_has_acknowledged_them() {
    let mut world = World::new().await;
    let config = RelayConfig { retention: Duration::ZERO, retain_every: Duration::ZERO, ..relay_config() };
    let relay = world.relay_with(config);
    world.stream(async |stream| stream.create_group("slow", StreamId::ZERO).await).await.unwrap();
    world.produce("k", 0..10).await;
    world.start_consumer(world.consumer(Apply));
    relay.round().await.unwrap();
    world.wait_for_effects(10).await;
    world.wait_until_idle().await;
    relay.round().await.unwrap();
    assert_eq!(world.positions().await.len(), 10, "one group has read no event");

    let read = world.stream(async |stream| stream.read_group("slow", "one", 5).await).await.unwrap();
    relay.round().await.unwrap();
    assert_eq!(world.positions().await.len(), 10, "read events are not acknowledged");

    let ids: Vec<_> = read.iter().map(|entry| entry.id).collect();
    world.stream(async |stream| stream.acknowledge("slow", &ids).await).await.unwrap();
    relay.round().await.unwrap();
    assert_eq!(world.positions().await, (6..=10).collect::<Vec<_>>());
    // New events continue from the last position.
    world.produce("k", [10]).await;
    relay.round().await.unwrap();
    assert_eq!(world.positions().await, (6..=11).collect::<Vec<_>>());
    world.wait_for_effects(11).await;
}

#[tokio::test]
async fn stream_ahead_of_its_outbox_stops_the_relay() {
    let world = World::new().await;
    let fields: &[(&str, &[u8])] = &[("x", b"")];
    world.stream(async |stream| stream.append(StreamId::new(5, 0), fields).await).await.unwrap();
    world.produce("k", [1]).await;
    let outcome = world.relay().round().await;
    assert!(matches!(outcome, Err(Error::StreamAhead { stream: 5, outbox: 1, .. })), "{outcome:?}");
}
