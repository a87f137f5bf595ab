//! Proposes units for the reservations of a batch: from the Redis pool, which is fast and may be wrong, or from the view of
//! Postgres where the pool is unusable. Only the transaction that writes the holds decides that too few units are free.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use onsale_types::{EventId, SectorId};

use super::{Engine, RepairReason, in_flight::InFlightUnits};
use crate::{
    domain::{
        commands::ReserveUnits,
        event::{Offer, Sector},
        hold::UnitChoice,
        pick::Picker,
    },
    metrics,
    store::pools::PoolError,
};

/// Takes from a pool before the view is used. Other processes take from the same pool, so the first take may come up short.
const TAKES_MAX: u32 = 4;
/// Sectors of one batch that are handled concurrently.
const SECTORS_CONCURRENCY: usize = 8;

/// One reservation of a batch.
#[derive(Debug)]
pub(crate) struct ReserveItem {
    pub(crate) command: Arc<ReserveUnits>,
    /// Has every sector that is selected.
    pub(crate) offer: Arc<Offer>,
    /// False after several conflicts: the pool does not match Postgres, so units come from the view.
    pub(crate) uses_pool: bool,
}

impl ReserveItem {
    /// Returns each selection with its sector.
    pub(crate) fn selections(&self) -> impl Iterator<Item = (&Sector, &UnitChoice)> {
        self.command.selections.iter().filter_map(|selection| {
            let sector = self.offer.sector(selection.sector_id)?;
            Some((sector, &selection.choice))
        })
    }
}

/// Units for one selection, in flight.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) units_in_flight: InFlightUnits,
    pub(crate) origin: Origin,
}

/// The source of proposed units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The units were taken out of the pool.
    Pool,
    /// The view or the customer named the units; the pool may still offer them.
    Other,
}

/// The proposals for the selections of one reservation, in their order. `None`: nothing could be proposed.
pub(crate) type Proposals = Vec<Option<Proposal>>;

/// A selection by count.
#[derive(Clone, Copy, Debug)]
struct CountRequest {
    /// Index of the reservation in its batch.
    item: usize,
    /// Index of the selection in its reservation.
    selection: usize,
    count: u32,
}

/// The outcome of one take from a pool.
struct PoolResult {
    /// The units for each request, in the order of the requests.
    units: Vec<Option<InFlightUnits>>,
    /// Another call took some of the same units, so a second take may succeed.
    is_raced: bool,
}

/// The requests of a batch to one sector, in order of arrival.
struct SectorRequest<'a> {
    event_id: EventId,
    sector: &'a Sector,
    uses_pool: bool,
    requests: Vec<CountRequest>,
}

