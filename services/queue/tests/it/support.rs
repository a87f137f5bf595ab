//! Support of the tests: the service with its stores, a fake Inventory, published events, and customers.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    auth::{KeySet, SignedToken, SigningKey, TokenReader},
    tasks::Tasks,
};
use onsale_proto::{
    EventPayload, TOPICS,
    auth::v1::Role,
    events::v1::{CreatedSector, EventActivated, EventCreated},
    inventory::v1::inventory_service_server::InventoryServiceServer,
    queue::v1::{
        self as pb, queue_admin_service_client::QueueAdminServiceClient,
        queue_internal_service_client::QueueInternalServiceClient, queue_service_client::QueueServiceClient,
    },
    r#type::v1::EventSummary,
};
use onsale_storage::{
    messaging::{NewEvent, Outbox, Relay, RelayConfig},
    postgres::{self, Parameters, Postgres, Transaction},
    redis::{Redis, RedisConfig},
};
use onsale_testkit::{
    service::{TestService, TestStores},
    stack::{self, TestRedis},
    wait_until,
};
use onsale_types::{Clock, SystemClock, Timestamp};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

pub(crate) mod person;
pub(crate) mod pod;
pub(crate) mod watcher;

pub(crate) use self::person::Person;
use self::{person::bearer, pod::Pod, watcher::Watcher};
use crate::inventory::FakeInventory;

/// Longest wait for a condition that is usually met within a second.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The service under test with its surroundings.
pub(crate) struct World {
    pub(crate) service: TestService,
    pub(crate) inventory: FakeInventory,
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) channel: Channel,
    pub(crate) organizer: Person,
    jwks: String,
    settings: Vec<(String, String)>,
    /// Publish the events of the neighbors.
    voices: Vec<Voice>,
    tasks: Tasks,
}

/// A neighbor that publishes events.
struct Voice {
    service: &'static str,
    outbox: Outbox,
    postgres: Postgres,
}

