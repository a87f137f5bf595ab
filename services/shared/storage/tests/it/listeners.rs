//! Typed consumers of a service, and their mapping of errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_kit::tasks::Tasks;
use onsale_proto::EventPayload;
use onsale_storage::Stores;
use onsale_storage::lease::{Election, LeaseConfig};
use onsale_storage::messaging::{ConsumerConfig, Error, HandlerError, Listeners, Outbox, Received};
use onsale_storage::postgres::Transaction;
use onsale_types::{Clock as _, SystemClock};
use uuid::Uuid;

use crate::events::{GROUP, NumberAdded, World, consumer_config};

/// Error with the kind that the event requests.
#[derive(Debug, thiserror::Error)]
#[error("failed on purpose")]
struct Failure(Kind);

impl ServiceError for Failure {
    fn kind(&self) -> Kind {
        self.0
    }

    fn reason(&self) -> Reason {
        Reason::from_proto("ERROR_REASON_INTERNAL")
    }
}

impl From<Failure> for HandlerError {
    fn from(failure: Failure) -> Self {
        Self::by_kind(failure)
    }
}

#[derive(Default)]
struct App {
    calls: AtomicU32,
}

fn stores(world: &World, tasks: &Tasks) -> Stores {
    let keys = world.redis.keyspace(GROUP).unwrap();
    let election = Election::start(&world.redis, &world.postgres, &keys, &LeaseConfig::default(), tasks);
    Stores {
        postgres: world.postgres.clone(),
        redis: world.redis.clone(),
        outbox: Outbox::new(GROUP, Arc::new(SystemClock)),
        election: election.unwrap(),
    }
}

fn listeners(world: &World, tasks: &Tasks, app: &Arc<App>) -> Listeners<Arc<App>> {
    // The service's name replaces this group.
    let config = ConsumerConfig { group: "nobody".to_owned(), ..consumer_config() };
    Listeners::new(&stores(world, tasks), config, Arc::clone(app))
}

async fn noted(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<NumberAdded>,
) -> Result<(), HandlerError> {
    app.calls.fetch_add(1, Ordering::Relaxed);
    assert_ne!(event.event_id, Uuid::nil());
    assert!(event.occur_time <= SystemClock.now());
    let number = event.payload.number;
    transaction.execute("INSERT INTO effect (number) VALUES ($1)", &[&number]).await?;
    Ok(())
}

async fn refuse(app: Arc<App>, _: Transaction, event: Received<NumberAdded>) -> Result<(), Failure> {
    app.calls.fetch_add(1, Ordering::Relaxed);
    Err(Failure(if event.payload.number == 1 { Kind::Invalid } else { Kind::Internal }))
}

#[tokio::test]
async fn listener_gets_payload_and_metadata_in_the_transaction() {
    let world = World::new().await;
    let (tasks, app) = (Tasks::new(), Arc::new(App::default()));
    listeners(&world, &tasks, &app).on(noted).start(&tasks).unwrap();
    world.start_relay();
    world.produce("k", [1, 2]).await;
    world.wait_for_effects(2).await;
    world.wait_until_idle().await;
    assert_eq!(world.effects().await, [1, 2]);
    assert_eq!(app.calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn service_error_is_mapped_by_its_kind() {
    let world = World::new().await;
    let (tasks, app) = (Tasks::new(), Arc::new(App::default()));
    listeners(&world, &tasks, &app).on(refuse).start(&tasks).unwrap();
    world.start_relay();
    world.produce("k", [1, 2]).await;
    world.wait_for_letters(2).await;
    // One attempt for the invalid event, four for the other.
    assert_eq!(app.calls.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn ignored_events_are_acknowledged() {
    let world = World::new().await;
    let (tasks, app) = (Tasks::new(), Arc::new(App::default()));
    listeners(&world, &tasks, &app).ignore::<NumberAdded>("nothing to do in a test").start(&tasks).unwrap();
    world.start_relay();
    world.produce("k", [1]).await;
    world.wait_until_idle().await;
    assert!(world.letters().list(None, 10).await.unwrap().letters.is_empty());
}

/// Event without any listener in the contract.
#[derive(Clone, PartialEq, prost::Message)]
struct Unheard {}

impl EventPayload for Unheard {
    const TOPIC: &'static str = "test.unheard";
    const TYPE: &'static str = "onsale.test.v1.Unheard";
    const SOURCE: &'static str = "producer";
    const LISTENERS: &'static [&'static str] = &[];
}

#[tokio::test]
async fn no_listener_starts_if_one_is_not_in_the_contract() {
    let world = World::new().await;
    let (tasks, app) = (Tasks::new(), Arc::new(App::default()));
    let refused = listeners(&world, &tasks, &app).on(noted).ignore::<Unheard>("a mistake").start(&tasks);
    assert!(matches!(refused, Err(Error::NotAListener { topic: "test.unheard", .. })), "{refused:?}");
    assert_eq!(tasks.running(), ["lease election"]);
}

#[test]
fn error_kind_selects_retry_dead_letter_or_wait() {
    for (kind, expected) in [
        (Kind::Unavailable, "unavailable"),
        (Kind::Limited, "unavailable"),
        (Kind::Invalid, "poison"),
        (Kind::Timeout, "retry"),
        (Kind::Contended, "retry"),
        (Kind::State, "retry"),
        (Kind::Internal, "retry"),
    ] {
        let outcome = match HandlerError::by_kind(Failure(kind)) {
            HandlerError::Unavailable(_) => "unavailable",
            HandlerError::Poison(_) => "poison",
            HandlerError::Retry(_) => "retry",
        };
        assert_eq!(outcome, expected, "{kind:?}");
    }
}
