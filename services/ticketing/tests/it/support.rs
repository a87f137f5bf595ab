//! Shared test support: the service, events as Inventory and Claim publish them, people with tokens, and direct access to the
//! database.

use std::{error::Error, sync::Arc, time::Duration};

use onsale_kit::{
    auth::{Identity, SigningKey},
    contract::RoleSet,
    tasks::Tasks,
};
use onsale_proto::{
    EventPayload, TOPICS,
    auth::v1::Role,
    events::v1::{CreatedSector, Envelope, EventCreated, OrderCompleted},
    ticketing::v1::{
        self as pb, generation_service_client::GenerationServiceClient,
        ticket_internal_service_client::TicketInternalServiceClient,
        ticket_service_client::TicketServiceClient,
    },
    r#type::v1 as shared,
};
use onsale_storage::{
    messaging::{DeadLetters, NewEvent, Outbox, Relay, RelayConfig},
    postgres::{Postgres, column},
    redis::{Redis, RedisConfig},
};
use onsale_testkit::{
    service::{TestService, TestStores},
    stack, tokens, wait_until,
};
use onsale_types::{EventId, SectorId, SystemClock, Timestamp};
use prost::Message as _;
use tonic::{Request, Status, transport::Channel};
use tonic_types::StatusExt;
use uuid::Uuid;

/// Timeout of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const MAIL: &str = "ana@example.com";
const START_SECONDS: i64 = 1_800_000_000;

/// A running service with its stores.
pub(crate) struct World {
    pub(crate) service: TestService,
    pub(crate) channel: Channel,
    /// Connection to the service's own schema.
    pub(crate) store: Postgres,
    /// Key that signs codes: PKCS#8 in base64.
    pub(crate) signing_key: String,
    redis: Redis,
    /// Relays of the senders, which end with the runtime of the test.
    tasks: Tasks,
}

/// A caller with a token.
pub(crate) struct Person {
    pub(crate) token: String,
    pub(crate) identity: Identity,
}

/// An event as Inventory publishes it.
#[derive(Clone)]
pub(crate) struct TestEvent {
    pub(crate) created: EventCreated,
}

pub(crate) fn signing_key() -> String {
    SigningKey::generate().unwrap()
}

