//! Shared test support: the service with fake neighbors, customers with turns, and direct access to the database.

use std::time::Duration;

use onsale_kit::{
    auth::{SigningKey, TokenFields, TokenSigner},
    error::DOMAIN,
    tasks::Tasks,
};
use onsale_proto::{
    EventPayload,
    auth::v1::Role,
    claim::v1::{
        self as pb, claim_internal_service_client::ClaimInternalServiceClient,
        claim_service_client::ClaimServiceClient, create_claim_request::Right,
    },
    events::v1::Envelope,
    inventory::v1::{HoldState, inventory_internal_service_server::InventoryInternalServiceServer},
    queue::v1::queue_internal_service_server::QueueInternalServiceServer,
    r#type::v1::{Money, UnitSelection},
};
use onsale_storage::postgres::{Postgres, column};
use onsale_testkit::{
    service::{TestService, TestStores},
    stack, tokens, wait_until,
};
use onsale_types::{Clock, SystemClock, Timestamp};
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

use crate::{inventory::FakeInventory, queue::FakeQueue};

/// Timeout of waits for fast operations.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Limit per customer in every test event.
pub(crate) const UNITS_MAX: u32 = 4;
/// Number of units in each of the two sectors.
pub(crate) const CAPACITY: u32 = 10;

/// A running service with its neighbors and stores.
pub(crate) struct World {
    pub(crate) service: TestService,
    pub(crate) queue: FakeQueue,
    pub(crate) inventory: FakeInventory,
    pub(crate) postgres: Postgres,
    pub(crate) event: String,
    pub(crate) general: String,
    pub(crate) seated: String,
    signer: TokenSigner,
    channel: Channel,
    settings: Vec<(String, String)>,
    /// Servers of the fake neighbors.
    _tasks: Tasks,
}

/// A customer with a verified email address.
#[derive(Clone)]
pub(crate) struct Customer {
    subject: String,
    pub(crate) id: String,
    pub(crate) email: String,
    token: String,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let (queue, inventory) = (FakeQueue::default(), FakeInventory::new(UNITS_MAX));
        let (general, seated) = (Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
        inventory.add_sector(&general, CAPACITY, false);
        inventory.add_sector(&seated, CAPACITY, true);
        let tasks = Tasks::new();
        let queue_url = serve(&tasks, QueueInternalServiceServer::new(queue.clone())).await;
        let inventory_url = serve(&tasks, InventoryInternalServiceServer::new(inventory.clone())).await;
        let signer = TokenSigner::new(SigningKey::parse(&SigningKey::generate().unwrap()).unwrap(), "queue");
        let jwks = signer.jwks();
        let mut all = vec![
            ("NEIGHBOURS__QUEUE__TARGET", queue_url.as_str()),
            ("NEIGHBOURS__INVENTORY__TARGET", inventory_url.as_str()),
            ("TURNS__JWKS", jwks.as_str()),
            ("CLAIMS__EXPIRE_EVERY", "50ms"),
            ("HOLDS__RELEASE_EVERY", "50ms"),
            ("HOLDS__RETRY_AFTER", "200ms"),
            // Tests abandon many claims, so only the tests of the cooldown enable it.
            ("COOLDOWN__CLAIMS", "0"),
        ];
        all.extend_from_slice(settings);
        let settings: Vec<_> =
            all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let stores =
            TestStores { database: stack::database().await.unwrap(), redis: stack::redis().await.unwrap() };
        let service = run(stores, &settings).await;
        let postgres = Postgres::connect(&service.database.config("claim")).await.unwrap();
        let channel = service.channel().await.unwrap();
        let event = Uuid::now_v7().to_string();
        Self {
            service,
            queue,
            inventory,
            postgres,
            event,
            general,
            seated,
            signer,
            channel,
            settings,
            _tasks: tasks,
        }
    }

