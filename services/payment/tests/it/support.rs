//! Environment of Payment in a test: the sandbox provider, fake neighbors, and a fake gateway that passes webhooks on.

pub(crate) mod neighbors;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use onsale_kit::{backoff::BackoffConfig, tasks::Tasks};
use onsale_proto::{
    auth::v1::Role,
    events::v1::Envelope,
    payment::v1::{
        CreatePaymentRequest, GetPaymentRequest, HandleWebhookRequest, HandleWebhookResponse, Payment,
        PaymentState, Provider as PbProvider, WebhookHeader, get_payment_request::Lookup,
        payment_internal_service_client::PaymentInternalServiceClient,
        payment_service_client::PaymentServiceClient,
    },
};
use onsale_sandbox::payments::{Config as ProviderConfig, Provider};
use onsale_storage::postgres::{Postgres, column};
use onsale_testkit::{
    service::{TestService, TestStores},
    stack, tokens, wait_until,
};
use onsale_types::{ClaimId, CustomerId, OrganizerId, RequestId};
use prost::Message;
use ring::hmac;
use tonic::{Request, Response, Status, metadata::MetadataValue, transport::Channel};
use tonic_types::StatusExt;

use self::neighbors::Neighbors;

pub(crate) const WEBHOOK_SECRET: &str = "whsec_test";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
const KEY: &str = "sk_test";

/// Short intervals, so that tests are fast. Providers are polled only where a test asks for it ([`POLLING`]).
const SETTINGS: [(&str, &str); 5] = [
    ("WORK__SWEEP_EVERY", "50ms"),
    ("WORK__RETRY_INITIAL", "50ms"),
    ("WORK__RETRY_MAX", "200ms"),
    ("WORK__ASK_AFTER", "1h"),
    ("PROVIDERS__HTTP__TIMEOUT", "2s"),
];
/// Polls the provider 50 ms after a payment became PENDING.
pub(crate) const POLLING: [(&str, &str); 1] = [("WORK__ASK_AFTER", "50ms")];

/// A running Payment with its environment.
pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) neighbors: Neighbors,
    pub(crate) service: TestService,
    /// `None` while the service is stopped.
    gateway: Arc<Mutex<Option<Gateway>>>,
    settings: Vec<(String, String)>,
    _tasks: Tasks,
}

/// The gateway's connection to the service.
#[derive(Clone)]
struct Gateway {
    channel: Channel,
    token: String,
}

