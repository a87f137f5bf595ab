//! `GetAvailability`: what is free now. All who ask for one event at the same time share one look at Postgres, which counts;
//! the map of a sector is read only when the sector has changed since this process saw it.

use std::{collections::HashMap, sync::Arc};

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::{EventId, SectorId};

use super::{App, catalog::Offer};
use crate::{
    domain::{
        availability::{Availability, Stock},
        counts::Counts,
        event::{Sector, Viewer},
        unit_set::UnitSet,
    },
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
        check_sectors(&*self.visible_offer(event_id, viewer).await?, sectors)?;
        Ok(self.read_availability(event_id).await?.only(sectors))
    }

    /// What the event offers, if `viewer` may know of it.
    pub(super) async fn visible_offer(&self, event_id: EventId, viewer: Viewer) -> Result<Arc<Offer>, Error> {
        // A public event is seen by everybody.
        match self.catalog.get(event_id) {
            Some(offer) => Ok(offer),
            None => Ok(self.find_event(event_id, viewer).await?.1),
        }
    }

    /// What is free in the event, at a moment after this call began.
    pub(super) async fn read_availability(&self, event_id: EventId) -> Result<Arc<Availability>, Error> {
        let work = async {
            let found = self.read_availability_if_changed(event_id, None).await?;
            found.map(Arc::new).ok_or(Error::EventNotFound { event_id })
        };
        self.availability_reads.run(event_id, Box::pin(work)).await
    }

    /// What is free in the event, of one moment; none while it is at the revision `known`.
    pub(super) async fn read_availability_if_changed(
        &self,
        event_id: EventId,
        known: Option<u64>,
    ) -> Result<Option<Availability>, Error> {
        self.stores
            .postgres
            .transaction_at(Isolation::RepeatableRead, "look at what is free", |transaction| async move {
                let found = store::events::find_now(&transaction, event_id).await?;
                let (event, now) = found.ok_or(Error::EventNotFound { event_id })?;
                let counts = store::stocks::counts(&transaction, event_id).await?;
                let revision = store::stocks::revision(&event, &counts);
                if known == Some(revision) {
                    return Ok(None);
                }
                let offer = self.offer_of(&transaction, &event).await?;
                let sectors = self.stocks(&transaction, &offer.sectors, &counts).await?;
                Ok(Some(Availability { event_id, revision, state: event.state, sectors, time: now }))
            })
            .await
    }

    /// What is free in `sectors`, which are counted so, in a transaction that sees one moment and changes nothing.
    async fn stocks(
        &self,
        transaction: &Transaction,
        sectors: &[Sector],
        counts: &HashMap<SectorId, Counts>,
    ) -> Result<Vec<Stock>, Error> {
        let mut stocks = Vec::with_capacity(sectors.len());
        for sector in sectors {
            let counted = counts.get(&sector.id);
            stocks.push(Stock {
                sector_id: sector.id,
                capacity: sector.capacity,
                free_count: counted.map_or(sector.capacity, Counts::free),
                held_count: counted.map_or(0, Counts::held),
                free: match (&sector.layout, counted) {
                    (Some(_), Some(counts)) => {
                        Some(self.view_at(transaction, sector, counts.revision).await?)
                    }
                    // A draft of which nothing is kept.
                    (Some(_), None) => Some(Arc::new(UnitSet::full(sector.capacity))),
                    (None, _) => None,
                },
            });
        }
        Ok(stocks)
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
