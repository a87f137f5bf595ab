//! Compares the pools in Redis with Postgres, and sets right what differs: units that a crash left out, a pool that was
//! wiped or is of a time before a failover.

use super::{App, propose::without};
use crate::{error::Error, metrics, store};

impl App {
    /// One round over every event that sells.
    pub async fn reconcile(&self) -> Result<(), Error> {
        let postgres = &self.stores.postgres;
        let events = postgres
            .transaction("list events on sale", |tx| async move { store::event::list_on_sale(&tx).await })
            .await?;
        for event_id in events {
            let offer = self.offer(event_id).await?;
            for sector in &offer.sectors {
                // One that cannot be read keeps no other from being compared. It may be of another type, so it is written anew.
                let pool = self.pools.read(event_id, sector).await.flatten();
                let flying = self.in_flight.of(sector.id);
                let truth = without(&*self.fresh_view(sector).await?, &flying);
                if pool.as_ref() == Some(&truth) {
                    continue;
                }
                if let Some(pool) = pool {
                    let units = truth.without(&pool).count() + pool.without(&truth).count();
                    tracing::info!(%event_id, sector_id = %sector.id, units, "pool differs from postgres");
                    metrics::corrected(units);
                }
                self.refill(event_id, sector).await?;
            }
        }
        Ok(())
    }
}
