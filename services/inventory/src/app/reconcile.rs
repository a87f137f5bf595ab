//! Compares the pools in Redis with Postgres, and sets right what differs: units that a crash left out, a pool that was
//! wiped or is of a time before a failover.

use std::sync::Arc;

use onsale_kit::error::Chain;
use onsale_types::{EventId, SectorId};

use super::{App, catalog::Offer, mend_pools::Difference};
use crate::{
    domain::{event::Sector, unit_set::UnitSet},
    error::Error,
    metrics, store,
};

/// Sectors whose missing units are remembered until the second look. The others wait for the next round.
const SHORT_MAX: usize = 1_000;

/// A sector of which the pool lacks units.
struct Short {
    event_id: EventId,
    offer: Arc<Offer>,
    sector_id: SectorId,
    missing: UnitSet,
}

impl App {
    /// One round over every event that sells. What fails for one event is told in the end, and keeps no other from its turn.
    pub async fn reconcile(&self) -> Result<(), Error> {
        let postgres = &self.stores.postgres;
        let events = postgres
            .transaction("list events on sale", |transaction| async move {
                store::events::list_on_sale(&transaction).await
            })
            .await?;
        let (mut short, mut outcome) = (Vec::new(), Ok(()));
        for event_id in events {
            if let Err(error) = self.look_at_pools(event_id, &mut short).await {
                tracing::warn!(%event_id, error = %Chain(&error), "failed to compare the pools of an event");
                outcome = Err(error);
            }
        }
        if short.is_empty() {
            return outcome;
        }
        // They may be on their way from Redis to Postgres. What is in neither then got lost on it.
        tokio::time::sleep(self.config.pool.on_the_way_max).await;
        for short in short {
            if let Err(error) = self.look_again(&short).await {
                let event_id = short.event_id;
                tracing::warn!(%event_id, error = %Chain(&error), "failed to fill the pool of a sector");
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Takes out of the event's pools what is not free, and adds to `short` what they lack.
    async fn look_at_pools(&self, event_id: EventId, short: &mut Vec<Short>) -> Result<(), Error> {
        let offer = self.offer(event_id).await?;
        for sector in &offer.sectors {
            let Some(Difference { wrong, missing }) = self.compare_pool(event_id, sector).await? else {
                continue;
            };
            // Most are of the moment between both stores, and in the pool no more.
            note(event_id, sector, self.pools.take_out(event_id, sector.id, &wrong.to_vec()).await);
            if !missing.is_empty() && short.len() < SHORT_MAX {
                short.push(Short { event_id, offer: Arc::clone(&offer), sector_id: sector.id, missing });
            }
        }
        Ok(())
    }

    /// Puts into the pool what it lacked before and lacks still.
    async fn look_again(&self, short: &Short) -> Result<(), Error> {
        let Some(sector) = short.offer.sectors.iter().find(|sector| sector.id == short.sector_id) else {
            return Ok(());
        };
        if let Some(Difference { missing, .. }) = self.compare_pool(short.event_id, sector).await? {
            let lost = missing.common(&short.missing).to_vec();
            note(short.event_id, sector, self.pools.put_back(short.event_id, sector.id, &lost).await);
        }
        Ok(())
    }
}

fn note(event_id: EventId, sector: &Sector, units: usize) {
    if units > 0 {
        tracing::info!(%event_id, sector_id = %sector.id, units, "pool differed from postgres");
        metrics::corrected(units);
    }
}
