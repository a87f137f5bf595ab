//! `CreateEvent`: grpc → app → domain::event → store. Creates a draft with its sectors. Units have no rows of their own, so the
//! size of an event does not affect the time.

use std::sync::Arc;

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{
    domain::{
        domain_event::DomainEvent,
        event::{Details, Draft, Offer},
        results::EventAndOffer,
    },
    error::{self, Error},
    store,
};

impl App {
    pub(crate) async fn create_event(
        &self,
        request: &Request<'_, EventAndOffer>,
        organizer_id: OrganizerId,
        draft: &Draft,
    ) -> Result<Answer<EventAndOffer>, Error> {
        self.once("create event", request, |transaction| async move {
            let (details, sectors) = draft.clone().assign_ids(&[])?;
            self.check_time_zone(&transaction, &details).await?;
            let event_id = EventId::generate();
            let event =
                store::events::insert(&transaction, event_id, organizer_id, &details, &sectors).await?;
            let created = DomainEvent::EventCreated { event: &event, sectors: &sectors };
            self.stores.outbox.append(&transaction, &[created]).await?;
            let units_per_customer_max = details.units_per_customer_max;
            Ok(EventAndOffer { event, offer: Arc::new(Offer { units_per_customer_max, sectors }) })
        })
        .await
    }

    /// Refuses a time zone that Postgres does not know; mails and apps could not show the event's times. Postgres takes long to
    /// list its zones, so the list is read once.
    pub(super) async fn check_time_zone(
        &self,
        transaction: &Transaction,
        details: &Details,
    ) -> Result<(), Error> {
        let zones = self.time_zones.get_or_try_init(|| store::events::time_zones(transaction)).await?;
        if zones.contains(&details.venue.time_zone) { Ok(()) } else { Err(error::unknown_time_zone()) }
    }
}
