//! Test support: a running service, calls with a token, and access to its stores.

pub(crate) mod consistency;
pub(crate) mod quotas;

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use onsale_inventory::store::keys::Keys;
use onsale_kit::auth::SigningKey;
use onsale_proto::{
    EventPayload,
    auth::v1::Role,
    events::v1::Envelope,
    inventory::v1::{
        self as pb, event_service_client::EventServiceClient,
        inventory_internal_service_client::InventoryInternalServiceClient,
        inventory_service_client::InventoryServiceClient,
    },
    r#type::v1::{Money, SeatLayout, SeatRow, UnitSelection},
};
use onsale_storage::{
    postgres::{Parameters, Postgres, column},
    redis::{Command, Key, Redis, RedisConfig},
};
use onsale_testkit::service::{TestService, TestStores};
use onsale_types::{CustomerId, HoldId, RequestId};
use prost::Message;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt;

/// Longest wait for a background change.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) const ORGANIZER: &str = "organizer-one";

/// Compares the pools continuously and counts missing units as lost after 200 ms.
pub(crate) const RECONCILING: &[(&str, &str)] =
    &[("POOL__RECONCILE_EVERY", "100ms"), ("POOL__ON_THE_WAY_MAX", "200ms")];

/// Page of the invitation links.
pub(crate) const ACCEPT_PAGE: &str = "https://tickets.example.test/invitation";

