//! A payment provider that speaks the dialect of Stripe over real HTTP: checkout sessions, refunds, signed webhooks, and a
//! page where a person pays, declines or turns back. It can be told to misbehave as real providers do.
//!
//! What is asked of it and what it owes is kept in a journal, so that a restart forgets neither a session nor a webhook.
//! It takes no money and must never be reachable from a production system: Payment refuses to start with it there.
//!
//! | call | who | what |
//! |---|---|---|
//! | `POST /v1/checkout/sessions` | merchant | opens a session; `Idempotency-Key` as at Stripe |
//! | `GET /v1/checkout/sessions/{id}` | merchant | the session; `expand[]=payment_intent` |
//! | `POST /v1/checkout/sessions/{id}/expire` | merchant | ends an open session |
//! | `POST /v1/refunds`, `GET /v1/refunds/{id}` | merchant | gives a payment back, once |
//! | `GET /v1/payment_intents/{id}` | merchant | the payment behind a session |
//! | `GET /checkout/{session}` | customer | the page to pay on |
//! | `POST /checkout/{session}/{pay,decline,cancel}` | customer | the page's buttons; JSON with `Accept: application/json` |
//! | `GET`, `POST /sandbox/behaviour` | tester | a [`Behaviour`] as JSON; what is left out goes back to normal |

mod api;
mod behaviour;
mod checkout;
mod journal;
mod provider_state;
mod records;
mod session;
mod stripe_json;
mod webhooks;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use onsale_kit::{backoff::BackoffConfig, tasks::Tasks};
use onsale_types::{Clock, SystemClock};
use tokio::{net::TcpListener, sync::watch};

pub use behaviour::Behaviour;
pub use journal::JournalError;
use {behaviour::FaultInjector, provider_state::ProviderState, webhooks::Webhooks};

/// How often sessions are looked at whose time may be over.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stopping provider waits for its calls and deliveries.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// What a provider needs to know. [`Config::new`] has sensible values for all but the two secrets.
#[derive(Clone)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The journal: made when missing, replayed when there. `None` keeps everything in memory only.
    pub data_file: Option<PathBuf>,
    /// What merchants show as `Authorization: Bearer …`.
    pub secret_key: String,
    /// What webhooks are signed with.
    pub webhook_secret: String,
    /// Where webhooks go. `None`: they wait until [`Provider::set_webhook_url`].
    pub webhook_url: Option<String>,
    /// What checkout pages' addresses begin with, where people reach it by another name. `None`: its own address.
    pub public_url: Option<String>,
    /// How a webhook that was not taken is sent again; its attempts are the end.
    pub webhook_retry: BackoffConfig,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// A provider on a free port of loopback, without a journal, whose webhooks have nowhere to go yet.
    #[must_use]
    pub fn new(secret_key: impl Into<String>, webhook_secret: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_file: None,
            secret_key: secret_key.into(),
            webhook_secret: webhook_secret.into(),
            webhook_url: None,
            public_url: None,
            // About three days in all, as at Stripe.
            webhook_retry: BackoffConfig {
                initial: Duration::from_millis(200),
                max: Duration::from_secs(60),
                multiplier: 2,
                attempts_max: 8_640,
            },
            clock: Arc::new(SystemClock),
        }
    }
}

/// Why a provider could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port cannot be had.
    #[error("failed to listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The journal cannot be used.
    #[error("failed to open the journal")]
    Journal(#[source] JournalError),
    /// The client for webhooks cannot be made.
    #[error("failed to prepare the sending of webhooks")]
    Client(#[source] reqwest::Error),
}

/// A running provider. Dropping it does not stop it: [`Provider::stop`] does.
pub struct Provider {
    address: SocketAddr,
    faults: FaultInjector,
    webhook_url: watch::Sender<Option<String>>,
    state: Arc<ProviderState>,
    tasks: Tasks,
}

/// What all handlers share.
#[derive(Clone)]
struct Shared {
    state: Arc<ProviderState>,
    webhooks: Webhooks,
    faults: FaultInjector,
    secret_key: Arc<str>,
    public_url: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Provider {
    /// Opens the journal, listens, and takes up the webhooks that were not delivered before.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen { address: config.listen, source };
        let state = Arc::new(ProviderState::open(config.data_file.as_deref()).map_err(StartError::Journal)?);
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let tasks = Tasks::new();
        let faults = FaultInjector::default();
        let (webhook_url, target) = watch::channel(config.webhook_url);
        let webhooks = Webhooks::new(
            webhooks::Settings {
                secret: config.webhook_secret,
                retry: config.webhook_retry,
                clock: Arc::clone(&config.clock),
            },
            target,
            Arc::clone(&state),
            faults.clone(),
            tasks.clone(),
        )
        .map_err(StartError::Client)?;
        let public_url = config.public_url.unwrap_or_else(|| format!("http://{address}"));
        let shared = Shared {
            state: Arc::clone(&state),
            webhooks,
            faults: faults.clone(),
            secret_key: config.secret_key.into(),
            public_url: public_url.trim_end_matches('/').into(),
            clock: config.clock,
        };
        shared.webhooks.send_all(state.undelivered());
        serve(listener, shared, &tasks);
        tracing::info!(%address, "sandbox payment provider is serving");
        Ok(Self { address, faults, webhook_url, state, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL, as a merchant's settings have it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends webhooks there from now on, also those that wait.
    pub fn set_webhook_url(&self, url: Option<String>) {
        self.webhook_url.send_replace(url);
    }

    /// Behaves like this from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.faults.set(behaviour);
    }

    /// How many webhooks were not taken yet.
    #[must_use]
    pub fn webhooks_waiting(&self) -> usize {
        self.state.undelivered().len()
    }

    /// How many sessions were opened.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.state.read(|data| data.sessions.len())
    }

    /// How many refunds were made.
    #[must_use]
    pub fn refund_count(&self) -> usize {
        self.state.read(|data| data.refunds.len())
    }

    /// Stops listening and sending. What was not delivered is in the journal.
    pub async fn stop(self) {
        self.tasks.shutdown(SHUTDOWN_TIMEOUT).await;
    }
}

fn serve(listener: TcpListener, shared: Shared, tasks: &Tasks) {
    let router = api::router(shared.clone()).merge(checkout::router(shared.clone()));
    let stop = tasks.token();
    let stopped = stop.clone().cancelled_owned();
    tasks.spawn("sandbox payments", async move {
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "sandbox payment provider stopped serving");
        }
    });
    tasks.spawn("sandbox session expiry", async move {
        while stop.run_until_cancelled(tokio::time::sleep(EXPIRY_INTERVAL)).await.is_some() {
            shared.expire_due();
        }
    });
}