/// Fields of a turn token besides its customer and expiry.
#[derive(Debug, Deserialize)]
pub(crate) struct TurnClaims {
    pub(crate) event_id: String,
    pub(crate) entry_id: String,
    pub(crate) fencing_number: u64,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let redis = stack::redis().await.unwrap();
        Self::start_on(redis, Arc::new(SystemClock), settings).await
    }

    /// Starts on a Redis that the test may break, or with a clock that is off.
    pub(crate) async fn start_on(redis: TestRedis, clock: Arc<dyn Clock>, settings: &[(&str, &str)]) -> Self {
        Self::prepared(redis, clock, settings, async |_, _| ()).await.1
    }

    /// Starts after `before` has run with the stores and the settings of the service.
    pub(crate) async fn start_after<T>(
        settings: &[(&str, &str)],
        before: impl AsyncFnOnce(&TestStores, &[(String, String)]) -> T,
    ) -> (T, Self) {
        let redis = stack::redis().await.unwrap();
        Self::prepared(redis, Arc::new(SystemClock), settings, before).await
    }

    async fn prepared<T>(
        redis: TestRedis,
        clock: Arc<dyn Clock>,
        settings: &[(&str, &str)],
        before: impl AsyncFnOnce(&TestStores, &[(String, String)]) -> T,
    ) -> (T, Self) {
        let tasks = Tasks::new();
        let inventory = FakeInventory::default();
        let url = serve(&tasks, inventory.clone()).await;
        let key = SigningKey::generate().unwrap();
        let jwks = SigningKey::parse(&key).unwrap().jwks();
        let mut all: Vec<(String, String)> = [
            ("NEIGHBOURS__INVENTORY__TARGET", url.as_str()),
            ("TURNS__SIGNING_KEY", key.as_str()),
            ("WEB__URL", "https://shop.test"),
            ("ADMISSION__INTERVAL", "50ms"),
            ("SWEEP__INTERVAL", "50ms"),
            ("WATCH__LOOK_INTERVAL", "200ms"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        all.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let stores = TestStores { database: stack::database().await.unwrap(), redis };
        let done = before(&stores, &all).await;
        let service = run(stores, &all, clock).await;
        (done, Self::around(service, inventory, jwks, all, tasks).await)
    }

    /// Starts another pod on the same stores, which can be killed.
    pub(crate) async fn pod(&self) -> Pod {
        let TestService { database, redis, .. } = &self.service;
        Pod::start(&database.url, redis, &self.settings).await
    }

    async fn around(
        service: TestService,
        inventory: FakeInventory,
        jwks: String,
        settings: Vec<(String, String)>,
        tasks: Tasks,
    ) -> Self {
        let postgres = Postgres::connect(&service.database.config("queue")).await.unwrap();
        let config = RedisConfig::new(service.redis.urls.clone(), service.redis.prefix.clone());
        let redis = Redis::connect(&config).await.unwrap();
        let mut voices = Vec::new();
        for name in ["inventory", "claim"] {
            let postgres = Postgres::connect(&service.database.config(name)).await.unwrap();
            let outbox = Outbox::new(name, Arc::new(SystemClock));
            let config = RelayConfig::default();
            let relay = Relay::new(postgres.clone(), redis.clone(), &outbox, TOPICS, config).unwrap();
            relay.start(&tasks);
            voices.push(Voice { service: name, outbox, postgres });
        }
        let channel = service.channel().await.unwrap();
        let organizer = Person::new(&service.issuer, Role::Organizer);
        Self { service, inventory, postgres, redis, channel, organizer, jwks, settings, voices, tasks }
    }

    /// Stops the service and starts another one on the same stores, like a deployment.
    pub(crate) async fn restart(self) -> Self {
        let Self { service, inventory, jwks, settings, tasks, channel, organizer, .. } = self;
        drop(channel);
        tasks.shutdown(SOON).await;
        let TestService { server, database, redis, .. } = service;
        let drained = server.shutdown().await;
        assert!(drained.tasks_aborted.is_empty(), "{drained:?}");
        // The server of the fake ended with the tasks.
        let tasks = Tasks::new();
        let url = serve(&tasks, inventory.clone()).await;
        let settings: Vec<(String, String)> = settings
            .into_iter()
            .map(|(key, value)| if key.ends_with("TARGET") { (key, url.clone()) } else { (key, value) })
            .collect();
        let service = run(TestStores { database, redis }, &settings, Arc::new(SystemClock)).await;
        let mut world = Self::around(service, inventory, jwks, settings, tasks).await;
        world.organizer = world.again(&organizer, Role::Organizer);
        world
    }

    /// Starts another instance on the same stores.
    pub(crate) async fn another_pod(&self) -> TestService {
        self.another_pod_at(Arc::new(SystemClock)).await
    }

    /// Like [`World::another_pod`], with its own clock.
    pub(crate) async fn another_pod_at(&self, clock: Arc<dyn Clock>) -> TestService {
        // The database of its own stays empty, because the last setting of a name counts.
        let stores =
            TestStores { database: stack::database().await.unwrap(), redis: self.service.redis.clone() };
        let mut settings = self.settings.clone();
        settings.push(("STORES__POSTGRES__URL".to_owned(), self.service.database.url.clone()));
        run(stores, &settings, clock).await
    }

    pub(crate) fn customer(&self) -> Person {
        Person::new(&self.service.issuer, Role::Customer)
    }

    /// Returns the same person with a token that this world's service accepts.
    pub(crate) fn again(&self, person: &Person, role: Role) -> Person {
        person.known_to(&self.service, role)
    }

    /// Returns an organizer who owns none of the events.
    pub(crate) fn stranger(&self) -> Person {
        Person::new(&self.service.issuer, Role::Organizer)
    }

    /// Creates a draft, that is an event that its organizer has not made public; returns the event.
    pub(crate) async fn draft(&self) -> String {
        let event = Uuid::now_v7().to_string();
        self.create_event(&event, 1).await;
        self.wait_for_state(&event, pb::QueueState::Scheduled).await;
        event
    }

    pub(crate) fn customers(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> QueueAdminServiceClient<Channel> {
        QueueAdminServiceClient::new(self.channel.clone())
    }

    pub(crate) fn internal(&self) -> QueueInternalServiceClient<Channel> {
        QueueInternalServiceClient::new(self.channel.clone())
    }

    /// Returns a request with the token of Claim.
    pub(crate) fn as_claim<T>(&self, message: T) -> Request<T> {
        bearer(&self.service.issuer.token_for("claim", &[Role::Service]), message)
    }

    /// Publishes an event as the service that the contract names as its source.
    pub(crate) async fn say<P: EventPayload>(&self, key: &str, payload: &P) {
        let voice = self.voices.iter().find(|voice| voice.service == P::SOURCE).unwrap();
        let event = NewEvent::new(key, payload);
        let (outbox, events) = (&voice.outbox, &[event]);
        let work = |transaction: Transaction| async move { outbox.append(&transaction, events).await };
        let said: Result<_, postgres::Error> = voice.postgres.transaction("say", work).await;
        said.unwrap();
        outbox.wake_relay();
    }

    pub(crate) async fn create_event(&self, event: &str, revision: u64) {
        let created = EventCreated {
            event: Some(summary(event)),
            organizer_id: self.organizer.organizer_id(),
            revision,
            sectors: vec![CreatedSector {
                sector_id: sector_of(event),
                name: "North".to_owned(),
                capacity: 100,
                ..CreatedSector::default()
            }],
            ..EventCreated::default()
        };
        self.say(event, &created).await;
    }

    pub(crate) async fn activate_event(&self, event: &str, revision: u64, on_sale_time: Option<Timestamp>) {
        let activated = EventActivated {
            event_id: event.to_owned(),
            revision,
            on_sale_time: on_sale_time.map(to_pb),
            activate_time: None,
        };
        self.say(event, &activated).await;
    }

    /// Creates an open queue without free units, so that nobody is admitted until the test sets some.
    pub(crate) async fn open_queue(&self) -> String {
        let event = Uuid::now_v7().to_string();
        self.inventory.set_sector(&sector_of(&event));
        self.create_event(&event, 1).await;
        self.activate_event(&event, 2, None).await;
        self.wait_for_state(&event, pb::QueueState::Open).await;
        event
    }

    /// Creates an open queue with 1,000 free units.
    pub(crate) async fn selling_queue(&self) -> String {
        let event = self.open_queue().await;
        self.inventory.set_free(1_000);
        event
    }

    pub(crate) async fn snapshot(&self, event: &str) -> Result<pb::QueueSnapshot, Status> {
        let request = pb::GetQueueSnapshotRequest { event_id: event.to_owned() };
        let answer = self.customers().get_queue_snapshot(request).await?;
        Ok(answer.into_inner().snapshot.unwrap())
    }

    /// Reads the table, because a public snapshot is cached for 1 s.
    pub(crate) async fn wait_for_state(&self, event: &str, state: pb::QueueState) {
        let name = state.as_str_name().trim_start_matches("QUEUE_STATE_");
        let event_id = Uuid::parse_str(event).unwrap();
        wait_until(&format!("the queue is {name}"), SOON, || async {
            let sql = "SELECT count(*) FROM queue WHERE event_id = $1 AND state = $2";
            self.count(sql, &[&event_id, &name]).await == 1
        })
        .await;
    }

    pub(crate) async fn count(&self, sql: &'static str, parameters: Parameters<'_>) -> i64 {
        self.postgres.query_one("count", sql, parameters).await.unwrap().get(0)
    }

    pub(crate) async fn join(&self, person: &Person, event: &str) -> Result<pb::JoinQueueResponse, Status> {
        person.join(&self.channel, event).await
    }

    /// Joins customers one after the other.
    pub(crate) async fn join_all(&self, count: usize, event: &str) -> Vec<Person> {
        let mut people = Vec::new();
        for _ in 0..count {
            let person = self.customer();
            self.join(&person, event).await.unwrap();
            people.push(person);
        }
        people
    }

    pub(crate) async fn position(&self, person: &Person, event: &str) -> Result<pb::Standing, Status> {
        person.position(&self.channel, event).await
    }

    pub(crate) async fn leave(&self, person: &Person, event: &str) -> Result<pb::Entry, Status> {
        person.leave(&self.channel, event).await
    }

    pub(crate) async fn watch(&self, person: &Person, event: &str) -> Result<Watcher, Status> {
        self.watch_from(person, event, 0).await
    }

    pub(crate) async fn watch_from(
        &self,
        person: &Person,
        event: &str,
        last_revision: u64,
    ) -> Result<Watcher, Status> {
        person.watch(&self.channel, event, last_revision).await
    }

    /// Waits until the person has a turn.
    pub(crate) async fn turn(&self, person: &Person, event: &str) -> pb::Turn {
        wait_until("there is a turn", SOON, || async {
            self.position(person, event).await.unwrap().turn.is_some()
        })
        .await;
        self.position(person, event).await.unwrap().turn.unwrap()
    }

    /// Returns the signing key of the service.
    pub(crate) fn signing_key(&self) -> &str {
        let is_key = |(name, _): &&(String, String)| name == "TURNS__SIGNING_KEY";
        self.settings.iter().find(is_key).unwrap().1.as_str()
    }

    /// Verifies and reads a turn token.
    pub(crate) fn read_turn(&self, token: &str) -> SignedToken<TurnClaims> {
        let keys = KeySet::parse(&self.jwks).unwrap();
        TokenReader::new(keys, "queue", "onsale-turn").read(token).unwrap()
    }

    /// Updates the policy as the organizer.
    pub(crate) async fn update_policy(
        &self,
        event: &str,
        policy: pb::QueuePolicy,
        paths: &[&str],
    ) -> pb::Queue {
        let request = pb::UpdateQueuePolicyRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.to_owned(),
            policy: Some(policy),
            update_mask: Some(prost_types::FieldMask {
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            }),
        };
        let answer = self.admin().update_queue_policy(self.organizer.ask(request)).await;
        answer.unwrap().into_inner().queue.unwrap()
    }

    pub(crate) async fn pause(&self, event: &str, joins_paused: bool) -> pb::Queue {
        let request = pb::PauseQueueRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.to_owned(),
            joins_paused,
            notice: "one moment".to_owned(),
        };
        let answer = self.admin().pause_queue(self.organizer.ask(request)).await;
        answer.unwrap().into_inner().queue.unwrap()
    }

    pub(crate) async fn resume(&self, event: &str) -> Result<pb::Queue, Status> {
        let request =
            pb::ResumeQueueRequest { request_id: Uuid::now_v7().to_string(), event_id: event.to_owned() };
        Ok(self.admin().resume_queue(self.organizer.ask(request)).await?.into_inner().queue.unwrap())
    }

    pub(crate) async fn close(&self, event: &str, reason: pb::CloseReason) -> Result<pb::Queue, Status> {
        let request = pb::CloseQueueRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.to_owned(),
            reason: reason.into(),
            ..pb::CloseQueueRequest::default()
        };
        Ok(self.admin().close_queue(self.organizer.ask(request)).await?.into_inner().queue.unwrap())
    }
}