pub(crate) async fn start(settings: &[(&str, &str)]) -> Result<TestService, Box<dyn Error>> {
    TestService::start_with(
        onsale_ticketing::SERVICE,
        onsale_ticketing::DEFAULTS,
        settings,
        onsale_ticketing::build,
    )
    .await
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// Starts the service on new stores, with other settings than the defaults of the tests.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let stores =
            TestStores { database: stack::database().await.unwrap(), redis: stack::redis().await.unwrap() };
        Self::on(stores, signing_key(), settings).await
    }

    /// Starts the service on the stores of an earlier one.
    pub(crate) async fn on(stores: TestStores, signing_key: String, settings: &[(&str, &str)]) -> Self {
        let quick = [
            ("CODES__SIGNING_KEY", signing_key.as_str()),
            ("GENERATION__POLL_EVERY", "50ms"),
            ("GENERATION__WATCH_EVERY", "20ms"),
            ("ISSUING__POLL_EVERY", "50ms"),
        ];
        let settings: Vec<_> = quick.iter().chain(settings).copied().collect();
        let (name, defaults) = (onsale_ticketing::SERVICE, onsale_ticketing::DEFAULTS);
        let service =
            TestService::start_on(name, defaults, stores, &settings, onsale_ticketing::build).await.unwrap();
        let channel = service.channel().await.unwrap();
        let store = Postgres::connect(&service.database.config(name)).await.unwrap();
        let config = RedisConfig::new(service.redis.urls.clone(), &service.redis.prefix);
        let redis = Redis::connect(&config).await.unwrap();
        Self { service, channel, store, signing_key, redis, tasks: Tasks::new() }
    }

    /// Writes `payload` to the outbox of the service that publishes it, and starts a relay.
    pub(crate) async fn publish<P: EventPayload>(&mut self, key: &str, payload: &P) {
        let postgres = Postgres::connect(&self.service.database.config(P::SOURCE)).await.unwrap();
        let outbox = Outbox::new(P::SOURCE, Arc::new(SystemClock));
        let (writer, events) = (&outbox, &[NewEvent::new(key, payload)]);
        postgres
            .transaction("publish", |transaction| async move { writer.append(&transaction, events).await })
            .await
            .unwrap();
        let config = RelayConfig { poll_every: Duration::from_millis(10), ..RelayConfig::default() };
        let relay = Relay::new(postgres, self.redis.clone(), &outbox, TOPICS, config).unwrap();
        relay.start(&self.tasks);
    }

    pub(crate) async fn publish_event(&mut self, event: &TestEvent) {
        self.publish(event.id(), &event.created).await;
    }

    pub(crate) async fn publish_order(&mut self, order: &OrderCompleted) {
        self.publish(&order.claim_id, order).await;
    }

    /// Publishes an event and waits until its tickets are generated.
    pub(crate) async fn generated(&mut self, organizer: &Person, capacities: &[u32]) -> TestEvent {
        let event = TestEvent::new(organizer, capacities);
        self.publish_event(&event).await;
        self.wait_until_generated(&event).await;
        event
    }

    /// Waits until the generation for the event's revision is COMPLETED.
    pub(crate) async fn wait_until_generated(&self, event: &TestEvent) {
        wait_until("all tickets to be generated", TIMEOUT, async || {
            let sql = "SELECT count(*) AS count FROM generation
                WHERE event_id::text = $1 AND revision = $2 AND state = 'COMPLETED'";
            let revision = i64::try_from(event.created.revision).unwrap();
            let row = self.store.query_one("completed", sql, &[&event.id(), &revision]).await.unwrap();
            column::<i64>(&row, "count").unwrap() == 1
        })
        .await;
    }

    /// Waits until the order's tickets are issued, and returns them.
    pub(crate) async fn issued(&self, order: &OrderCompleted, buyer: &Person) -> Vec<pb::Ticket> {
        let unit_count: usize = order.items.iter().map(|item| item.units.len()).sum();
        let request = pb::ListTicketsRequest { claim_id: order.claim_id.clone(), ..Default::default() };
        wait_until("the order's tickets", TIMEOUT, async || {
            self.list(buyer, request.clone()).await.unwrap().tickets.len() == unit_count
        })
        .await;
        self.list(buyer, request).await.unwrap().tickets
    }

    pub(crate) async fn list(
        &self,
        person: &Person,
        request: pb::ListTicketsRequest,
    ) -> Result<pb::ListTicketsResponse, Status> {
        self.tickets().list_tickets(person.request(request)).await.map(tonic::Response::into_inner)
    }

    pub(crate) fn tickets(&self) -> TicketServiceClient<Channel> {
        TicketServiceClient::new(self.channel.clone())
    }

    pub(crate) fn generations(&self) -> GenerationServiceClient<Channel> {
        GenerationServiceClient::new(self.channel.clone())
    }

    pub(crate) fn internal(&self) -> TicketInternalServiceClient<Channel> {
        TicketInternalServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn generation_of(
        &self,
        organizer: &Person,
        event: &TestEvent,
    ) -> Result<pb::Generation, Status> {
        let lookup = Some(pb::get_generation_request::Lookup::EventId(event.id().to_owned()));
        let answer =
            self.generations().get_generation(organizer.request(pb::GetGenerationRequest { lookup })).await?;
        Ok(answer.into_inner().generation.unwrap())
    }

    pub(crate) fn person(&self, role: Role) -> Person {
        let subject = Uuid::now_v7().to_string();
        let token = self.service.issuer.token_for(&subject, &[role]);
        let issuer = if role == Role::Service { onsale_kit::auth::MESH } else { tokens::ISSUER };
        let identity = Identity {
            subject,
            roles: RoleSet::of(&[role]),
            issuer: Arc::from(issuer),
            email: None,
            locale: None,
            display_name: None,
            expiry: Timestamp::from_secs(i64::from(u32::MAX)),
        };
        Person { token, identity }
    }

    /// Runs a query for one number, in the column `count`.
    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let row = self.store.query_one("count", sql, &[]).await.unwrap();
        column(&row, "count").unwrap()
    }

    /// Asserts that the sector has one ticket for each of the units 1 to `capacity`.
    pub(crate) async fn assert_exact(&self, sector_id: &str, capacity: u32) {
        let sql =
            "SELECT count(*) AS count, count(DISTINCT ticket_id) AS ids, coalesce(min(unit), 0) AS first,
                coalesce(max(unit), 0) AS last FROM ticket WHERE sector_id::text = $1";
        let row = self.store.query_one("exact", sql, &[&sector_id]).await.unwrap();
        let number = |name| column::<i64>(&row, name).unwrap();
        let unit = |name| column::<i32>(&row, name).unwrap();
        let capacity = i32::try_from(capacity).unwrap();
        assert_eq!((number("count"), number("ids")), (i64::from(capacity), i64::from(capacity)));
        assert_eq!((unit("first"), unit("last")), (capacity.min(1), capacity));
    }

    /// Reads the events with the payload `P` that the service published, in order.
    pub(crate) async fn published<P: EventPayload>(&self) -> Vec<P> {
        let sql = "SELECT envelope FROM outbox WHERE topic = $1 ORDER BY seq";
        let rows = self.store.query("published", sql, &[&P::TOPIC]).await.unwrap();
        rows.iter()
            .map(|row| {
                let envelope = Envelope::decode(column::<&[u8]>(row, "envelope").unwrap()).unwrap();
                P::decode(envelope.payload).unwrap()
            })
            .collect()
    }

    pub(crate) async fn wait_for_dead_letters(&self, count: usize) {
        let letters = DeadLetters::new(self.store.clone(), onsale_ticketing::SERVICE);
        wait_until("the dead letters", TIMEOUT, async || {
            letters.list(None, 100).await.unwrap().letters.len() == count
        })
        .await;
    }

    /// Waits until the service has handled at least `count` events.
    pub(crate) async fn wait_until_handled(&self, count: i64) {
        wait_until("the events to be handled", TIMEOUT, async || {
            self.count("SELECT count(*) AS count FROM inbox").await >= count
        })
        .await;
    }
}