    /// Stops the service and starts a new process on the same stores.
    pub(crate) async fn restart(mut self) -> Self {
        let TestService { server, database, redis, .. } = self.service;
        server.shutdown().await;
        self.service = run(TestStores { database, redis }, &self.settings).await;
        self.channel = self.service.channel().await.unwrap();
        self
    }

    pub(crate) fn customer(&self) -> Customer {
        self.customer_named(Uuid::now_v7().to_string())
    }

    /// Returns the same customer with a token that the service trusts after a restart.
    pub(crate) fn again(&self, customer: &Customer) -> Customer {
        self.customer_named(customer.subject.clone())
    }

    fn customer_named(&self, subject: String) -> Customer {
        let email = format!("{subject}@example.test");
        let mut claims = self.service.issuer.claims(&subject, &[Role::Customer]);
        claims["email"] = json!(email);
        claims["email_verified"] = json!(true);
        claims["locale"] = json!("hr");
        Customer { id: customer_id(&subject), email, token: self.service.issuer.sign(&claims), subject }
    }

    /// Returns a customer without a verified email address.
    pub(crate) fn customer_without_email(&self) -> Customer {
        let subject = Uuid::now_v7().to_string();
        let mut claims = self.service.issuer.claims(&subject, &[Role::Customer]);
        claims["email"] = json!("x@example.test");
        let token = self.service.issuer.sign(&claims);
        Customer { id: customer_id(&subject), email: String::new(), token, subject }
    }

    /// Grants a turn for `span` and returns its token.
    pub(crate) fn turn(&self, customer: &Customer, fencing_number: u64, span: Duration) -> String {
        let end = SystemClock.now().checked_add(span).unwrap();
        self.queue.grant(&self.event, &customer.id, fencing_number, end);
        self.turn_token(&customer.id, &self.event, fencing_number, end)
    }

    /// Signs a turn token, whether or not Queue has granted the turn.
    pub(crate) fn turn_token(
        &self,
        customer: &str,
        event: &str,
        fencing_number: u64,
        expiry: Timestamp,
    ) -> String {
        let claims = json!({
            "event_id": event, "entry_id": Uuid::now_v7().to_string(), "fencing_number": fencing_number,
        });
        let fields = TokenFields { audience: "onsale-turn", subject: customer, expiry };
        self.signer.sign(&fields, &claims).unwrap()
    }

    /// Returns a request for `count` units of the general sector, with a turn of 20 minutes.
    pub(crate) fn request_units(&self, customer: &Customer, count: u32) -> pb::CreateClaimRequest {
        let selection = UnitSelection { sector_id: self.general.clone(), count, units: Vec::new() };
        self.request_for(customer, vec![selection])
    }

    /// Returns a request for exact seats.
    pub(crate) fn request_seats(&self, customer: &Customer, units: &[u32]) -> pb::CreateClaimRequest {
        let selection = UnitSelection { sector_id: self.seated.clone(), count: 0, units: units.to_vec() };
        self.request_for(customer, vec![selection])
    }

