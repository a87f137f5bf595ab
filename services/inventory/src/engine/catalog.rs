//! Offers of public events in memory. An offer never changes once its event is public, every reservation needs it, and its
//! layouts are large.

use std::sync::Arc;

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::EventId;
use quick_cache::sync::Cache;

use super::Engine;
use crate::{
    domain::{
        event::{Event, EventState, Offer, Viewer},
        hold::Hold,
        results::EventAndOffer,
    },
    error::Error,
    store,
};

/// Events kept in memory. A process that serves more is rare and reads the others again.
const EVENTS_MAX: usize = 1_000;

/// The offers of public events.
pub(super) struct Catalog {
    offers: Cache<EventId, Arc<Offer>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { offers: Cache::new(EVENTS_MAX) }
    }
}

impl Engine {
    /// Returns the offer of `event`. A draft may still change, so its offer is read each time.
    pub(crate) async fn offer_of(
        &self,
        transaction: &Transaction,
        event: &Event,
    ) -> Result<Arc<Offer>, Error> {
        let is_public = event.state != EventState::Draft;
        if is_public && let Some(offer) = self.catalog.offers.get(&event.id) {
            return Ok(offer);
        }
        let offer = Arc::new(Offer {
            units_per_customer_max: event.details.units_per_customer_max,
            sectors: store::events::sectors(transaction, event).await?,
        });
        if is_public {
            self.catalog.offers.insert(event.id, Arc::clone(&offer));
        }
        Ok(offer)
    }

    /// Returns the offer of a public event and refuses a draft: nothing of it can be reserved, and it must have no pools because
    /// it may still change.
    pub(crate) async fn offer(&self, event_id: EventId) -> Result<Arc<Offer>, Error> {
        if let Some(offer) = self.catalog.offers.get(&event_id) {
            return Ok(offer);
        }
        // Boxed: few calls come here, and without the box every call would carry the state of this one.
        let EventAndOffer { event, offer } = Box::pin(self.find_event(event_id, Viewer::Mesh)).await?;
        if event.state == EventState::Draft {
            return Err(Error::NotOnSale { state: event.state, on_sale_time: None });
        }
        Ok(offer)
    }

    /// Returns the offer of the hold's event; an empty one for a tombstone, which has no units.
    pub(crate) async fn offer_of_hold(&self, hold: &Hold) -> Result<Arc<Offer>, Error> {
        if hold.is_tombstone() { Ok(Arc::default()) } else { self.offer(hold.event_id).await }
    }

    /// Returns the event's offer, if `viewer` may see the event.
    pub(crate) async fn visible_offer(&self, event_id: EventId, viewer: Viewer) -> Result<Arc<Offer>, Error> {
        // Only public events are in the catalog, and everybody may see them.
        match self.catalog.offers.get(&event_id) {
            Some(offer) => Ok(offer),
            None => Ok(self.find_event(event_id, viewer).await?.offer),
        }
    }

    /// Reads the event and its offer in one snapshot, if `viewer` may see the event.
    pub(crate) async fn find_event(&self, event_id: EventId, viewer: Viewer) -> Result<EventAndOffer, Error> {
        let postgres = &self.stores.postgres;
        postgres
            .transaction_at(Isolation::RepeatableRead, "find event", |transaction| async move {
                let event = store::events::find(&transaction, event_id).await?;
                let event = event.filter(|event| event.is_visible_to(viewer));
                let event = event.ok_or(Error::EventNotFound { event_id })?;
                let offer = self.offer_of(&transaction, &event).await?;
                Ok(EventAndOffer { event, offer })
            })
            .await
    }
}
