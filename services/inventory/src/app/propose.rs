//! Finds units for the reservations of a batch: asks Redis, which is fast and may be wrong, and takes what Postgres said
//! last where Redis has nothing to say. That there are not enough is said by Postgres alone, when the holds are written.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use onsale_types::{EventId, SectorId};

use super::{App, in_flight::InFlightUnits, mend_pools::RepairReason, reserve_units::ReserveItem};
use crate::{
    domain::{event::Sector, hold::UnitChoice, pick::Picker},
    metrics,
    store::pools::PoolError,
};

/// How often a pool is sector_request before the view is. More than once, because other processes take from it too.
const TAKES_MAX: u32 = 4;
/// Sectors of one batch that are looked into at a time.
const SECTORS_CONCURRENCY: usize = 8;

/// Units for one selection, in units_in_flight.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) units_in_flight: InFlightUnits,
    pub(super) origin: Origin,
}

/// Who proposed units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The pool, which has them no more.
    Redis,
    /// Postgres, or the customer; the pool may have them still.
    Other,
}

/// What the selections of one reservation got, in order. None: nothing could be proposed.
pub(super) type Proposals = Vec<Option<Proposal>>;

/// A selection by count.
#[derive(Clone, Copy, Debug)]
struct CountRequest {
    item: usize,
    selection: usize,
    count: u32,
}

/// What a pool gave.
struct PoolResult {
    /// For each request, in order.
    taken: Vec<Option<InFlightUnits>>,
    /// Whether somebody else was faster with some: asking again may help.
    is_raced: bool,
}

/// The requests on one sector, in order of arrival.
struct SectorRequest<'a> {
    event_id: EventId,
    sector: &'a Sector,
    uses_pool: bool,
    requests: Vec<CountRequest>,
}

