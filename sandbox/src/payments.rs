//! A payment provider with a subset of Stripe's HTTP API: checkout sessions, refunds, signed webhooks, and a page on which
//! a person pays, declines or cancels. Tests can inject the faults of real providers with [`Behaviour`].
//!
//! A journal keeps sessions, refunds, idempotent responses and undelivered webhooks across restarts. The provider moves no
//! money and must never be reachable from a production system; Payment refuses to start with it in production.
//!
//! | call | caller | effect |
//! |---|---|---|
//! | `POST /v1/checkout/sessions` | merchant | opens a session; `Idempotency-Key` as at Stripe |
//! | `GET /v1/checkout/sessions/{id}` | merchant | returns the session; `expand[]=payment_intent` includes the payment |
//! | `POST /v1/checkout/sessions/{id}/expire` | merchant | ends an open session |
//! | `POST /v1/refunds`, `GET /v1/refunds/{id}` | merchant | refunds a payment in full, once |
//! | `GET /v1/payment_intents/{id}` | merchant | returns the payment of a session |
//! | `GET /checkout/{session}` | customer | shows the checkout page |
//! | `POST /checkout/{session}/{pay,decline,cancel}` | customer | page buttons; returns JSON with `Accept: application/json` |
//! | `GET`, `POST /sandbox/behaviour` | tester | a [`Behaviour`] as JSON; omitted fields are reset to their defaults |

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

/// Interval between two searches for expired sessions.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for open calls and deliveries in [`Provider::stop`].
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a provider. [`Config::new`] has defaults for everything except the two secrets.
#[derive(Clone)]
pub struct Config {
    /// Listening address. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Path of the journal; created if missing, replayed at the start if present. `None`: state is kept in memory only.
    pub data_file: Option<PathBuf>,
    /// Key that merchants send as `Authorization: Bearer …`.
    pub secret_key: String,
    /// Key of the HMAC-SHA256 signature of each webhook.
    pub webhook_secret: String,
    /// Receiver of webhooks. `None`: webhooks wait for [`Provider::set_webhook_url`].
    pub webhook_url: Option<String>,
    /// Base URL of checkout pages, needed if browsers reach the provider under another name. `None`: the listening address.
    pub public_url: Option<String>,
    /// Backoff between delivery attempts. A webhook is abandoned after `attempts_max` attempts (default: about three days).
    pub webhook_retry: BackoffConfig,
    /// Time source for expiry and signatures.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// Returns settings for a free loopback port, without a journal and without a webhook URL.
    #[must_use]
    pub fn new(secret_key: impl Into<String>, webhook_secret: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_file: None,
            secret_key: secret_key.into(),
            webhook_secret: webhook_secret.into(),
            webhook_url: None,
            public_url: None,
            // About three days: each delay is random, 30 s on average once the maximum is reached.
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

/// Reasons for a failed start of a [`Provider`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port cannot be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The journal cannot be opened or replayed.
    #[error("failed to open the journal")]
    Journal(#[source] JournalError),
    /// The HTTP client for webhooks cannot be built.
    #[error("failed to build the HTTP client for webhooks")]
    Client(#[source] reqwest::Error),
}

/// A running provider. Dropping it does not stop it; call [`Provider::stop`].
pub struct Provider {
    address: SocketAddr,
    faults: FaultInjector,
    webhook_url: watch::Sender<Option<String>>,
    state: Arc<ProviderState>,
    tasks: Tasks,
}

/// State shared by all HTTP handlers.
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
    /// Opens the journal, starts to listen and resumes the delivery of undelivered webhooks.
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

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL of the API, for the settings of a merchant.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the receiver of all further webhooks, waiting ones included. `None`: webhooks wait.
    pub fn set_webhook_url(&self, url: Option<String>) {
        self.webhook_url.send_replace(url);
    }

    /// Replaces the injected faults.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.faults.set(behaviour);
    }

    /// Returns the number of webhooks that are neither delivered nor abandoned.
    #[must_use]
    pub fn webhooks_waiting(&self) -> usize {
        self.state.undelivered().len()
    }

    /// Returns the number of sessions ever opened.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.state.read(|data| data.sessions.len())
    }

    /// Returns the number of refunds.
    #[must_use]
    pub fn refund_count(&self) -> usize {
        self.state.read(|data| data.refunds.len())
    }

    /// Stops listening and sending, after at most 5 s. Undelivered webhooks remain in the journal.
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