/// A running service with its clients and stores.
pub(crate) struct World {
    pub(crate) service: TestService,
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) events: EventServiceClient<Channel>,
    pub(crate) inventory: InventoryServiceClient<Channel>,
    pub(crate) internal: InventoryInternalServiceClient<Channel>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts with a long pool timeout: a busy machine may delay Redis, which is not a fault under test.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let patient = [("POOL__PATIENCE", "5s")];
        let settings: Vec<_> =
            required().into_iter().chain(patient).chain(settings.iter().copied()).collect();
        let service = TestService::start_with(
            onsale_inventory::SERVICE,
            onsale_inventory::DEFAULTS,
            &settings,
            onsale_inventory::build,
        );
        Self::around(service.await.unwrap()).await
    }

    /// Stops the service and starts another on the same stores.
    pub(crate) async fn restart(self) -> Self {
        let TestService { server, database, redis, .. } = self.service;
        server.shutdown().await;
        Self::start_on(TestStores { database, redis }).await
    }

    pub(crate) async fn start_on(stores: TestStores) -> Self {
        Self::start_on_with(stores, &[]).await
    }

    pub(crate) async fn start_on_with(stores: TestStores, settings: &[(&str, &str)]) -> Self {
        let settings: Vec<_> = required().into_iter().chain(settings.iter().copied()).collect();
        let service = TestService::start_on(
            onsale_inventory::SERVICE,
            onsale_inventory::DEFAULTS,
            stores,
            &settings,
            onsale_inventory::build,
        );
        Self::around(service.await.unwrap()).await
    }

    async fn around(service: TestService) -> Self {
        let channel = service.channel().await.unwrap();
        let postgres = Postgres::connect(&service.database.config(onsale_inventory::SERVICE)).await.unwrap();
        let config = RedisConfig::new(service.redis.urls.clone(), service.redis.prefix.clone());
        Self {
            postgres,
            redis: Redis::connect(&config).await.unwrap(),
            events: EventServiceClient::new(channel.clone()),
            inventory: InventoryServiceClient::new(channel.clone()),
            internal: InventoryInternalServiceClient::new(channel),
            service,
        }
    }

    /// Returns a request of `organizer`.
    pub(crate) fn as_organizer<T>(&self, organizer: &str, message: T) -> Request<T> {
        with_token(message, &self.service.issuer.token_for(organizer, &[Role::Organizer]))
    }

    /// Returns a request of Claim.
    pub(crate) fn as_claim<T>(&self, message: T) -> Request<T> {
        with_token(message, &self.service.issuer.token_for("claim", &[Role::Service]))
    }

    pub(crate) async fn create(&self, event: pb::Event) -> Result<pb::Event, Status> {
        let message = pb::CreateEventRequest { request_id: request_id(), event: Some(event) };
        let created = self.events.clone().create_event(self.as_organizer(ORGANIZER, message)).await?;
        Ok(created.into_inner().event.unwrap())
    }

    pub(crate) async fn get(&self, event_id: &str) -> pb::Event {
        let message = pb::GetEventRequest { event_id: event_id.to_owned() };
        let request = self.as_organizer(ORGANIZER, message);
        self.events.clone().get_event(request).await.unwrap().into_inner().event.unwrap()
    }

    pub(crate) async fn activate(&self, event_id: &str) -> Result<pb::Event, Status> {
        let message = pb::ActivateEventRequest { request_id: request_id(), event_id: event_id.to_owned() };
        let answer = self.events.clone().activate_event(self.as_organizer(ORGANIZER, message)).await?;
        Ok(answer.into_inner().event.unwrap())
    }

    pub(crate) async fn end(&self, event_id: &str) -> Result<pb::Event, Status> {
        let message = pb::EndEventRequest { request_id: request_id(), event_id: event_id.to_owned() };
        let answer = self.events.clone().end_event(self.as_organizer(ORGANIZER, message)).await?;
        Ok(answer.into_inner().event.unwrap())
    }

    /// Creates an event on sale with these sectors.
    pub(crate) async fn on_sale(&self, sectors: Vec<pb::Sector>) -> pb::Event {
        let event = self.create(an_event(sectors)).await.unwrap();
        self.activate(&event.event_id).await.unwrap()
    }

    pub(crate) async fn reserve(
        &self,
        message: pb::ReserveUnitsRequest,
    ) -> Result<pb::ReserveUnitsResponse, Status> {
        let answer = self.internal.clone().reserve_units(self.as_claim(message)).await?;
        Ok(answer.into_inner())
    }

    /// Reserves `selections` under new ids.
    pub(crate) async fn hold(
        &self,
        event: &pb::Event,
        selections: Vec<UnitSelection>,
    ) -> Result<pb::Hold, Status> {
        Ok(self.reserve(a_reservation(event, selections)).await?.hold.unwrap())
    }

    pub(crate) async fn commit(&self, hold_id: &str) -> Result<pb::Hold, Status> {
        let message = pb::CommitHoldRequest { request_id: request_id(), hold_id: hold_id.to_owned() };
        Ok(self.internal.clone().commit_hold(self.as_claim(message)).await?.into_inner().hold.unwrap())
    }

    pub(crate) async fn release(&self, hold_id: &str) -> Result<pb::Hold, Status> {
        let message = pb::ReleaseHoldRequest { request_id: request_id(), hold_id: hold_id.to_owned() };
        Ok(self.internal.clone().release_hold(self.as_claim(message)).await?.into_inner().hold.unwrap())
    }

    pub(crate) async fn availability(&self, event: &pb::Event) -> pb::Availability {
        let message = pb::GetAvailabilityRequest { event_id: event.event_id.clone(), sector_ids: Vec::new() };
        let answer = self.inventory.clone().get_availability(message).await.unwrap().into_inner();
        answer.availability.unwrap()
    }

    /// Returns the free and held units of the event's first sector.
    pub(crate) async fn counts(&self, event: &pb::Event) -> (u32, u32) {
        let first = self.availability(event).await.sectors.remove(0);
        (first.free_count, first.held_count)
    }

    /// Returns the column `count` of `sql`.
    pub(crate) async fn number(&self, sql: &'static str, parameters: Parameters<'_>) -> i64 {
        column(&self.postgres.query_one("count", sql, parameters).await.unwrap(), "count").unwrap()
    }

    /// Returns the number of taken units.
    pub(crate) async fn taken(&self) -> i64 {
        self.number("SELECT count(*) FROM hold_unit", &[]).await
    }

    /// Returns the published events `P`, oldest first.
    pub(crate) async fn published<P: EventPayload>(&self) -> Vec<P> {
        let sql = "SELECT envelope FROM outbox WHERE topic = $1 ORDER BY seq";
        let rows = self.postgres.query("published", sql, &[&P::TOPIC]).await.unwrap();
        let read = |envelope: Vec<u8>| P::decode(Envelope::decode(&envelope[..]).unwrap().payload).unwrap();
        rows.iter().map(|row| read(column(row, "envelope").unwrap())).collect()
    }

    /// Returns the key of a sector's pool.
    pub(crate) fn pool(&self, event: &pb::Event, sector: usize) -> Key {
        let keys = Keys::new(self.redis.keyspace(onsale_inventory::SERVICE).unwrap());
        let sector_id = event.sectors[sector].sector_id.parse().unwrap();
        keys.pool(event.event_id.parse().unwrap(), sector_id).unwrap()
    }

    /// Returns the bytes of a sector's pool.
    pub(crate) async fn pool_bytes(&self, event: &pb::Event, sector: usize) -> Option<Vec<u8>> {
        self.redis.run(Command::new("GET").key(&self.pool(event, sector))).await.unwrap()
    }

    pub(crate) async fn set_pool(&self, event: &pb::Event, sector: usize, bytes: &[u8]) {
        let command = Command::new("SET").key(&self.pool(event, sector)).arg(bytes);
        self.redis.run::<()>(command).await.unwrap();
    }

    pub(crate) async fn wipe_pool(&self, event: &pb::Event, sector: usize) {
        self.redis.run::<()>(Command::new("DEL").key(&self.pool(event, sector))).await.unwrap();
    }
}

