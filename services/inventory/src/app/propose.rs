//! Finds units for a reservation: asks Redis, which is fast and may be wrong, and Postgres where Redis has nothing to say.
//! That there are not enough is said by Postgres alone.

use std::{collections::BTreeSet, sync::Arc};

use onsale_types::EventId;

use super::{App, in_flight::Flight};
use crate::{
    domain::{event::Sector, hold::Wanted, pick::pick, unit_set::UnitSet},
    error::Error,
    metrics,
    store::{self, pool::Taken},
};

/// How often a pool is asked for one selection before Postgres is. More than one, because other processes take from it too.
const TAKES_MAX: u32 = 4;

/// Units for one selection, in flight.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) flight: Flight,
    pub(super) origin: Origin,
}

/// Who proposed units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The pool, which has them no more.
    Redis,
    /// Postgres; the pool may have them still.
    Postgres,
    /// The customer; the pool may have them still.
    Customer,
}

/// What came of asking a pool.
enum Asked {
    Got(Flight),
    /// Another process was faster.
    Raced,
    Short,
    Away,
}

impl App {
    /// Units of `sector` that are likely free; [`Error::NotEnoughUnits`] when there are none.
    pub(super) async fn propose(
        &self,
        event_id: EventId,
        sector: &Sector,
        wanted: &Wanted,
        ask_redis: bool,
    ) -> Result<Proposal, Error> {
        let count = match wanted {
            Wanted::Units(units) => {
                let flight = self.in_flight.add(sector.id, units.clone());
                return Ok(Proposal { flight, origin: Origin::Customer });
            }
            Wanted::Count(count) => *count,
        };
        if ask_redis && let Some(flight) = self.propose_from_pool(event_id, sector, count).await? {
            metrics::proposed("redis");
            return Ok(Proposal { flight, origin: Origin::Redis });
        }
        let free = self.refill(event_id, sector, count).await?;
        let layout = sector.layout.as_ref();
        let flight = self.in_flight.pick(sector.id, |flying| {
            // What is left may all be in flight. Then one of those is tried: the primary key makes us wait for its outcome.
            pick(layout, &without(&free, flying), count).or_else(|| pick(layout, &free, count))
        });
        let flight = flight.ok_or(not_enough(sector, &free))?;
        metrics::proposed("postgres");
        Ok(Proposal { flight, origin: Origin::Postgres })
    }

    /// Makes the pool what Postgres says, less what is in flight; answers all that Postgres says is free, at least
    /// `count`. Done once for all who ask at the same time.
    pub(super) async fn refill(
        &self,
        event_id: EventId,
        sector: &Sector,
        count: u32,
    ) -> Result<Arc<UnitSet>, Error> {
        let work = async {
            // Looked at before Postgres: what lands in between must not appear free.
            let flying = self.in_flight.of(sector.id);
            let free = self.free_units(sector).await?;
            self.pools.replace(event_id, sector.id, &without(&free, &flying)).await;
            Ok::<_, Error>(Arc::new(free))
        };
        let free = self.refills.run(sector.id, Box::pin(work)).await?;
        if free.count() < count { Err(not_enough(sector, &free)) } else { Ok(free) }
    }

    /// The free units of `sector`, by Postgres.
    pub(super) async fn free_units(&self, sector: &Sector) -> Result<UnitSet, Error> {
        let postgres = &self.stores.postgres;
        postgres
            .transaction("find free units", |tx| async move { store::stock::free_units(&tx, sector).await })
            .await
    }

    /// Units from the pool; none when it cannot help.
    async fn propose_from_pool(
        &self,
        event_id: EventId,
        sector: &Sector,
        count: u32,
    ) -> Result<Option<Flight>, Error> {
        for _ in 0..TAKES_MAX {
            match self.ask_pool(event_id, sector, count).await {
                Asked::Got(flight) => return Ok(Some(flight)),
                Asked::Raced => {}
                Asked::Short => drop(self.refill(event_id, sector, count).await?),
                Asked::Away => break,
            }
        }
        Ok(None)
    }

    async fn ask_pool(&self, event_id: EventId, sector: &Sector, count: u32) -> Asked {
        let Some(layout) = &sector.layout else {
            return match self.pools.take(event_id, sector, count).await {
                Taken::Units(units) => Asked::Got(self.in_flight.add(sector.id, units)),
                Taken::Short | Taken::Missing => Asked::Short,
                Taken::Away => Asked::Away,
            };
        };
        // Which seats are best takes the whole map, so it is read, and the choice is taken if it still can be.
        let free = match self.pools.read(event_id, sector).await {
            Some(Some(free)) => free,
            Some(None) => return Asked::Short,
            None => return Asked::Away,
        };
        let choose = |flying: &BTreeSet<u32>| pick(Some(layout), &without(&free, flying), count);
        let Some(flight) = self.in_flight.pick(sector.id, choose) else { return Asked::Short };
        match self.pools.take_exactly(event_id, sector.id, &flight.units).await {
            Taken::Units(_) => Asked::Got(flight),
            Taken::Short => Asked::Raced,
            Taken::Missing => Asked::Short,
            Taken::Away => Asked::Away,
        }
    }
}

/// The set without `units`.
pub(super) fn without(set: &UnitSet, units: &BTreeSet<u32>) -> UnitSet {
    let mut rest = set.clone();
    for unit in units {
        rest.remove(*unit);
    }
    rest
}

fn not_enough(sector: &Sector, free: &UnitSet) -> Error {
    Error::NotEnoughUnits { sector_id: sector.id, free_count: free.count() }
}
