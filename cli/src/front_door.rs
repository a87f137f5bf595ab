//! The front door as its users have it: an address, a sign-in, and the public contracts. Nothing here knows what is behind.

use std::{fmt, str::FromStr, time::Duration};

use onsale_kit::{
    backoff::{Retry, retry},
    deadline::Deadline,
};
use onsale_proto::{
    claim::v1::claim_service_client::ClaimServiceClient,
    inventory::v1::{
        event_service_client::EventServiceClient, inventory_service_client::InventoryServiceClient,
        quota_service_client::QuotaServiceClient,
    },
    payment::v1::payment_service_client::PaymentServiceClient,
    queue::v1::{
        queue_admin_service_client::QueueAdminServiceClient, queue_service_client::QueueServiceClient,
    },
    ticketing::v1::ticket_service_client::TicketServiceClient,
};
use serde::{Deserialize, Serialize};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::patience::backoff;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For how long a sign-in is tried again.
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a plain HTTP request may take.
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why nothing could be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address is none.
    #[error("{url:?} is not an address like http://127.0.0.1:8080")]
    Address {
        /// What was given.
        url: String,
    },
    /// The HTTP client could not be made.
    #[error("failed to prepare HTTP")]
    Http(#[source] reqwest::Error),
    /// Nobody answers, or not as a front door does.
    #[error("failed to sign in at {url}")]
    SignIn {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The sign-in was refused.
    #[error("the sign-in at {url} answered {status}: {body}")]
    SignInRefused {
        /// Where.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        body: String,
    },
    /// The token cannot stand in a header.
    #[error("the sign-in answered a token that is none")]
    Token,
}

/// A front door: Envoy, or the gateway itself.
#[derive(Clone, Debug)]
pub struct FrontDoor {
    url: String,
    channel: Channel,
    http: reqwest::Client,
}

/// What the development sign-in is told.
#[derive(Debug, Serialize)]
struct SignIn<'a> {
    email: &'a str,
    roles: &'a [&'a str],
    locale: &'a str,
}

/// What it answers, as far as it matters here.
#[derive(Debug, Deserialize)]
struct SignedIn {
    token: String,
    customer_id: String,
    organizer_id: String,
}

impl FrontDoor {
    /// Opens it at `url`; connects when the first call needs it.
    pub fn at(url: &str) -> Result<Self, DoorError> {
        let bad = || DoorError::Address { url: url.to_owned() };
        let url = url.trim_end_matches('/');
        let endpoint = Endpoint::from_str(url).map_err(|_| bad())?.connect_timeout(CONNECT_TIMEOUT);
        if endpoint.uri().scheme().is_none() || endpoint.uri().host().is_none() {
            return Err(bad());
        }
        // As gRPC goes: straight there. A proxy for the world outside does not know this machine's ports.
        let http = reqwest::Client::builder().timeout(HTTP_TIMEOUT).no_proxy().build();
        let http = http.map_err(DoorError::Http)?;
        Ok(Self { url: url.to_owned(), channel: endpoint.connect_lazy(), http })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// For plain HTTP beside it: a provider's page, caught mail.
    #[must_use]
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The connection, for calls that need no name.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Signs somebody in at the development issuer. The same address is the same person, always.
    /// A front door that answers but whose gateway is away for the moment is asked again.
    pub async fn sign_in(&self, email: &str, role: &str) -> Result<Person, DoorError> {
        let again = |error: &DoorError| match error {
            DoorError::SignInRefused { status: 500.., .. } => Retry::Later,
            _ => Retry::Never,
        };
        let attempt = || self.sign_in_once(email, role);
        retry(Deadline::after(SIGN_IN_TIME_MAX), backoff(), again, attempt).await
    }

    async fn sign_in_once(&self, email: &str, role: &str) -> Result<Person, DoorError> {
        let url = format!("{}/dev/sign-in", self.url);
        let failed = |source| DoorError::SignIn { url: url.clone(), source };
        let body = SignIn { email, roles: &[role], locale: "en" };
        let answer = self.http.post(&url).json(&body).send().await.map_err(failed)?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.text().await.map_err(failed)?;
            return Err(DoorError::SignInRefused { url, status: status.as_u16(), body });
        }
        let signed_in: SignedIn = answer.json().await.map_err(failed)?;
        let bearer = format!("Bearer {}", signed_in.token).parse().map_err(|_| DoorError::Token)?;
        Ok(Person {
            email: email.to_owned(),
            customer_id: signed_in.customer_id,
            organizer_id: signed_in.organizer_id,
            token: signed_in.token,
            stub: InterceptedService::new(self.channel.clone(), Bearer(bearer)),
        })
    }
}

/// Shows a token with every call.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// The connection of somebody who is signed in.
pub type Stub = InterceptedService<Channel, Bearer>;

/// Somebody who is signed in.
#[derive(Clone)]
pub struct Person {
    /// Where their mail goes.
    pub email: String,
    /// Who they are when they buy.
    pub customer_id: String,
    /// Who they are when they sell.
    pub organizer_id: String,
    /// Their token, for clients of another kind.
    pub token: String,
    stub: Stub,
}

impl fmt::Debug for Person {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token: whoever has it is this person.
        formatter.debug_struct("Person").field("email", &self.email).finish_non_exhaustive()
    }
}

impl Person {
    /// Their place in line.
    #[must_use]
    pub fn queue(&self) -> QueueServiceClient<Stub> {
        QueueServiceClient::new(self.stub.clone())
    }

    /// The queues they steer.
    #[must_use]
    pub fn queue_admin(&self) -> QueueAdminServiceClient<Stub> {
        QueueAdminServiceClient::new(self.stub.clone())
    }

    /// Events.
    #[must_use]
    pub fn events(&self) -> EventServiceClient<Stub> {
        EventServiceClient::new(self.stub.clone())
    }

    /// What is free.
    #[must_use]
    pub fn inventory(&self) -> InventoryServiceClient<Stub> {
        InventoryServiceClient::new(self.stub.clone())
    }

    /// Quotas and invitations.
    #[must_use]
    pub fn quotas(&self) -> QuotaServiceClient<Stub> {
        QuotaServiceClient::new(self.stub.clone())
    }

    /// Their claims.
    #[must_use]
    pub fn claims(&self) -> ClaimServiceClient<Stub> {
        ClaimServiceClient::new(self.stub.clone())
    }

    /// Their payments.
    #[must_use]
    pub fn payments(&self) -> PaymentServiceClient<Stub> {
        PaymentServiceClient::new(self.stub.clone())
    }

    /// Their tickets.
    #[must_use]
    pub fn tickets(&self) -> TicketServiceClient<Stub> {
        TicketServiceClient::new(self.stub.clone())
    }
}
