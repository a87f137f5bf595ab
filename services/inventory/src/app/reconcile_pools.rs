//! Reconciliation of pools: workers → app → engine::pool_repair → store. Compares every pool with Postgres and corrects it:
//! units that a crash left out, and pools that Redis lost or restored from an older state.

use std::sync::Arc;

use onsale_kit::error::Chain;
use onsale_types::{EventId, SectorId};

use super::App;
use crate::{
    domain::{
        event::{Offer, Sector},
        unit_set::UnitSet,
    },
    engine::Difference,
    error::Error,
    metrics, store,
};

/// Sectors whose missing units are remembered for the second comparison. Further ones wait for the next round.
const SHORT_MAX: usize = 1_000;

/// A sector whose pool lacks units.
struct ShortPool {
    event_id: EventId,
    offer: Arc<Offer>,
    sector_id: SectorId,
    missing: UnitSet,
}

impl App {
    /// Runs one round over every event on sale. A failure in one event is returned at the end and does not stop the others.
    pub(crate) async fn reconcile_pools(&self) -> Result<(), Error> {
        let postgres = &self.stores.postgres;
        let events = postgres
            .transaction("list events on sale", |transaction| async move {
                store::events::list_on_sale(&transaction).await
            })
            .await?;
        let (mut short, mut outcome) = (Vec::new(), Ok(()));
        for event_id in events {
            if let Err(error) = self.compare_pools(event_id, &mut short).await {
                tracing::warn!(%event_id, error = %Chain(&error), "pool comparison failed, retrying next round");
                outcome = Err(error);
            }
        }
        if short.is_empty() {
            return outcome;
        }
        // Missing units may be on their way from Redis to Postgres. Units that are in neither after this wait are lost.
        let wait = tokio::time::sleep(self.config.pool.on_the_way_max);
        if self.engine.tasks.token().run_until_cancelled(wait).await.is_none() {
            return outcome;
        }
        for short in short {
            if let Err(error) = self.fill_pool(&short).await {
                let event_id = short.event_id;
                tracing::warn!(%event_id, error = %Chain(&error), "pool refill failed, retrying next round");
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Removes units that are not free from the event's pools, and adds the pools that lack units to `short`.
    async fn compare_pools(&self, event_id: EventId, short: &mut Vec<ShortPool>) -> Result<(), Error> {
        let offer = self.engine.offer(event_id).await?;
        for sector in &offer.sectors {
            let compared = self.engine.compare_pool(event_id, sector).await?;
            let Some(Difference { wrong, missing }) = compared else { continue };
            // Most of them changed between the two reads, and the pool no longer has them.
            let removed = self.engine.pools.take_out(event_id, sector.id, &wrong.to_vec()).await;
            report(event_id, sector, removed);
            if !missing.is_empty() && short.len() < SHORT_MAX {
                short.push(ShortPool { event_id, offer: Arc::clone(&offer), sector_id: sector.id, missing });
            }
        }
        Ok(())
    }

    /// Adds the units that the pool lacked at the first comparison and still lacks.
    async fn fill_pool(&self, short: &ShortPool) -> Result<(), Error> {
        let Some(sector) = short.offer.sector(short.sector_id) else { return Ok(()) };
        if let Some(Difference { missing, .. }) = self.engine.compare_pool(short.event_id, sector).await? {
            let lost = missing.common(&short.missing).to_vec();
            report(
                short.event_id,
                sector,
                self.engine.pools.put_back(short.event_id, sector.id, &lost).await,
            );
        }
        Ok(())
    }
}

fn report(event_id: EventId, sector: &Sector, units: usize) {
    if units > 0 {
        tracing::info!(%event_id, sector_id = %sector.id, units, "pool differed from postgres, corrected");
        metrics::corrected(units);
    }
}
