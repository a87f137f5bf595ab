//! Reads the availability of an event. Concurrent callers share one read of the counts; a sector's map is read only if the sector
//! has changed since this process last read it.

use std::{collections::HashMap, sync::Arc};

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::{EventId, SectorId};

use super::Engine;
use crate::{
    domain::{
        availability::{Availability, SectorStock},
        counts::Counts,
        event::{Offer, Sector},
        unit_set::UnitSet,
    },
    error::Error,
    store,
};

impl Engine {
    /// Returns the event's availability at some time after this call began.
    pub(crate) async fn read_availability(&self, event_id: EventId) -> Result<Arc<Availability>, Error> {
        let work = async {
            let found = self.read_availability_if_changed(event_id, None).await?;
            found.map(Arc::new).ok_or(Error::EventNotFound { event_id })
        };
        self.availability_reads.run(event_id, Box::pin(work)).await
    }

    /// Reads the event's availability in one snapshot. Returns `None` while it is at the revision `known`.
    pub(super) async fn read_availability_if_changed(
        &self,
        event_id: EventId,
        known: Option<u64>,
    ) -> Result<Option<Availability>, Error> {
        let postgres = &self.stores.postgres;
        postgres
            .transaction_at(Isolation::RepeatableRead, "look at what is free", |transaction| async move {
                let found = store::events::find_now(&transaction, event_id).await?;
                let (event, now) = found.ok_or(Error::EventNotFound { event_id })?;
                let counts = store::stocks::counts(&transaction, event_id).await?;
                let revision = event.stock_revision(&counts);
                if known == Some(revision) {
                    return Ok(None);
                }
                let offer = self.offer_of(&transaction, &event).await?;
                let sectors = self.sector_stocks(&transaction, &offer.sectors, &counts).await?;
                Ok(Some(Availability { event_id, revision, state: event.state, sectors, time: now }))
            })
            .await
    }

    /// Returns the stock of `sectors`, whose counts are `counts`. `transaction` must read from one snapshot.
    async fn sector_stocks(
        &self,
        transaction: &Transaction,
        sectors: &[Sector],
        counts: &HashMap<SectorId, Counts>,
    ) -> Result<Vec<SectorStock>, Error> {
        let mut stocks = Vec::with_capacity(sectors.len());
        for sector in sectors {
            let counted = counts.get(&sector.id);
            stocks.push(SectorStock {
                sector_id: sector.id,
                capacity: sector.capacity,
                free_count: counted.map_or(sector.capacity, Counts::free),
                held_count: counted.map_or(0, Counts::held),
                free: match (&sector.layout, counted) {
                    (Some(_), Some(counts)) => {
                        Some(self.view_at(transaction, sector, counts.revision).await?)
                    }
                    // The sector of a draft without a quota.
                    (Some(_), None) => Some(Arc::new(UnitSet::full(sector.capacity))),
                    (None, _) => None,
                },
            });
        }
        Ok(stocks)
    }
}

/// Refuses `sectors` that the event does not have.
pub(crate) fn check_sectors(offer: &Offer, sectors: &[SectorId]) -> Result<(), Error> {
    match sectors.iter().find(|sector_id| offer.sector(**sector_id).is_none()) {
        Some(sector_id) => Err(Error::SectorNotFound { sector_id: *sector_id }),
        None => Ok(()),
    }
}
