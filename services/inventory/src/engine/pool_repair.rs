//! Repairs pools from Postgres. A taken unit may leave a pool at any time. A free unit may be added only with care: a unit that
//! the pool does not offer and Postgres calls free may be on its way from Redis to Postgres, and a customer who is offered it
//! fails.

use onsale_types::EventId;

use super::Engine;
use crate::{
    domain::{event::Sector, unit_set::UnitSet},
    error::Error,
    store::pools::PoolError,
};

/// The difference between a pool and Postgres.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Units that the pool offers and Postgres does not call free.
    pub(crate) wrong: UnitSet,
    /// Free units that the pool does not offer and that are not in flight in this process.
    pub(crate) missing: UnitSet,
}

/// The cause of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RepairReason {
    /// The pool offered a unit that is not free, or it is missing or broken.
    Wrong,
    /// The pool offered too few units. Units that may be on their way in other processes are added too.
    Short,
}

impl Engine {
    /// Corrects the pool, or creates it. Concurrent callers with the same reason share one repair.
    pub(crate) async fn repair_pool(
        &self,
        event_id: EventId,
        sector: &Sector,
        reason: RepairReason,
    ) -> Result<(), Error> {
        let work = async {
            let Some(Difference { wrong, missing }) = self.compare_pool(event_id, sector).await? else {
                // Without a pool, units are picked from the view. Then it was the view that was wrong: it does not see commits of
                // other processes.
                return self.fresh_view(sector).await.map(drop);
            };
            self.pools.take_out(event_id, sector.id, &wrong.to_vec()).await;
            if reason == RepairReason::Short {
                self.pools.put_back(event_id, sector.id, &missing.to_vec()).await;
            }
            Ok::<_, Error>(())
        };
        self.repairs.run((sector.id, reason), Box::pin(work)).await
    }

    /// Compares the pool with Postgres. Returns `None` if Redis is unavailable, or if there was no usable pool and a new one has
    /// been created.
    pub(crate) async fn compare_pool(
        &self,
        event_id: EventId,
        sector: &Sector,
    ) -> Result<Option<Difference>, Error> {
        if self.pools.is_unavailable() {
            return Ok(None);
        }
        // The pool is read before Postgres: a unit that changes hands in between is in flight, no longer free, or in the pool
        // all along.
        let (pool, in_flight) = {
            let _lock = self.pool_locks.lock_for_compare(sector.id).await;
            (self.pools.read(event_id, sector).await, self.in_flight.of(sector.id))
        };
        if pool == Err(PoolError::Unavailable) {
            return Ok(None);
        }
        let free = self.fresh_view(sector).await?;
        let offered = free.without_units(&in_flight);
        match pool {
            Ok(pool) => Ok(Some(Difference { wrong: pool.without(&free), missing: offered.without(&pool) })),
            Err(error) => {
                self.pools.create(event_id, sector.id, &offered, error).await;
                Ok(None)
            }
        }
    }
}
