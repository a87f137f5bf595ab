//! What Ticketing does, one file per use case. Handlers, consumers and workers share one [`App`].

pub mod check_in_ticket;
pub mod event_created;
pub mod generate_tickets;
pub mod issue_tickets;
pub mod list_tickets;
pub mod void_tickets;
pub mod watch_generation;

use std::sync::Arc;

use onsale_storage::Stores;
use onsale_types::{Clock, EventId, OrganizerId};
use tokio::sync::Notify;

use crate::{
    config::{GenerationConfig, IssuingConfig},
    domain::code::Codes,
    error::Error,
    store::events,
};

/// What all use cases share.
pub struct App {
    /// Postgres, Redis, outbox.
    pub stores: Stores,
    /// The keys of codes.
    pub codes: Codes,
    /// How tickets are made.
    pub generation: GenerationConfig,
    /// How waiting orders are served.
    pub issuing: IssuingConfig,
    /// The time of day, for what comes from outside; what is stored counts by the database's.
    pub clock: Arc<dyn Clock>,
    /// There may be a job.
    pub job_hint: Notify,
    /// A waiting order's tickets may exist now.
    pub order_hint: Notify,
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").finish_non_exhaustive()
    }
}

impl App {
    /// Fails unless `organizer` may manage the event.
    async fn admit(&self, organizer: OrganizerId, event_id: EventId) -> Result<(), Error> {
        let owner = events::owner(&self.stores.postgres, event_id).await?;
        let owner = owner.ok_or(Error::EventNotFound(event_id))?;
        owner.admit(organizer).map_err(|denied| Error::denied(&owner, denied))
    }
}
