//! Sets pools right by what Postgres says. What is taken goes out of a pool at any time. What is free goes in with care: a unit
//! that a pool does not offer and Postgres calls free may be on its way from one to the other, and who is offered it tries in vain.

use std::sync::Arc;

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::EventId;

use super::App;
use crate::{
    domain::{event::Sector, unit_set::UnitSet},
    error::Error,
    store::{self, pools::PoolError},
};

/// How a pool differs from Postgres.
#[derive(Debug)]
pub(super) struct Difference {
    /// What it offers though it is not free.
    pub(super) wrong: UnitSet,
    /// What it does not offer though it is free, and not on its way in this process.
    pub(super) missing: UnitSet,
}

/// What a pool is mended for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RepairReason {
    /// It offered what is not free.
    Wrong,
    /// It lacks what is needed. What may be on its way in other processes is tried too.
    Short,
}

impl App {
    /// Sets the pool right; makes it, if there is none. Done once for all who need it at the same time.
    pub(super) async fn repair_pool(
        &self,
        event_id: EventId,
        sector: &Sector,
        reason: RepairReason,
    ) -> Result<(), Error> {
        let work = async {
            let Some(Difference { wrong, missing }) = self.compare_pool(event_id, sector).await? else {
                // Without a pool units are picked from the view, and it was the view that was wrong: it does not see what other
                // processes take.
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

    /// How the pool differs. None: it cannot be compared, because Redis is away, or there was no pool and now there is.
    pub(super) async fn compare_pool(
        &self,
        event_id: EventId,
        sector: &Sector,
    ) -> Result<Option<Difference>, Error> {
        if self.pools.is_unavailable() {
            return Ok(None);
        }
        // In this order: what changes hands in between is in units_in_flight, or no longer free, or in the pool all along.
        let (pool, flying) = {
            let _lock = self.pool_locks.lock_for_compare(sector.id).await;
            (self.pools.read(event_id, sector).await, self.in_flight.of(sector.id))
        };
        if pool == Err(PoolError::Unavailable) {
            return Ok(None);
        }
        let free = self.fresh_view(sector).await?;
        let offered = free.without_units(&flying);
        match pool {
            Ok(pool) => Ok(Some(Difference { wrong: pool.without(&free), missing: offered.without(&pool) })),
            Err(fault) => {
                self.pools.make(event_id, sector.id, &offered, fault).await;
                Ok(None)
            }
        }
    }

    /// What Postgres says is free, at a moment after this call began.
    pub(super) async fn fresh_view(&self, sector: &Sector) -> Result<Arc<UnitSet>, Error> {
        let postgres = &self.stores.postgres;
        let work =
            postgres.transaction_at(Isolation::RepeatableRead, "find free units", |transaction| async move {
                let counts = store::stocks::counts_of(&transaction, &[sector.id]).await?;
                let revision = counts.get(&sector.id).map_or(0, |counts| counts.revision);
                self.view_at(&transaction, sector, revision).await
            });
        self.view_reads.run(sector.id, Box::pin(work)).await
    }

    /// What is free at the sector's `revision`, as `transaction` sees it, which sees one moment and changes nothing. Read only when
    /// it is not known.
    pub(super) async fn view_at(
        &self,
        transaction: &Transaction,
        sector: &Sector,
        revision: u64,
    ) -> Result<Arc<UnitSet>, Error> {
        if let Some(free) = self.views.at(sector.id, revision) {
            return Ok(free);
        }
        let free = Arc::new(store::stocks::free_units(transaction, sector).await?);
        self.views.put(sector.id, revision, &free);
        Ok(free)
    }
}
