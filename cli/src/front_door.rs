//! Client of the front door: its address, the development sign-in and the public contracts. It must not use internal contracts.

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

use crate::retry::backoff;

/// Longest time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time over all attempts of one sign-in.
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest time of one plain HTTP request.
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// Failure to open the front door or to sign in.
#[derive(Debug, thiserror::Error)]
pub enum FrontDoorError {
    /// The address is not a URL with a scheme and a host.
    #[error("{url:?} is not an address like http://127.0.0.1:8080")]
    Address {
        /// The address as given.
        url: String,
    },
    /// The HTTP client could not be created.
    #[error("failed to create an HTTP client")]
    Http(#[source] reqwest::Error),
    /// No response, or not the response of a front door.
    #[error("failed to sign in at {url}")]
    SignIn {
        /// URL of the sign-in.
        url: String,
        /// Error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The sign-in returned an error status.
    #[error("sign-in at {url} returned {status}: {body}")]
    SignInRefused {
        /// URL of the sign-in.
        url: String,
        /// HTTP status code.
        status: u16,
        /// Response body.
        body: String,
    },
    /// The token contains characters that a header may not have.
    #[error("sign-in returned an invalid token")]
    Token,
}

/// Connection to a front door, which is Envoy or the gateway itself.
#[derive(Clone, Debug)]
pub struct FrontDoor {
    url: String,
    channel: Channel,
    http: reqwest::Client,
}

/// Request body of the development sign-in.
#[derive(Debug, Serialize)]
struct SignIn<'a> {
    email: &'a str,
    roles: &'a [&'a str],
    locale: &'a str,
}

/// Response body of the development sign-in, without the fields that are not used here.
#[derive(Debug, Deserialize)]
struct SignedIn {
    token: String,
    customer_id: String,
    organizer_id: String,
}

impl FrontDoor {
    /// Returns the front door at `url`. The first call connects.
    pub fn at(url: &str) -> Result<Self, FrontDoorError> {
        let bad = || FrontDoorError::Address { url: url.to_owned() };
        let url = url.trim_end_matches('/');
        let endpoint = Endpoint::from_str(url).map_err(|_| bad())?.connect_timeout(CONNECT_TIMEOUT);
        if endpoint.uri().scheme().is_none() || endpoint.uri().host().is_none() {
            return Err(bad());
        }
        // No proxy, as for gRPC: an HTTP proxy of the environment cannot reach ports of this machine.
        let http = reqwest::Client::builder().timeout(HTTP_TIMEOUT).no_proxy().build();
        let http = http.map_err(FrontDoorError::Http)?;
        Ok(Self { url: url.to_owned(), channel: endpoint.connect_lazy(), http })
    }

    /// Returns the URL of the front door, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the HTTP client, for the provider's page and the mail catcher as well.
    #[must_use]
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Returns the connection for calls without a token.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Signs in at the development issuer, which gives an email address the same ids every time. Retries server errors (5xx),
    /// such as those of Envoy while the gateway is unavailable, for up to 30 s.
    pub async fn sign_in(&self, email: &str, role: &str) -> Result<Person, FrontDoorError> {
        let again = |error: &FrontDoorError| match error {
            FrontDoorError::SignInRefused { status: 500.., .. } => Retry::Later,
            _ => Retry::Never,
        };
        let attempt = || self.sign_in_once(email, role);
        retry(Deadline::after(SIGN_IN_TIME_MAX), backoff(), again, attempt).await
    }

    async fn sign_in_once(&self, email: &str, role: &str) -> Result<Person, FrontDoorError> {
        let url = format!("{}/dev/sign-in", self.url);
        let failed = |source| FrontDoorError::SignIn { url: url.clone(), source };
        let body = SignIn { email, roles: &[role], locale: "en" };
        let answer = self.http.post(&url).json(&body).send().await.map_err(failed)?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.text().await.map_err(failed)?;
            return Err(FrontDoorError::SignInRefused { url, status: status.as_u16(), body });
        }
        let signed_in: SignedIn = answer.json().await.map_err(failed)?;
        let bearer = format!("Bearer {}", signed_in.token).parse().map_err(|_| FrontDoorError::Token)?;
        Ok(Person {
            email: email.to_owned(),
            customer_id: signed_in.customer_id,
            organizer_id: signed_in.organizer_id,
            token: signed_in.token,
            stub: InterceptedService::new(self.channel.clone(), Bearer(bearer)),
        })
    }
}

/// Adds the token of a user to every call.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Connection of a signed-in user.
pub type Stub = InterceptedService<Channel, Bearer>;

/// A signed-in user.
#[derive(Clone)]
pub struct Person {
    /// Address that signed in and receives the user's mail.
    pub email: String,
    /// UUID of the user in the role of a customer.
    pub customer_id: String,
    /// UUID of the user in the role of an organizer.
    pub organizer_id: String,
    /// Bearer token, for clients that do not use the stubs below.
    pub token: String,
    stub: Stub,
}

impl fmt::Debug for Person {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token, which is a credential.
        formatter.debug_struct("Person").field("email", &self.email).finish_non_exhaustive()
    }
}

impl Person {
    /// Returns a client of `QueueService`.
    #[must_use]
    pub fn queue(&self) -> QueueServiceClient<Stub> {
        QueueServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `QueueAdminService`.
    #[must_use]
    pub fn queue_admin(&self) -> QueueAdminServiceClient<Stub> {
        QueueAdminServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `EventService`.
    #[must_use]
    pub fn events(&self) -> EventServiceClient<Stub> {
        EventServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `InventoryService`.
    #[must_use]
    pub fn inventory(&self) -> InventoryServiceClient<Stub> {
        InventoryServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `QuotaService`.
    #[must_use]
    pub fn quotas(&self) -> QuotaServiceClient<Stub> {
        QuotaServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `ClaimService`.
    #[must_use]
    pub fn claims(&self) -> ClaimServiceClient<Stub> {
        ClaimServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `PaymentService`.
    #[must_use]
    pub fn payments(&self) -> PaymentServiceClient<Stub> {
        PaymentServiceClient::new(self.stub.clone())
    }

    /// Returns a client of `TicketService`.
    #[must_use]
    pub fn tickets(&self) -> TicketServiceClient<Stub> {
        TicketServiceClient::new(self.stub.clone())
    }
}