impl App {
    /// Units for each selection of each item that are likely free.
    pub(super) async fn propose(&self, items: &[ReserveItem]) -> Vec<Proposals> {
        let mut proposals: Vec<Proposals> =
            items.iter().map(|item| item.command.selections.iter().map(|_| None).collect()).collect();
        let mut set = |request: CountRequest, proposal: Option<Proposal>| {
            if let Some(place) = proposals.get_mut(request.item).and_then(|it| it.get_mut(request.selection))
            {
                *place = proposal;
            }
        };
        let mut sectors: BTreeMap<(SectorId, bool), SectorRequest<'_>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            for (selection, (sector, wanted)) in item.wanted().enumerate() {
                let request = CountRequest { item: index, selection, count: wanted.count() };
                match wanted {
                    UnitChoice::Units(units) => {
                        let units_in_flight = self.in_flight.add(sector.id, units.clone());
                        set(request, Some(Proposal { units_in_flight, origin: Origin::Other }));
                    }
                    UnitChoice::Count(_) => {
                        let uses_pool = item.uses_pool;
                        let event_id = item.command.event_id;
                        let new = || SectorRequest { event_id, sector, uses_pool, requests: Vec::new() };
                        sectors.entry((sector.id, uses_pool)).or_insert_with(new).requests.push(request);
                    }
                }
            }
        }
        let sector_request: Vec<_> =
            sectors.into_values().map(|sector_request| self.propose_in(sector_request)).collect();
        let found: Vec<_> =
            stream::iter(sector_request).buffer_unordered(SECTORS_CONCURRENCY).collect().await;
        found.into_iter().flatten().for_each(|(request, proposal)| set(request, proposal));
        proposals
    }

    /// Units for the requests on one sector.
    async fn propose_in(&self, sector_request: SectorRequest<'_>) -> Vec<(CountRequest, Option<Proposal>)> {
        let mut open = sector_request.requests.clone();
        let mut found = Vec::with_capacity(open.len());
        if sector_request.uses_pool {
            for _ in 0..TAKES_MAX {
                let Some(PoolResult { taken, is_raced }) = self.ask_pool(&sector_request, &open).await else {
                    break;
                };
                metrics::proposed("redis", taken.iter().flatten().count());
                let mut missed = Vec::new();
                for (request, units_in_flight) in open.into_iter().zip(taken) {
                    match units_in_flight {
                        Some(units_in_flight) => {
                            found.push((request, Some(Proposal { units_in_flight, origin: Origin::Redis })));
                        }
                        None => missed.push(request),
                    }
                }
                open = missed;
                if !is_raced || open.is_empty() {
                    return found
                        .into_iter()
                        .chain(open.into_iter().map(|request| (request, None)))
                        .collect();
                }
            }
        }
        let taken = self.pick_from_view(sector_request.sector, &open).await;
        metrics::proposed("postgres", taken.iter().flatten().count());
        let proposal = |units_in_flight| Proposal { units_in_flight, origin: Origin::Other };
        found.extend(
            open.into_iter()
                .zip(taken)
                .map(|(request, units_in_flight)| (request, units_in_flight.map(proposal))),
        );
        found
    }

    /// What the pool gives; none when it cannot help.
    async fn ask_pool(
        &self,
        sector_request: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Option<PoolResult> {
        let (event_id, sector) = (sector_request.event_id, sector_request.sector);
        for _ in 0..2 {
            // Before the gate, behind which somebody may be trying whether Redis is back.
            if self.pools.is_unavailable() {
                return None;
            }
            let given = if sector.layout.is_some() {
                self.take_seats(sector_request, requests).await
            } else {
                self.take_any(sector_request, requests).await
            };
            match given {
                Ok(given) => return Some(given),
                // Its failure is told by the transaction that comes next, if it lasts.
                Err(PoolError::Missing | PoolError::Broken) => {
                    self.repair_pool(event_id, sector, RepairReason::Wrong).await.ok()?
                }
                Err(PoolError::Unavailable) => return None,
            }
        }
        None
    }

    /// Units of a pool without seats: as many as all want, given out in order of arrival. The rest goes back.
    async fn take_any(
        &self,
        sector_request: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Result<PoolResult, PoolError> {
        let (event_id, sector) = (sector_request.event_id, sector_request.sector);
        let count = requests.iter().map(|request| request.count).fold(0, u32::saturating_add);
        let _lock = self.pool_locks.lock_for_take(sector.id).await;
        let offered = self.pools.take(event_id, sector, count).await?;
        let (mut rest, mut is_raced) = (Vec::new(), false);
        let taken = self.in_flight.pick(sector.id, |flying| {
            // Others of this process may have picked some without asking the pool; then they are theirs. Should those come to
            // nothing, the units are lost to the pool until it is compared.
            let (theirs, ours): (Vec<u32>, Vec<u32>) = offered.iter().partition(|unit| flying.contains(unit));
            let mut units = ours.into_iter();
            let give = |request: &CountRequest| {
                let count = usize::try_from(request.count).ok().filter(|count| *count <= units.len())?;
                Some(units.by_ref().take(count).collect())
            };
            let given = requests.iter().map(give).collect();
            is_raced = !theirs.is_empty();
            rest = units.collect();
            given
        });
        self.pools.put_back(event_id, sector.id, &rest).await;
        Ok(PoolResult { taken, is_raced })
    }

    /// Seats of a pool: which are best takes the whole map, so it is read, and what is chosen is taken if it still can be.
    async fn take_seats(
        &self,
        sector_request: &SectorRequest<'_>,
        requests: &[CountRequest],
    ) -> Result<PoolResult, PoolError> {
        let (event_id, sector) = (sector_request.event_id, sector_request.sector);
        let _lock = self.pool_locks.lock_for_take(sector.id).await;
        let free = self.pools.read(event_id, sector).await?;
        let mut picked = self.in_flight.pick(sector.id, |flying| {
            let mut picker = Picker::new(sector.layout.as_ref(), free.without_units(flying));
            requests.iter().map(|request| picker.take(request.count)).collect()
        });
        let chosen: Vec<u32> =
            picked.iter().flatten().flat_map(|units_in_flight| units_in_flight.units.clone()).collect();
        if chosen.is_empty() {
            return Ok(PoolResult { taken: picked, is_raced: false });
        }
        let taken = self.pools.take_these(event_id, sector.id, &chosen).await?;
        let taken: BTreeSet<u32> = taken.into_iter().collect();
        let is_raced = taken.len() < chosen.len();
        let mut in_vain = Vec::new();
        for place in &mut picked {
            let is_whole = |units_in_flight: &InFlightUnits| {
                units_in_flight.units.iter().all(|unit| taken.contains(unit))
            };
            if let Some(units_in_flight) = place.take_if(|units_in_flight| !is_whole(units_in_flight)) {
                in_vain.extend(units_in_flight.units.iter().copied().filter(|unit| taken.contains(unit)));
            }
        }
        self.pools.put_back(event_id, sector.id, &in_vain).await;
        Ok(PoolResult { taken: picked, is_raced })
    }

    /// Units that were free when Postgres was last sector_request.
    async fn pick_from_view(&self, sector: &Sector, requests: &[CountRequest]) -> Vec<Option<InFlightUnits>> {
        let view = match self.views.latest(sector.id) {
            Some(view) => Ok(view),
            None => self.fresh_view(sector).await,
        };
        // Its failure is told by the transaction that comes next, if it lasts.
        let Ok(view) = view else { return requests.iter().map(|_| None).collect() };
        self.in_flight.pick(sector.id, |flying| {
            let mut picker = Picker::new(sector.layout.as_ref(), view.without_units(flying));
            let mut picked: Vec<_> = requests.iter().map(|request| picker.take(request.count)).collect();
            let own: BTreeSet<u32> = picked.iter().flatten().flatten().copied().collect();
            // What is left may all be in units_in_flight. Then one of those is tried: the primary key makes us wait for its outcome.
            let mut contested = Picker::new(sector.layout.as_ref(), view.without_units(&own));
            for (place, request) in picked.iter_mut().zip(requests) {
                if place.is_none() {
                    *place = contested.take(request.count);
                }
            }
            picked
        })
    }
}
