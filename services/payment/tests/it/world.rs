//! Everything around Payment in a test: the sandbox provider, the faked mesh, and the gateway's door for webhooks.

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

use crate::mesh::Mesh;

pub(crate) const WEBHOOK_SECRET: &str = "whsec_test";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "sk_test";

/// Work that is quick, and providers that are asked only when a test wants it.
const SETTINGS: [(&str, &str); 5] = [
    ("WORK__SWEEP_EVERY", "50ms"),
    ("WORK__RETRY_INITIAL", "50ms"),
    ("WORK__RETRY_MAX", "200ms"),
    ("WORK__ASK_AFTER", "1h"),
    ("PROVIDERS__HTTP__TIMEOUT", "2s"),
];
/// The provider is asked soon, without a webhook.
pub(crate) const ASKING: [(&str, &str); 1] = [("WORK__ASK_AFTER", "50ms")];

/// A running Payment with everything around it.
pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) mesh: Mesh,
    pub(crate) service: TestService,
    door: Arc<Mutex<Option<Door>>>,
    settings: Vec<(String, String)>,
    _tasks: Tasks,
}

/// Where the gateway passes webhooks on to.
#[derive(Clone)]
struct Door {
    channel: Channel,
    token: String,
}

/// A person with a token.
pub(crate) struct Person {
    pub(crate) token: String,
    pub(crate) customer: CustomerId,
    pub(crate) organizer: OrganizerId,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A world whose service has these settings besides.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let retry = BackoffConfig {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(200),
            multiplier: 2,
            attempts_max: 1_000,
        };
        let config = ProviderConfig { webhook_retry: retry, ..ProviderConfig::new(KEY, WEBHOOK_SECRET) };
        let provider = Provider::start(config).await.unwrap();
        let mesh = Mesh::start().await;
        let (door, tasks) = (Arc::new(Mutex::new(None)), Tasks::new());
        let address = open_gateway(Arc::clone(&door), &tasks).await;
        provider.set_webhook_url(Some(format!("http://{address}/webhooks/sandbox")));
        let target = format!("http://{}", mesh.address);
        let url = provider.url();
        let around = [
            ("NEIGHBOURS__CLAIM__TARGET", target.as_str()),
            ("NEIGHBOURS__INVENTORY__TARGET", target.as_str()),
            ("NEIGHBOURS__TICKETING__TARGET", target.as_str()),
            ("PROVIDERS__SANDBOX__URL", url.as_str()),
            ("PROVIDERS__SANDBOX__SECRET_KEY", KEY),
            ("PROVIDERS__SANDBOX__WEBHOOK_SECRET", WEBHOOK_SECRET),
        ];
        let all = around.iter().chain(&SETTINGS).chain(settings);
        let settings: Vec<_> = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let stores =
            TestStores { database: stack::database().await.unwrap(), redis: stack::redis().await.unwrap() };
        let service = start(stores, &settings).await;
        let world = Self { provider, mesh, service, door, settings, _tasks: tasks };
        world.open_door().await;
        world
    }

    /// Stops the service and starts it anew on what it left behind, after `meanwhile`.
    pub(crate) async fn restart(mut self, meanwhile: impl AsyncFnOnce(&Provider, &Mesh)) -> Self {
        *self.door.lock().unwrap() = None;
        let TestService { server, database, redis, .. } = self.service;
        assert!(server.shutdown().await.is_clean());
        meanwhile(&self.provider, &self.mesh).await;
        self.service = start(TestStores { database, redis }, &self.settings).await;
        self.open_door().await;
        self
    }

    pub(crate) async fn stop(self) {
        *self.door.lock().unwrap() = None;
        self.service.server.shutdown().await;
        self.provider.stop().await;
    }

    async fn open_door(&self) {
        let channel = self.service.channel().await.unwrap();
        let token = self.service.issuer.token_for("gateway", &[Role::Service]);
        *self.door.lock().unwrap() = Some(Door { channel, token });
    }

    /// Somebody, for ever the same by name.
    pub(crate) fn person(&self, name: &str, roles: &[Role]) -> Person {
        let identity = tokens::identity(name);
        Person {
            token: self.service.issuer.token_for(name, roles),
            customer: identity.customer_id(),
            organizer: identity.organizer_id(),
        }
    }

    pub(crate) fn customer(&self, name: &str) -> Person {
        self.person(name, &[Role::Customer])
    }

    pub(crate) async fn payments(&self) -> PaymentServiceClient<Channel> {
        PaymentServiceClient::new(self.service.channel().await.unwrap())
    }

    pub(crate) async fn create(&self, person: &Person, claim: ClaimId) -> Result<Payment, Status> {
        self.create_with(person, creation(claim)).await
    }

    pub(crate) async fn create_with(
        &self,
        person: &Person,
        request: CreatePaymentRequest,
    ) -> Result<Payment, Status> {
        let answer = self.payments().await.create_payment(signed(&person.token, request)).await?;
        Ok(answer.into_inner().payment.unwrap())
    }

    /// A claim of Ana's, and a payment of it that waits for her.
    pub(crate) async fn pending(&self) -> (Person, ClaimId, Payment) {
        let ana = self.customer("ana");
        let claim = self.mesh.claim(ana.customer);
        let payment = self.create(&ana, claim).await.unwrap();
        assert_eq!(payment.state(), PaymentState::Pending, "{payment:?}");
        (ana, claim, payment)
    }

    pub(crate) async fn get(&self, person: &Person, payment_id: &str) -> Result<Payment, Status> {
        let lookup = Some(Lookup::PaymentId(payment_id.to_owned()));
        let request = signed(&person.token, GetPaymentRequest { lookup });
        let answer = self.payments().await.get_payment(request).await?;
        Ok(answer.into_inner().payment.unwrap())
    }

    /// Waits until the payment is in `state`.
    pub(crate) async fn until(&self, person: &Person, payment_id: &str, state: PaymentState) -> Payment {
        wait_until(&format!("the payment is {state:?}"), PATIENCE, || async {
            self.get(person, payment_id).await.unwrap().state() == state
        })
        .await;
        self.get(person, payment_id).await.unwrap()
    }

    /// Presses a button on the provider's page.
    pub(crate) async fn press(&self, payment: &Payment, button: &str) {
        let url = format!("{}/{button}", payment.checkout_url);
        let request = reqwest::Client::new().post(url).header("accept", "application/json");
        assert!(request.send().await.unwrap().status().is_success());
    }

    /// Has the service take a webhook, as the gateway does.
    pub(crate) async fn take(&self, header: &str, body: &[u8]) -> Result<HandleWebhookResponse, Status> {
        self.take_from(PbProvider::Sandbox, header, body).await
    }

    /// The same, from the path of `provider`.
    pub(crate) async fn take_from(
        &self,
        provider: PbProvider,
        header: &str,
        body: &[u8],
    ) -> Result<HandleWebhookResponse, Status> {
        let door = self.door.lock().unwrap().clone().unwrap();
        let headers = vec![("stripe-signature".to_owned(), header.as_bytes().to_vec())];
        pass_on(&door, provider, headers, body.to_vec()).await
    }

    /// The same, signed now by the provider.
    pub(crate) async fn take_signed(
        &self,
        event: &serde_json::Value,
    ) -> Result<HandleWebhookResponse, Status> {
        let body = event.to_string();
        self.take(&signature(now_seconds(), body.as_bytes()), body.as_bytes()).await
    }

    pub(crate) async fn postgres(&self) -> Postgres {
        Postgres::connect(&self.service.database.config("payment")).await.unwrap()
    }

    /// The events of `topic` about `claim`, oldest first.
    pub(crate) async fn events<P: onsale_proto::EventPayload>(&self, claim: ClaimId) -> Vec<P> {
        let sql = "SELECT envelope FROM outbox WHERE topic = $1 AND key = $2 ORDER BY seq";
        let postgres = self.postgres().await;
        let rows = postgres.query("read outbox", sql, &[&P::TOPIC, &claim.to_string()]).await.unwrap();
        let envelopes = rows.iter().map(|row| column::<&[u8]>(row, "envelope").unwrap());
        envelopes.map(|bytes| P::decode(Envelope::decode(bytes).unwrap().payload).unwrap()).collect()
    }

    /// Waits until nothing is owed to any payment.
    pub(crate) async fn until_nothing_is_owed(&self) {
        let postgres = self.postgres().await;
        wait_until("nothing is owed", PATIENCE, || async {
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

/// What the gateway does with `POST /webhooks/sandbox`.
async fn open_gateway(door: Arc<Mutex<Option<Door>>>, tasks: &Tasks) -> SocketAddr {
    let router = Router::new().route("/webhooks/sandbox", post(receive)).with_state(door);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn("gateway", async move { axum::serve(listener, router).await.unwrap() });
    address
}

async fn receive(
    State(door): State<Arc<Mutex<Option<Door>>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let Some(door) = door.lock().unwrap().clone() else { return StatusCode::SERVICE_UNAVAILABLE };
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    match pass_on(&door, PbProvider::Sandbox, headers, body.to_vec()).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

async fn pass_on(
    door: &Door,
    provider: PbProvider,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
) -> Result<HandleWebhookResponse, Status> {
    let headers = headers.into_iter().map(|(name, value)| WebhookHeader { name, value }).collect();
    let receive_time = Some(prost_types::Timestamp { seconds: now_seconds(), nanos: 0 });
    let request = HandleWebhookRequest { provider: provider.into(), headers, body, receive_time };
    let mut client = PaymentInternalServiceClient::new(door.channel.clone());
    client.handle_webhook(signed(&door.token, request)).await.map(Response::into_inner)
}

pub(crate) fn creation(claim: ClaimId) -> CreatePaymentRequest {
    CreatePaymentRequest {
        request_id: RequestId::generate().to_string(),
        claim_id: claim.to_string(),
        ..CreatePaymentRequest::default()
    }
}

/// A request with a token.
pub(crate) fn signed<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// The reason a call was refused for.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// What the reason's metadata has under `key`.
pub(crate) fn metadata(status: &Status, key: &str) -> String {
    let info = status.get_details_error_info().unwrap();
    info.metadata.get(key).cloned().unwrap_or_default()
}

pub(crate) fn now_seconds() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

/// The header of a webhook that the provider signed at `time`.
pub(crate) fn signature(time: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, WEBHOOK_SECRET.as_bytes());
    let tag = hmac::sign(&key, &[format!("{time}.").as_bytes(), body].concat());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={time},v1={hex}")
}

/// A provider's event about a session of `payment`.
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