/// Settings without a usable default.
pub(crate) fn required() -> [(&'static str, &'static str); 2] {
    static KEY: LazyLock<String> = LazyLock::new(|| SigningKey::generate().unwrap());
    [("INVITATIONS__SIGNING_KEY", KEY.as_str()), ("INVITATIONS__ACCEPT_PAGE", ACCEPT_PAGE)]
}

pub(crate) fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub(crate) fn request_id() -> String {
    RequestId::generate().to_string()
}

pub(crate) fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

/// Returns an event in the far future.
pub(crate) fn an_event(sectors: Vec<pb::Sector>) -> pb::Event {
    pb::Event {
        name: "Dinamo – Hajduk".to_owned(),
        description: "The derby.\nGates open at six.".to_owned(),
        venue: Some(pb::Venue {
            name: "Maksimir".to_owned(),
            address: "Maksimirska 128, Zagreb".to_owned(),
            time_zone: "Europe/Zagreb".to_owned(),
        }),
        start_time: time(4_000_000_000),
        currency_code: "EUR".to_owned(),
        sectors,
        ..pb::Event::default()
    }
}

pub(crate) fn euros(amount_minor: i64) -> Option<Money> {
    Some(Money { amount_minor, currency_code: "EUR".to_owned() })
}

pub(crate) fn general(name: &str, capacity: u32) -> pb::Sector {
    pb::Sector { name: name.to_owned(), price: euros(1_250), capacity, ..pb::Sector::default() }
}

/// Returns a sector with one row per size, labeled 1, 2, ….
pub(crate) fn seated(name: &str, rows: &[u32]) -> pb::Sector {
    let row = |(index, seat_count): (usize, &u32)| SeatRow {
        label: (index + 1).to_string(),
        seat_count: *seat_count,
        seat_labels: Vec::new(),
    };
    let layout = SeatLayout { rows: rows.iter().enumerate().map(row).collect() };
    pb::Sector { name: name.to_owned(), price: euros(4_000), layout: Some(layout), ..pb::Sector::default() }
}

pub(crate) fn count(event: &pb::Event, sector: usize, count: u32) -> UnitSelection {
    UnitSelection { sector_id: event.sectors[sector].sector_id.clone(), count, units: Vec::new() }
}

pub(crate) fn exactly(event: &pb::Event, sector: usize, units: &[u32]) -> UnitSelection {
    UnitSelection { sector_id: event.sectors[sector].sector_id.clone(), count: 0, units: units.to_vec() }
}

pub(crate) fn a_reservation(event: &pb::Event, selections: Vec<UnitSelection>) -> pb::ReserveUnitsRequest {
    pb::ReserveUnitsRequest {
        request_id: request_id(),
        hold_id: HoldId::generate().to_string(),
        event_id: event.event_id.clone(),
        customer_id: CustomerId::generate().to_string(),
        selections,
        invitation_token: String::new(),
        release_after: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        known_event_revision: 0,
    }
}

/// Returns the unit numbers of one item.
pub(crate) fn numbers(hold: &pb::Hold, item: usize) -> Vec<u32> {
    hold.items[item].units.iter().map(|unit| unit.number).collect()
}

/// Returns the code, reason and metadata of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(
    answer: Result<T, Status>,
) -> (Code, String, HashMap<String, String>) {
    let status = answer.unwrap_err();
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("a reason: {status:?}"));
    (status.code(), info.reason, info.metadata)
}

/// Returns the code and reason of a refusal.
pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let (code, reason, _) = refusal(answer);
    (code, reason)
}

/// Returns the fields that a refusal names.
pub(crate) fn fields<T: std::fmt::Debug>(answer: Result<T, Status>) -> Vec<String> {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let violations = status.get_details_bad_request().map(|it| it.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}
