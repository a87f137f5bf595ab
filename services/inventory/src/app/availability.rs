//! `GetAvailability`: what is free now. All who ask for one event at the same time share one look at Postgres.

use std::sync::Arc;

use onsale_storage::postgres::Isolation;
use onsale_types::{EventId, SectorId};

use super::{App, catalog::Offer};
use crate::{
    domain::{availability::Availability, event::Viewer},
    error::Error,
    store,
};

impl App {
    /// What is free in `sectors` of the event (none: all), if `viewer` may know of it.
    pub async fn get_availability(
        &self,
        viewer: Viewer,
        event_id: EventId,
        sectors: &[SectorId],
    ) -> Result<Availability, Error> {
        let (_, offer) = self.find_event(event_id, viewer).await?;
        check_sectors(&offer, sectors)?;
        Ok(self.look(event_id).await?.only(sectors))
    }

    /// What is free in the event, at a moment after this call began.
    pub(super) async fn look(&self, event_id: EventId) -> Result<Arc<Availability>, Error> {
        let work = async {
            let found = self.look_since(event_id, None).await?;
            found.map(Arc::new).ok_or(Error::EventNotFound { event_id })
        };
        self.looks.run(event_id, Box::pin(work)).await
    }

    /// What is free in the event, of one moment; none while it is at the revision `known`.
    pub(super) async fn look_since(
        &self,
        event_id: EventId,
        known: Option<u64>,
    ) -> Result<Option<Availability>, Error> {
        self.stores
            .postgres
            .transaction_at(Isolation::RepeatableRead, "look at what is free", |tx| async move {
                let found = store::event::find(&tx, event_id).await?;
                let event = found.ok_or(Error::EventNotFound { event_id })?;
                if known.is_some() && known == Some(store::stock::revision(&tx, &event).await?.0) {
                    return Ok(None);
                }
                let offer = self.offer_of(&tx, &event).await?;
                store::stock::availability(&tx, &event, &offer.sectors).await.map(Some)
            })
            .await
    }
}

/// Whether the event has all of `sectors`.
pub(super) fn check_sectors(offer: &Offer, sectors: &[SectorId]) -> Result<(), Error> {
    let unknown = |sector_id: &&SectorId| !offer.sectors.iter().any(|sector| sector.id == **sector_id);
    match sectors.iter().find(unknown) {
        Some(sector_id) => Err(Error::SectorNotFound { sector_id: *sector_id }),
        None => Ok(()),
    }
}