impl Person {
    /// Returns a request with the token.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        request
    }
}

impl TestEvent {
    /// Returns a draft with general admission sectors, at revision 1.
    pub(crate) fn new(organizer: &Person, capacities: &[u32]) -> Self {
        let event = shared::EventSummary {
            event_id: EventId::generate().to_string(),
            name: "Derbi".to_owned(),
            venue_name: "Maksimir".to_owned(),
            venue_address: "Maksimirska 128".to_owned(),
            time_zone: "Europe/Zagreb".to_owned(),
            start_time: Some(prost_types::Timestamp { seconds: START_SECONDS, nanos: 0 }),
        };
        Self {
            created: EventCreated {
                event: Some(event),
                organizer_id: organizer.identity.organizer_id().to_string(),
                revision: 1,
                on_sale_time: None,
                units_per_customer_max: 8,
                sectors: capacities.iter().map(|capacity| sector(*capacity)).collect(),
            },
        }
    }

    /// Returns the next revision of the event, with a change.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut EventCreated)) -> Self {
        let mut next = self.clone();
        next.created.revision += 1;
        change(&mut next.created);
        next
    }

    pub(crate) fn id(&self) -> &str {
        &self.created.event.as_ref().unwrap().event_id
    }

    pub(crate) fn sector(&self, index: usize) -> &str {
        &self.created.sectors[index].sector_id
    }

    /// Returns a paid order of `buyer` for units of the first sector.
    pub(crate) fn order(&self, buyer: &Person, units: &[u32]) -> OrderCompleted {
        OrderCompleted {
            claim_id: Uuid::now_v7().to_string(),
            event: self.created.event.clone(),
            customer_id: buyer.identity.customer_id().to_string(),
            buyer_email: MAIL.to_owned(),
            buyer_locale: "hr".to_owned(),
            items: vec![shared::LineItem {
                sector_id: self.sector(0).to_owned(),
                sector_name: self.created.sectors[0].name.clone(),
                units: units.iter().map(|number| shared::Unit { number: *number, seat: None }).collect(),
                unit_price: None,
                amount: None,
                group_count: 0,
            }],
            total: None,
            payment_id: Uuid::now_v7().to_string(),
            fencing_number: 1,
            complete_time: Some(prost_types::Timestamp { seconds: START_SECONDS - 1_000, nanos: 0 }),
        }
    }

    /// Returns a call of `IssueTickets` for the order.
    pub(crate) fn issue_request(&self, order: &OrderCompleted) -> pb::IssueTicketsRequest {
        pb::IssueTicketsRequest {
            request_id: Uuid::now_v7().to_string(),
            claim_id: order.claim_id.clone(),
            event_id: self.id().to_owned(),
            customer_id: order.customer_id.clone(),
            buyer_email: order.buyer_email.clone(),
            buyer_locale: order.buyer_locale.clone(),
            items: order
                .items
                .iter()
                .map(|item| pb::SectorUnits {
                    sector_id: item.sector_id.clone(),
                    units: item.units.iter().map(|unit| unit.number).collect(),
                })
                .collect(),
        }
    }
}

pub(crate) fn sector(capacity: u32) -> CreatedSector {
    let sector_id = SectorId::generate().to_string();
    CreatedSector { name: format!("S{capacity}"), sector_id, capacity, layout: None, price: None }
}

/// Returns the `ErrorInfo.reason` of an error, or an empty text.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}