pub(crate) struct Person {
    pub(crate) token: String,
    pub(crate) customer_id: CustomerId,
    pub(crate) organizer_id: OrganizerId,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// Starts a service with `settings` in addition to the usual ones.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let retry = BackoffConfig {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(200),
            multiplier: 2,
            attempts_max: 1_000,
        };
        let config = ProviderConfig { webhook_retry: retry, ..ProviderConfig::new(KEY, WEBHOOK_SECRET) };
        let provider = Provider::start(config).await.unwrap();
        let neighbors = Neighbors::start().await;
        let (gateway, tasks) = (Arc::new(Mutex::new(None)), Tasks::new());
        let address = start_gateway(Arc::clone(&gateway), &tasks).await;
        provider.set_webhook_url(Some(format!("http://{address}/webhooks/sandbox")));
        let target = format!("http://{}", neighbors.address);
        let url = provider.url();
        let environment = [
            ("NEIGHBOURS__CLAIM__TARGET", target.as_str()),
            ("NEIGHBOURS__INVENTORY__TARGET", target.as_str()),
            ("NEIGHBOURS__TICKETING__TARGET", target.as_str()),
            ("PROVIDERS__SANDBOX__URL", url.as_str()),
            ("PROVIDERS__SANDBOX__SECRET_KEY", KEY),
            ("PROVIDERS__SANDBOX__WEBHOOK_SECRET", WEBHOOK_SECRET),
        ];
        let all = environment.iter().chain(&SETTINGS).chain(settings);
        let settings: Vec<_> = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let stores =
            TestStores { database: stack::database().await.unwrap(), redis: stack::redis().await.unwrap() };
        let service = start(stores, &settings).await;
        let world = Self { provider, neighbors, service, gateway, settings, _tasks: tasks };
        world.connect_gateway().await;
        world
    }

    /// Stops the service, runs `meanwhile`, and starts the service again on the same stores.
    pub(crate) async fn restart(mut self, meanwhile: impl AsyncFnOnce(&Provider, &Neighbors)) -> Self {
        *self.gateway.lock().unwrap() = None;
        let TestService { server, database, redis, .. } = self.service;
        assert!(server.shutdown().await.is_clean());
        meanwhile(&self.provider, &self.neighbors).await;
        self.service = start(TestStores { database, redis }, &self.settings).await;
        self.connect_gateway().await;
        self
    }

    pub(crate) async fn stop(self) {
        *self.gateway.lock().unwrap() = None;
        self.service.server.shutdown().await;
        self.provider.stop().await;
    }

    async fn connect_gateway(&self) {
        let channel = self.service.channel().await.unwrap();
        let token = self.service.issuer.token_for("gateway", &[Role::Service]);
        *self.gateway.lock().unwrap() = Some(Gateway { channel, token });
    }

    /// Returns a person with a token. The ids depend on the name only, so they survive a restart.
    pub(crate) fn person(&self, name: &str, roles: &[Role]) -> Person {
        let identity = tokens::identity(name);
        Person {
            token: self.service.issuer.token_for(name, roles),
            customer_id: identity.customer_id(),
            organizer_id: identity.organizer_id(),
        }
    }

    pub(crate) fn customer(&self, name: &str) -> Person {
        self.person(name, &[Role::Customer])
    }

    pub(crate) async fn payments(&self) -> PaymentServiceClient<Channel> {
        PaymentServiceClient::new(self.service.channel().await.unwrap())
    }

    pub(crate) async fn create(&self, person: &Person, claim_id: ClaimId) -> Result<Payment, Status> {
        self.create_with(person, create_request(claim_id)).await
    }

    pub(crate) async fn create_with(
        &self,
        person: &Person,
        request: CreatePaymentRequest,
    ) -> Result<Payment, Status> {
        let answer = self.payments().await.create_payment(with_token(&person.token, request)).await?;
        Ok(answer.into_inner().payment.unwrap())
    }

    /// Creates a claim of Ana's and a PENDING payment of it.
    pub(crate) async fn pending(&self) -> (Person, ClaimId, Payment) {
        let ana = self.customer("ana");
        let claim_id = self.neighbors.claim(ana.customer_id);
        let payment = self.create(&ana, claim_id).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Pending, "{payment:?}");
        (ana, claim_id, payment)
    }

    pub(crate) async fn get(&self, person: &Person, payment_id: &str) -> Result<Payment, Status> {
        let lookup = Some(Lookup::PaymentId(payment_id.to_owned()));
        let request = with_token(&person.token, GetPaymentRequest { lookup });
        let answer = self.payments().await.get_payment(request).await?;
        Ok(answer.into_inner().payment.unwrap())
    }

    /// Waits until the payment is in `state` and returns it.
    pub(crate) async fn until(&self, person: &Person, payment_id: &str, state: PaymentState) -> Payment {
        wait_until(&format!("the payment is {state:?}"), TIMEOUT, || async {
            self.get(person, payment_id).await.unwrap().state() == state
        })
        .await;
        self.get(person, payment_id).await.unwrap()
    }

    /// Presses `pay`, `decline` or `cancel` on the provider's page.
    pub(crate) async fn press_button(&self, payment: &Payment, button: &str) {
        let url = format!("{}/{button}", payment.checkout_url);
        let request = reqwest::Client::new().post(url).header("accept", "application/json");
        assert!(request.send().await.unwrap().status().is_success());
    }

    /// Sends a webhook of the sandbox as the gateway does.
    pub(crate) async fn send_webhook(
        &self,
        header: &str,
        body: &[u8],
    ) -> Result<HandleWebhookResponse, Status> {
        self.send_webhook_as(PbProvider::Sandbox, header, body).await
    }

    /// Sends a webhook as if it had arrived at the path of `provider`.
    pub(crate) async fn send_webhook_as(
        &self,
        provider: PbProvider,
        header: &str,
        body: &[u8],
    ) -> Result<HandleWebhookResponse, Status> {
        let gateway = self.gateway.lock().unwrap().clone().unwrap();
        let headers = vec![("stripe-signature".to_owned(), header.as_bytes().to_vec())];
        pass_on(&gateway, provider, headers, body.to_vec()).await
    }

    /// Sends an event as a webhook of the sandbox, signed now.
    pub(crate) async fn send_signed_webhook(
        &self,
        event: &serde_json::Value,
    ) -> Result<HandleWebhookResponse, Status> {
        let body = event.to_string();
        self.send_webhook(&signature(now_seconds(), body.as_bytes()), body.as_bytes()).await
    }

    pub(crate) async fn postgres(&self) -> Postgres {
        Postgres::connect(&self.service.database.config("payment")).await.unwrap()
    }

    /// Returns the published events of type `P` about a claim, oldest first.
    pub(crate) async fn events<P: onsale_proto::EventPayload>(&self, claim_id: ClaimId) -> Vec<P> {
        let sql = "SELECT envelope FROM outbox WHERE topic = $1 AND key = $2 ORDER BY seq";
        let postgres = self.postgres().await;
        let rows = postgres.query("read outbox", sql, &[&P::TOPIC, &claim_id.to_string()]).await.unwrap();
        let envelopes = rows.iter().map(|row| column::<&[u8]>(row, "envelope").unwrap());
        envelopes.map(|bytes| P::decode(Envelope::decode(bytes).unwrap().payload).unwrap()).collect()
    }

    /// Waits until no payment has a next step.
    pub(crate) async fn until_all_steps_are_done(&self) {
        let postgres = self.postgres().await;
        wait_until("no payment has a next step", TIMEOUT, || async {
            let sql = "SELECT 1 FROM payment WHERE step IS NOT NULL";
            postgres.query("look", sql, &[]).await.unwrap().is_empty()
        })
        .await;
    }
}

