//! Use cases of Ticketing: one file per RPC, event or job. Each loads, decides and saves; none encodes a message.

mod check_in_ticket;
mod create_generation;
mod event_activated;
mod event_created;
mod event_ended;
mod generate_tickets;
mod get_generation;
mod get_ticket;
mod issue_pending_orders;
mod issue_tickets;
mod list_tickets;
mod order_completed;
mod void_tickets;
mod watch_generation;

use std::{fmt, sync::Arc};

use onsale_storage::Stores;
use onsale_types::{Clock, EventId, OrganizerId};
use tokio::sync::Notify;

use crate::{
    config::{GenerationConfig, IssuingConfig},
    domain::{code::Codes, event::OwnershipError},
    error::Error,
    store::events,
};

/// Shared by the gRPC handlers, the consumers and the workers.
pub(crate) struct App {
    pub(crate) stores: Stores,
    pub(crate) codes: Codes,
    pub(crate) generation: GenerationConfig,
    pub(crate) issuing: IssuingConfig,
    /// Time of day, for comparison with times that callers send. Stored times are the database's.
    pub(crate) clock: Arc<dyn Clock>,
    /// Wakes a generator: a generation may be due.
    pub(crate) generation_hint: Arc<Notify>,
    /// Wakes the issuer: the tickets of pending orders may exist now.
    pub(crate) issuing_hint: Arc<Notify>,
}

impl App {
    /// Refuses an organizer who does not own the event.
    async fn check_owner(&self, event_id: EventId, organizer_id: OrganizerId) -> Result<(), Error> {
        let owner = events::get_owner(&self.stores.postgres, event_id).await?;
        let owner = owner.ok_or(Error::EventNotFound { event_id })?;
        owner.check_owner(organizer_id).map_err(|error| match error {
            OwnershipError::NotFound => Error::EventNotFound { event_id },
            OwnershipError::NotOwner => Error::EventNotOwned { event_id },
        })
    }
}

impl fmt::Debug for App {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("App").finish_non_exhaustive()
    }
}