    pub(crate) fn request_for(
        &self,
        customer: &Customer,
        selections: Vec<UnitSelection>,
    ) -> pb::CreateClaimRequest {
        let token = self.turn(customer, 1, Duration::from_secs(20 * 60));
        pb::CreateClaimRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: self.event.clone(),
            right: Some(Right::TurnToken(token)),
            selections,
        }
    }

    pub(crate) fn client(&self) -> ClaimServiceClient<Channel> {
        ClaimServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn create(
        &self,
        customer: &Customer,
        request: pb::CreateClaimRequest,
    ) -> Result<pb::Claim, Status> {
        let answer = self.client().create_claim(customer.ask(request)).await?;
        Ok(answer.into_inner().claim.unwrap())
    }

    /// Creates a claim of `count` units of the general sector.
    pub(crate) async fn claim(&self, customer: &Customer, count: u32) -> pb::Claim {
        self.create(customer, self.request_units(customer, count)).await.unwrap()
    }

    pub(crate) async fn get(&self, customer: &Customer, claim_id: &str) -> Result<pb::Claim, Status> {
        let request = pb::GetClaimRequest { claim_id: claim_id.to_owned() };
        let answer = self.client().get_claim(customer.ask(request)).await?;
        Ok(answer.into_inner().claim.unwrap())
    }

    pub(crate) async fn release(&self, customer: &Customer, claim_id: &str) -> Result<pb::Claim, Status> {
        let request =
            pb::ReleaseClaimRequest { request_id: Uuid::now_v7().to_string(), claim_id: claim_id.to_owned() };
        let answer = self.client().release_claim(customer.ask(request)).await?;
        Ok(answer.into_inner().claim.unwrap())
    }

    /// Returns Payment's request to confirm a payment of the claim's total.
    pub(crate) fn payment_of(&self, claim: &pb::Claim) -> pb::ConfirmClaimRequest {
        pb::ConfirmClaimRequest {
            request_id: Uuid::now_v7().to_string(),
            claim_id: claim.claim_id.clone(),
            payment_id: Uuid::now_v7().to_string(),
            amount: claim.total.clone(),
        }
    }

    pub(crate) async fn confirm(&self, request: pb::ConfirmClaimRequest) -> Result<pb::Claim, Status> {
        let token = self.service.issuer.token_for("payment", &[Role::Service]);
        let mut client = ClaimInternalServiceClient::new(self.channel.clone());
        let answer = client.confirm_claim(with_token(request, &token)).await?;
        Ok(answer.into_inner().claim.unwrap())
    }

    /// Extends the claim for a payment that has begun.
    pub(crate) async fn extend(&self, claim_id: &str, payment_id: &str) -> Result<pb::Claim, Status> {
        let request = pb::ExtendClaimRequest {
            request_id: Uuid::now_v7().to_string(),
            claim_id: claim_id.to_owned(),
            payment_id: payment_id.to_owned(),
        };
        let mut client = ClaimInternalServiceClient::new(self.channel.clone());
        let answer = client.extend_claim(self.service_request(request)).await?;
        Ok(answer.into_inner().claim.unwrap())
    }

    pub(crate) fn service_request<T>(&self, message: T) -> Request<T> {
        with_token(message, &self.service.issuer.token_for("payment", &[Role::Service]))
    }

    /// Returns the published events of type `P`, oldest first.
    pub(crate) async fn events<P: EventPayload>(&self) -> Vec<P> {
        let sql = "SELECT envelope FROM outbox WHERE topic = $1 ORDER BY seq";
        let rows = self.postgres.query("events", sql, &[&P::TOPIC]).await.unwrap();
        let envelopes = rows.iter().map(|row| column::<Vec<u8>>(row, "envelope").unwrap());
        envelopes
            .map(|bytes| P::decode(Envelope::decode(bytes.as_slice()).unwrap().payload).unwrap())
            .collect()
    }

    /// Waits until the claim is in `state`.
    pub(crate) async fn wait_for(
        &self,
        customer: &Customer,
        claim_id: &str,
        state: pb::ClaimState,
    ) -> pb::Claim {
        wait_until("the claim changes", SOON, async || {
            self.get(customer, claim_id).await.unwrap().state() == state
        })
        .await;
        self.get(customer, claim_id).await.unwrap()
    }

    /// Waits until no release is due, then checks that the holds at Inventory are those that claims use and that each
    /// allowance counts the units of its customer's claims.
    pub(crate) async fn audit(&self) {
        wait_until("no release is due", SOON, async || {
            let releasing =
                self.count("SELECT count(*) AS count FROM hold_attempt WHERE state = 'RELEASING'").await;
            releasing == 0 && self.differing_holds().await.is_none()
        })
        .await;
        let wrong_counts = "SELECT count(*) AS count FROM allowance WHERE units_taken <> (
            SELECT COALESCE(sum(unit_count), 0) FROM claim
            WHERE claim.event_id = allowance.event_id AND claim.customer_id = allowance.customer_id
                AND (state <> 'RELEASED' OR (payment_id IS NOT NULL AND release_reason <> 'REJECTED')))";
        assert_eq!(self.count(wrong_counts).await, 0, "customers' counts");
        let wrong_items = "SELECT count(*) AS count FROM claim WHERE unit_count <> (
            SELECT sum(cardinality(units)) FROM claim_item WHERE claim_item.claim_id = claim.claim_id)";
        assert_eq!(self.count(wrong_items).await, 0, "claims' items");
    }

    /// Returns the holds that claims use and those at Inventory if they differ.
    async fn differing_holds(&self) -> Option<(Vec<String>, Vec<String>)> {
        let sql = "SELECT hold_id::text AS id FROM claim WHERE state = $1 ORDER BY hold_id";
        for (state, claim_state) in [(HoldState::Held, "CLAIMED"), (HoldState::Committed, "CONFIRMED")] {
            let rows = self.postgres.query("audit", sql, &[&claim_state]).await.unwrap();
            let here: Vec<String> = rows.iter().map(|row| column(row, "id").unwrap()).collect();
            let mut there = self.inventory.ids_in(state);
            there.sort();
            if here != there {
                return Some((here, there));
            }
        }
        None
    }

    /// Like [`World::count`], for a statement built at run time.
    pub(crate) async fn count_of(&self, sql: &str) -> i64 {
        self.count(Box::leak(sql.to_owned().into_boxed_str())).await
    }

    pub(crate) async fn text(&self, sql: &'static str) -> String {
        column(&self.postgres.query_one("text", sql, &[]).await.unwrap(), "text").unwrap()
    }

    /// Changes the database directly.
    pub(crate) async fn run(&self, sql: &str) {
        let sql: &'static str = Box::leak(sql.to_owned().into_boxed_str());
        self.postgres.execute("change", sql, &[]).await.unwrap();
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        column(&self.postgres.query_one("count", sql, &[]).await.unwrap(), "count").unwrap()
    }
}