async fn start(stores: TestStores, settings: &[(String, String)]) -> TestService {
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (name, defaults) = (onsale_payment::SERVICE, onsale_payment::DEFAULTS);
    TestService::start_on(name, defaults, stores, &settings, onsale_payment::build).await.unwrap()
}

/// Serves `POST /webhooks/sandbox` and returns the address.
async fn start_gateway(gateway: Arc<Mutex<Option<Gateway>>>, tasks: &Tasks) -> SocketAddr {
    let router = Router::new().route("/webhooks/sandbox", post(receive)).with_state(gateway);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn("gateway", async move { axum::serve(listener, router).await.unwrap() });
    address
}

async fn receive(
    State(gateway): State<Arc<Mutex<Option<Gateway>>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let Some(gateway) = gateway.lock().unwrap().clone() else { return StatusCode::SERVICE_UNAVAILABLE };
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    match pass_on(&gateway, PbProvider::Sandbox, headers, body.to_vec()).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

async fn pass_on(
    gateway: &Gateway,
    provider: PbProvider,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
) -> Result<HandleWebhookResponse, Status> {
    let headers = headers.into_iter().map(|(name, value)| WebhookHeader { name, value }).collect();
    let receive_time = Some(prost_types::Timestamp { seconds: now_seconds(), nanos: 0 });
    let request = HandleWebhookRequest { provider: provider.into(), headers, body, receive_time };
    let mut client = PaymentInternalServiceClient::new(gateway.channel.clone());
    client.handle_webhook(with_token(&gateway.token, request)).await.map(Response::into_inner)
}

pub(crate) fn create_request(claim_id: ClaimId) -> CreatePaymentRequest {
    CreatePaymentRequest {
        request_id: RequestId::generate().to_string(),
        claim_id: claim_id.to_string(),
        ..CreatePaymentRequest::default()
    }
}

/// Returns a request with a bearer token.
pub(crate) fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// Returns the reason in the error details. Empty if there is none.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Returns a metadata value of the error details. Empty if it is missing.
pub(crate) fn metadata(status: &Status, key: &str) -> String {
    let info = status.get_details_error_info().unwrap();
    info.metadata.get(key).cloned().unwrap_or_default()
}

pub(crate) fn now_seconds() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

/// Returns the signature header of a webhook that the provider signed at `time`.
pub(crate) fn signature(time: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, WEBHOOK_SECRET.as_bytes());
    let tag = hmac::sign(&key, &[format!("{time}.").as_bytes(), body].concat());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={time},v1={hex}")
}

/// Returns a provider's event about a session of `payment`.
pub(crate) fn session_event(id: &str, kind: &str, payment: &Payment, is_paid: bool) -> serde_json::Value {
    let status = if kind.ends_with("expired") { "expired" } else { "complete" };
    let amount = payment.amount.as_ref().unwrap();
    serde_json::json!({
        "id": id, "object": "event", "type": kind,
        "data": { "object": {
            "id": "cs_by_hand", "object": "checkout.session", "status": status,
            "payment_status": if is_paid { "paid" } else { "unpaid" },
            "payment_intent": "pi_by_hand",
            "amount_total": amount.amount_minor, "currency": amount.currency_code.to_lowercase(),
            "metadata": { "payment_id": payment.payment_id },
        } },
    })
}
