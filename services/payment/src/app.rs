//! Use cases of Payment: one file per RPC, payment step or job. Each loads, decides and saves; none encodes a message.

mod create_payment;
mod delete_old_webhooks;
mod get_payment;
mod handle_webhook;
mod initialize_payment;
mod poll_provider;
mod refund_payment;
mod run_due_steps;
mod send_refund;
mod settle_payment;
mod watch_payment;

use std::{fmt, sync::Arc, time::Duration};

use onsale_storage::Stores;
use onsale_types::{Clock, PaymentId, RequestId};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    clients::{ClaimClient, InventoryClient, PaymentProvider, Providers, TicketingClient},
    config::{PaymentsConfig, WorkConfig},
    domain::{PaymentStep, Provider},
    engine::PaymentChanges,
    error::Error,
};

/// Shared by the gRPC handlers and the workers.
pub(crate) struct App {
    pub(crate) stores: Stores,
    pub(crate) changes: PaymentChanges,
    pub(crate) claims: ClaimClient,
    pub(crate) inventory: InventoryClient,
    pub(crate) ticketing: TicketingClient,
    pub(crate) providers: Providers,
    /// Provider used when the request names none.
    pub(crate) default_provider: Provider,
    /// Timeout of one call to a provider.
    pub(crate) provider_timeout: Duration,
    /// Time of day, for comparison with times that other systems signed or set.
    pub(crate) clock: Arc<dyn Clock>,
    /// Base URL of the web app, without a slash at the end.
    pub(crate) web_url: String,
    pub(crate) payments: PaymentsConfig,
    pub(crate) work: WorkConfig,
}

impl App {
    /// Returns the source of hints for the worker of `step`.
    pub(crate) fn worker_hints(&self, step: PaymentStep) -> Arc<Notify> {
        self.changes.worker_hints(step)
    }

    fn provider(&self, provider: Provider) -> Result<&Arc<dyn PaymentProvider>, Error> {
        self.providers.get(provider).ok_or(Error::ProviderNotConfigured { provider })
    }
}

/// Returns the id of the payment's only refund. It is derived, so every attempt uses the same one.
fn refund_id(payment_id: PaymentId) -> Uuid {
    RequestId::derive(payment_id.as_uuid(), "refund").as_uuid()
}

impl fmt::Debug for App {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("App").field("providers", &self.providers).finish_non_exhaustive()
    }
}