impl Customer {
    pub(crate) fn ask<T>(&self, message: T) -> Request<T> {
        with_token(message, &self.token)
    }
}

/// Returns the reason of a refusal.
pub(crate) fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("{status:?} has no reason"));
    assert_eq!(info.domain, DOMAIN);
    info.reason
}

/// Returns a metadata value of a refusal.
pub(crate) fn metadata(status: &Status, key: &str) -> String {
    status.get_details_error_info().unwrap().metadata[key].clone()
}

/// Builds a refusal as a service sends it.
pub(crate) fn refusal(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
    let metadata: std::collections::HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Status::with_error_details(code, reason, ErrorDetails::with_error_info(reason, DOMAIN, metadata))
}

pub(crate) fn to_pb(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

pub(crate) fn money(amount_minor: i64) -> Option<Money> {
    Some(Money { amount_minor, currency_code: "EUR".to_owned() })
}

/// Returns the unit numbers of a claim.
pub(crate) fn units(claim: &pb::Claim) -> Vec<u32> {
    claim.items.iter().flat_map(|item| &item.units).map(|unit| unit.number).collect()
}

fn customer_id(subject: &str) -> String {
    tokens::identity(subject).customer_id().to_string()
}

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// Starts the service with the given settings.
async fn run(stores: TestStores, settings: &[(String, String)]) -> TestService {
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (name, defaults) = (onsale_claim::SERVICE, onsale_claim::DEFAULTS);
    TestService::start_on(name, defaults, stores, &settings, onsale_claim::build).await.unwrap()
}

/// Serves a fake neighbor on a free port and returns its URL.
async fn serve<S>(tasks: &Tasks, service: S) -> String
where
    S: tonic::codegen::Service<
            tonic::codegen::http::Request<tonic::body::Body>,
            Response = tonic::codegen::http::Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        > + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let token = tasks.token();
    tasks.spawn("neighbor", async move {
        let served = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), token.cancelled_owned());
        // A test notices a failed server by its failing calls.
        let _ = served.await;
    });
    url
}
