//! What Payment does, one file per call or job: load, decide, save.

mod create_payment;
mod get_payment;
mod handle_webhook;
mod initialize_payment;
mod poll_provider;
mod record;
mod refund_payment;
mod run_due_steps;
mod send_refund;
mod settle_payment;
mod watch_payment;

use std::{sync::Arc, time::Duration};

use onsale_storage::{
    Stores,
    redis::{Hints, Keyspace},
};
use onsale_types::{Clock, PaymentId};

pub use self::{get_payment::Viewer, run_due_steps::Wakes};
use crate::{
    clients::{Claims, Events, PaymentProvider, Providers, Tickets},
    config::{PaymentsConfig, WorkConfig},
    domain::{Payment, Provider, Step},
    error::Error,
};

/// How much longer than a provider's call the one who makes it has for the rest, before a worker takes the payment up.
const INITIALIZE_MARGIN: Duration = Duration::from_secs(1);

/// How long whoever asked for a refund has to have the tickets become void, before a worker does it.
const VOID_PATIENCE: Duration = Duration::from_secs(5);

/// Shared by handlers and workers.
pub struct App {
    /// Postgres, Redis and events.
    pub stores: Stores,
    /// Where watchers hear of changes.
    pub hints: Hints,
    /// Payment's names in Redis.
    pub keys: Keyspace,
    /// Claim.
    pub claims: Claims,
    /// Inventory.
    pub events: Events,
    /// Ticketing.
    pub tickets: Tickets,
    /// Who takes money.
    pub providers: Providers,
    /// Who takes it when nobody says.
    pub default_provider: Provider,
    /// How long a provider's call may take.
    pub provider_timeout: Duration,
    /// The time of day, for what others signed or dated.
    pub clock: Arc<dyn Clock>,
    /// Base URL of the web app.
    pub web_url: String,
    /// Origins that clients may send customers to.
    pub origins: Vec<String>,
    /// The life of payments.
    pub payments: PaymentsConfig,
    /// Background work.
    pub work: WorkConfig,
    /// Wakes the workers of each step.
    pub wakes: Wakes,
}

impl App {
    fn provider(&self, provider: Provider) -> Result<&Arc<dyn PaymentProvider>, Error> {
        self.providers.get(provider).ok_or(Error::ProviderNotConfigured { provider })
    }

    /// When a worker takes up what is next for `payment`.
    fn due(&self, payment: &Payment) -> Duration {
        match payment.next_step() {
            // Whoever created it asks first.
            Some(Step::Initialize) => self.initialize_patience(),
            Some(Step::Ask) => self.work.ask_after,
            // Whoever asked for it sees to the tickets first.
            Some(Step::Refund) if payment.has_tickets() => VOID_PATIENCE,
            Some(Step::Settle | Step::Refund) | None => Duration::ZERO,
        }
    }

    /// How long whoever created a payment has to open it.
    fn initialize_patience(&self) -> Duration {
        self.provider_timeout.saturating_add(INITIALIZE_MARGIN)
    }

    /// Our own page of a payment.
    fn page(&self, payment: PaymentId, query: &str) -> String {
        format!("{}/payments/{payment}{query}", self.web_url.trim_end_matches('/'))
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").field("providers", &self.providers).finish_non_exhaustive()
    }
}
