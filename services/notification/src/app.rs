//! Use cases of Notification: one file per RPC, event or job. Each loads, decides and saves; none encodes a message.

mod add_job;
mod count_deliveries;
mod enqueue_notifications;
mod get_delivery;
mod lease_deliveries;
mod list_dead_letters;
mod record_event_owner;
mod retry_dead_letter;
mod send_delivery;
mod update_order;

use std::{sync::Arc, time::Duration};

use onsale_storage::Stores;
use onsale_types::{EventId, OrganizerId};
use tokio::sync::Notify;

use crate::{clients::Mailer, config::Config, domain::language::Language, error::Error, store};

pub(crate) use lease_deliveries::LeasedDelivery;

/// Shared by the gRPC handlers, the consumers and the workers.
pub(crate) struct App {
    pub(crate) stores: Stores,
    mailer: Arc<dyn Mailer>,
    /// Base URL of the shop. Empty: mails contain no link to it.
    web_url: String,
    language_default: Language,
    /// Time for which a leased delivery belongs to this process.
    lease: Duration,
    /// Pauses between the attempts of a delivery.
    pauses: Vec<Duration>,
    /// Hints the delivery worker of this process: a job was enqueued, or an attempt ended and made room for another.
    delivery_hints: Arc<Notify>,
}

impl App {
    pub(crate) fn new(stores: Stores, mailer: Arc<dyn Mailer>, config: &Config) -> Self {
        Self {
            stores,
            mailer,
            web_url: config.web.url.clone(),
            language_default: config.delivery.locale_default,
            lease: config.delivery.lease,
            pauses: config.delivery.pauses(),
            delivery_hints: Arc::new(Notify::new()),
        }
    }

    /// Returns the language for recipients whose own is unset or not supported.
    pub(crate) fn language_default(&self) -> Language {
        self.language_default
    }

    pub(crate) fn delivery_hints(&self) -> Arc<Notify> {
        Arc::clone(&self.delivery_hints)
    }

    /// Returns an error unless the event belongs to the organizer.
    async fn check_event_owner(&self, organizer_id: OrganizerId, event_id: EventId) -> Result<(), Error> {
        match store::event_owners::find(&self.stores.postgres, event_id).await? {
            Some(owner) if owner.organizer_id == organizer_id => Ok(()),
            Some(owner) if owner.has_jobs => Err(Error::EventNotOwned { event_id }),
            // Another organizer's draft must look like an event that does not exist.
            Some(_) | None => Err(Error::EventNotFound { event_id }),
        }
    }
}
