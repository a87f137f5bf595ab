//! What never changes of an event once it is public, kept in memory: its sectors and layouts are large, and every
//! reservation needs them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::EventId;

use super::App;
use crate::{
    domain::{
        event::{Event, EventState, Sector, Viewer},
        hold::Hold,
    },
    error::Error,
    store,
};

/// So many events are remembered. Beyond it all are forgotten: a process that serves more is rare, and reads again.
const EVENTS_MAX: usize = 1_000;

/// What an event offers.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) units_per_customer_max: u32,
    pub(super) sectors: Vec<Sector>,
}

/// The offers of public events.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    offers: Mutex<HashMap<EventId, Arc<Offer>>>,
}

impl Catalog {
    pub(super) fn get(&self, event_id: EventId) -> Option<Arc<Offer>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner).get(&event_id).map(Arc::clone)
    }

    fn put(&self, event_id: EventId, offer: &Arc<Offer>) {
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        if offers.len() >= EVENTS_MAX {
            offers.clear();
        }
        offers.insert(event_id, Arc::clone(offer));
    }
}

impl App {
    /// What `event` offers. A draft may still change, so it is read each time.
    pub(super) async fn offer_of(
        &self,
        transaction: &Transaction,
        event: &Event,
    ) -> Result<Arc<Offer>, Error> {
        let is_settled = event.state != EventState::Draft;
        if let Some(offer) = self.catalog.get(event.id).filter(|_| is_settled) {
            return Ok(offer);
        }
        let offer = Arc::new(Offer {
            units_per_customer_max: event.details.units_per_customer_max,
            sectors: store::events::sectors(transaction, event).await?,
        });
        if is_settled {
            self.catalog.put(event.id, &offer);
        }
        Ok(offer)
    }

    /// What a public event offers. Nothing can be reserved of a draft, and no pool may be made for it: it may still change.
    pub(super) async fn offer(&self, event_id: EventId) -> Result<Arc<Offer>, Error> {
        if let Some(offer) = self.catalog.get(event_id) {
            return Ok(offer);
        }
        // Boxed: few calls come here, and all would have to carry what it needs.
        let (event, offer) = Box::pin(self.find_event(event_id, Viewer::Mesh)).await?;
        if event.state == EventState::Draft {
            return Err(Error::NotOnSale { state: event.state, on_sale_time: None });
        }
        Ok(offer)
    }

    /// The sectors that have the units of `hold`. One that was released before it was made has none.
    pub(super) async fn sectors_of(&self, hold: &Hold) -> Result<Arc<Offer>, Error> {
        if hold.is_tombstone() { Ok(Arc::default()) } else { self.offer(hold.event_id).await }
    }

    /// The event and what it offers, as one moment has them, if `viewer` may know of it.
    pub(super) async fn find_event(
        &self,
        event_id: EventId,
        viewer: Viewer,
    ) -> Result<(Event, Arc<Offer>), Error> {
        let postgres = &self.stores.postgres;
        postgres
            .transaction_at(Isolation::RepeatableRead, "find event", |transaction| async move {
                let event = store::events::find(&transaction, event_id).await?;
                let event = event.filter(|event| event.is_visible_to(viewer));
                let event = event.ok_or(Error::EventNotFound { event_id })?;
                let offer = self.offer_of(&transaction, &event).await?;
                Ok((event, offer))
            })
            .await
    }
}