async fn run(stores: TestStores, settings: &[(String, String)], clock: Arc<dyn Clock>) -> TestService {
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (service, defaults) = (onsale_queue::SERVICE, onsale_queue::DEFAULTS);
    TestService::start_with_clock(service, defaults, stores, &settings, clock, onsale_queue::build)
        .await
        .unwrap()
}

async fn serve(tasks: &Tasks, inventory: FakeInventory) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stopped = tasks.token().cancelled_owned();
    let server = tonic::transport::Server::builder()
        .add_service(InventoryServiceServer::new(inventory))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped);
    tasks.spawn("fake inventory", async move { drop(server.await) });
    url
}

pub(crate) fn summary(event: &str) -> EventSummary {
    EventSummary {
        event_id: event.to_owned(),
        name: "Final".to_owned(),
        venue_name: "Stadium".to_owned(),
        venue_address: String::new(),
        time_zone: "Europe/Zagreb".to_owned(),
        start_time: Some(to_pb(Timestamp::from_secs(4_000_000_000))),
    }
}

/// Returns the id of an event's only sector.
pub(crate) fn sector_of(event: &str) -> String {
    Uuid::new_v5(&Uuid::parse_str(event).unwrap(), b"sector").to_string()
}

pub(crate) fn to_pb(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

/// Asserts a refusal and returns its details.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) -> ErrorDetails {
    let status = answer.expect_err("it is refused");
    let details = status.get_error_details();
    let found = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
    assert_eq!((status.code(), found.as_str()), (code, reason), "{status:?}");
    details
}

/// Returns a metadata value of a refusal.
pub(crate) fn fact(details: &ErrorDetails, name: &str) -> Option<String> {
    details.error_info().and_then(|info| info.metadata.get(name).cloned())
}