impl Engine {
    /// Proposes units that are likely free, for each selection of each item.
    pub(crate) async fn propose(&self, items: &[ReserveItem]) -> Vec<Proposals> {
        let mut proposals: Vec<Proposals> =
            items.iter().map(|item| item.command.selections.iter().map(|_| None).collect()).collect();
        let mut set = |request: CountRequest, proposal: Option<Proposal>| {
            let slot = proposals.get_mut(request.item).and_then(|it| it.get_mut(request.selection));
            if let Some(slot) = slot {
                *slot = proposal;
            }
        };
        let mut sectors: BTreeMap<(SectorId, bool), SectorRequest<'_>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            for (selection, (sector, choice)) in item.selections().enumerate() {
                let request = CountRequest { item: index, selection, count: choice.count() };
                match choice {
                    UnitChoice::Units(units) => {
                        let units_in_flight = self.in_flight.add(sector.id, units.clone());
                        set(request, Some(Proposal { units_in_flight, origin: Origin::Other }));
                    }
                    UnitChoice::Count(_) => {
                        let (event_id, uses_pool) = (item.command.event_id, item.uses_pool);
                        let new = || SectorRequest { event_id, sector, uses_pool, requests: Vec::new() };
                        sectors.entry((sector.id, uses_pool)).or_insert_with(new).requests.push(request);
                    }
                }
            }
        }
        let work: Vec<_> = sectors.into_values().map(|sector| self.propose_in_sector(sector)).collect();
        let found: Vec<_> = stream::iter(work).buffer_unordered(SECTORS_CONCURRENCY).collect().await;
        found.into_iter().flatten().for_each(|(request, proposal)| set(request, proposal));
        proposals
    }

    /// Proposes units for the requests to one sector.
    async fn propose_in_sector(&self, asked: SectorRequest<'_>) -> Vec<(CountRequest, Option<Proposal>)> {
        let mut open = asked.requests.clone();
        let mut found = Vec::with_capacity(open.len());
        if asked.uses_pool {
            for _ in 0..TAKES_MAX {
                let Some(PoolResult { units, is_raced }) = self.take_from_pool(&asked, &open).await else {
                    break;
                };
                metrics::proposed("redis", units.iter().flatten().count());
                let mut short = Vec::new();
                for (request, units) in open.into_iter().zip(units) {
                    match units {
                        Some(units_in_flight) => {
                            found.push((request, Some(Proposal { units_in_flight, origin: Origin::Pool })));
                        }
                        None => short.push(request),
                    }
                }
                open = short;
                if !is_raced || open.is_empty() {
                    return found
                        .into_iter()
                        .chain(open.into_iter().map(|request| (request, None)))
                        .collect();
                }
            }
        }
        let units = self.pick_from_view(asked.sector, &open).await;
        metrics::proposed("postgres", units.iter().flatten().count());
        let proposal = |units_in_flight| Proposal { units_in_flight, origin: Origin::Other };
        found.extend(open.into_iter().zip(units).map(|(request, units)| (request, units.map(proposal))));
        found
    }

    /// Takes units from the Redis pool. Returns `None` if the pool is unusable; the caller then picks from the view.
    async fn take_from_pool(
        &self,
        asked: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Option<PoolResult> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        for _ in 0..2 {
            // Checked before the lock, which a caller with the breaker's trial call may hold.
            if self.pools.is_unavailable() {
                return None;
            }
            let taken = if sector.layout.is_some() {
                self.take_seats(asked, requests).await
            } else {
                self.take_any(asked, requests).await
            };
            match taken {
                Ok(taken) => return Some(taken),
                // A failed repair is not reported here: if Postgres is down, the transaction that writes the holds fails too.
                Err(PoolError::Missing | PoolError::Broken) => {
                    self.repair_pool(event_id, sector, RepairReason::Wrong).await.ok()?;
                }
                Err(PoolError::Unavailable) => return None,
            }
        }
        None
    }

    /// Takes units from a pool without seats: as many as all requests together need, distributed in order of arrival. Returns
    /// the rest to the pool.
    async fn take_any(
        &self,
        asked: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Result<PoolResult, PoolError> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        let count = requests.iter().map(|request| request.count).fold(0, u32::saturating_add);
        let _lock = self.pool_locks.lock_for_take(sector.id).await;
        let offered = self.pools.take(event_id, sector, count).await?;
        let (mut rest, mut is_raced) = (Vec::new(), false);
        let units = self.in_flight.pick(sector.id, |in_flight| {
            // Another call of this process may have picked some of these units from the view; that call keeps them. If its
            // transaction fails, the pool lacks them until the next comparison.
            let (theirs, ours): (Vec<u32>, Vec<u32>) =
                offered.iter().partition(|unit| in_flight.contains(unit));
            let mut ours = ours.into_iter();
            let distribute = |request: &CountRequest| {
                let count = usize::try_from(request.count).ok().filter(|count| *count <= ours.len())?;
                Some(ours.by_ref().take(count).collect())
            };
            let distributed = requests.iter().map(distribute).collect();
            is_raced = !theirs.is_empty();
            rest = ours.collect();
            distributed
        });
        self.pools.put_back(event_id, sector.id, &rest).await;
        Ok(PoolResult { units, is_raced })
    }

    /// Takes units from a pool of seats. The best seats can be chosen only from the whole map, so it is read first; a seat that
    /// another process takes in between makes its request come up short.
    async fn take_seats(
        &self,
        asked: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Result<PoolResult, PoolError> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        let _lock = self.pool_locks.lock_for_take(sector.id).await;
        let free = self.pools.read(event_id, sector).await?;
        let mut picked = self.in_flight.pick(sector.id, |in_flight| {
            let mut picker = Picker::new(sector.layout.as_ref(), free.without_units(in_flight));
            requests.iter().map(|request| picker.take(request.count)).collect()
        });
        let chosen: Vec<u32> = picked.iter().flatten().flat_map(|picked| picked.units.clone()).collect();
        if chosen.is_empty() {
            return Ok(PoolResult { units: picked, is_raced: false });
        }
        let taken = self.pools.take_these(event_id, sector.id, &chosen).await?;
        let taken: BTreeSet<u32> = taken.into_iter().collect();
        let is_raced = taken.len() < chosen.len();
        let mut unused = Vec::new();
        for slot in &mut picked {
            let is_complete = |picked: &InFlightUnits| picked.units.iter().all(|unit| taken.contains(unit));
            if let Some(incomplete) = slot.take_if(|picked| !is_complete(picked)) {
                unused.extend(incomplete.units.iter().copied().filter(|unit| taken.contains(unit)));
            }
        }
        self.pools.put_back(event_id, sector.id, &unused).await;
        Ok(PoolResult { units: picked, is_raced })
    }

    /// Picks units that were free at the last read of Postgres.
    async fn pick_from_view(&self, sector: &Sector, requests: &[CountRequest]) -> Vec<Option<InFlightUnits>> {
        let view = match self.views.latest(sector.id) {
            Some(view) => Ok(view),
            None => self.fresh_view(sector).await,
        };
        // A failed read is not reported here: if Postgres is down, the transaction that writes the holds fails too.
        let Ok(view) = view else { return requests.iter().map(|_| None).collect() };
        self.in_flight.pick(sector.id, |in_flight| {
            let mut picker = Picker::new(sector.layout.as_ref(), view.without_units(in_flight));
            let mut picked: Vec<_> = requests.iter().map(|request| picker.take(request.count)).collect();
            let own: BTreeSet<u32> = picked.iter().flatten().flatten().copied().collect();
            // All remaining units may be in flight. Try some of them anyway: the insert waits on the primary key until the other
            // transaction ends.
            let mut contested = Picker::new(sector.layout.as_ref(), view.without_units(&own));
            for (slot, request) in picked.iter_mut().zip(requests) {
                if slot.is_none() {
                    *slot = contested.take(request.count);
                }
            }
            picked
        })
    }
}
