//! Finds units for the reservations of a batch: asks Redis, which is fast and may be wrong, and takes what Postgres said
//! last where Redis has nothing to say. That there are not enough is said by Postgres alone, when the holds are written.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use onsale_types::{EventId, SectorId};

use super::{App, in_flight::Flight, mend_pools::Mend, reserve_units::Reserving};
use crate::{
    domain::{event::Sector, hold::Wanted, pick::Picker},
    metrics,
    store::pools::Fault,
};

/// How often a pool is asked before the view is. More than once, because other processes take from it too.
const TAKES_MAX: u32 = 4;
/// Sectors of one batch that are looked into at a time.
const SECTORS_CONCURRENCY: usize = 8;

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
    /// Postgres, or the customer; the pool may have them still.
    Other,
}

/// What the selections of one reservation got, in order. None: nothing could be proposed.
pub(super) type Proposals = Vec<Option<Proposal>>;

/// A selection by count.
#[derive(Clone, Copy, Debug)]
struct Demand {
    item: usize,
    selection: usize,
    count: u32,
}

/// What a pool gave.
struct Given {
    /// For each demand, in order.
    flights: Vec<Option<Flight>>,
    /// Whether somebody else was faster with some: asking again may help.
    is_raced: bool,
}

/// The demands on one sector, in order of arrival.
struct Asked<'a> {
    event_id: EventId,
    sector: &'a Sector,
    asks_redis: bool,
    demands: Vec<Demand>,
}

impl App {
    /// Units for each selection of each item that are likely free.
    pub(super) async fn propose(&self, items: &[Reserving]) -> Vec<Proposals> {
        let mut proposals: Vec<Proposals> =
            items.iter().map(|item| item.command.selections.iter().map(|_| None).collect()).collect();
        let mut set = |demand: Demand, proposal: Option<Proposal>| {
            if let Some(place) = proposals.get_mut(demand.item).and_then(|it| it.get_mut(demand.selection)) {
                *place = proposal;
            }
        };
        let mut sectors: BTreeMap<(SectorId, bool), Asked<'_>> = BTreeMap::new();
        for (item, reserving) in items.iter().enumerate() {
            for (selection, (sector, wanted)) in reserving.wanted().enumerate() {
                let demand = Demand { item, selection, count: wanted.count() };
                match wanted {
                    Wanted::Units(units) => {
                        let flight = self.in_flight.add(sector.id, units.clone());
                        set(demand, Some(Proposal { flight, origin: Origin::Other }));
                    }
                    Wanted::Count(_) => {
                        let asks_redis = reserving.asks_redis;
                        let event_id = reserving.command.event_id;
                        let new = || Asked { event_id, sector, asks_redis, demands: Vec::new() };
                        sectors.entry((sector.id, asks_redis)).or_insert_with(new).demands.push(demand);
                    }
                }
            }
        }
        let asked: Vec<_> = sectors.into_values().map(|asked| self.propose_in(asked)).collect();
        let found: Vec<_> = stream::iter(asked).buffer_unordered(SECTORS_CONCURRENCY).collect().await;
        found.into_iter().flatten().for_each(|(demand, proposal)| set(demand, proposal));
        proposals
    }

    /// Units for the demands on one sector.
    async fn propose_in(&self, asked: Asked<'_>) -> Vec<(Demand, Option<Proposal>)> {
        let mut open = asked.demands.clone();
        let mut found = Vec::with_capacity(open.len());
        if asked.asks_redis {
            for _ in 0..TAKES_MAX {
                let Some(Given { flights, is_raced }) = self.ask_pool(&asked, &open).await else { break };
                metrics::proposed("redis", flights.iter().flatten().count());
                let mut missed = Vec::new();
                for (demand, flight) in open.into_iter().zip(flights) {
                    match flight {
                        Some(flight) => {
                            found.push((demand, Some(Proposal { flight, origin: Origin::Redis })));
                        }
                        None => missed.push(demand),
                    }
                }
                open = missed;
                if !is_raced || open.is_empty() {
                    return found.into_iter().chain(open.into_iter().map(|demand| (demand, None))).collect();
                }
            }
        }
        let flights = self.pick_from_view(asked.sector, &open).await;
        metrics::proposed("postgres", flights.iter().flatten().count());
        let proposal = |flight| Proposal { flight, origin: Origin::Other };
        found.extend(open.into_iter().zip(flights).map(|(demand, flight)| (demand, flight.map(proposal))));
        found
    }

    /// What the pool gives; none when it cannot help.
    async fn ask_pool(&self, asked: &Asked<'_>, demands: &[Demand]) -> Option<Given> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        for _ in 0..2 {
            // Before the gate, behind which somebody may be trying whether Redis is back.
            if self.pools.are_away() {
                return None;
            }
            let given = if sector.layout.is_some() {
                self.take_seats(asked, demands).await
            } else {
                self.take_any(asked, demands).await
            };
            match given {
                Ok(given) => return Some(given),
                // Its failure is told by the transaction that comes next, if it lasts.
                Err(Fault::Missing | Fault::Broken) => {
                    self.mend_pool(event_id, sector, Mend::Wrong).await.ok()?
                }
                Err(Fault::Away) => return None,
            }
        }
        None
    }

    /// Units of a pool without seats: as many as all want, given out in order of arrival. The rest goes back.
    async fn take_any(&self, asked: &Asked<'_>, demands: &[Demand]) -> Result<Given, Fault> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        let count = demands.iter().map(|demand| demand.count).fold(0, u32::saturating_add);
        let _gate = self.gates.to_take(sector.id).await;
        let offered = self.pools.take(event_id, sector, count).await?;
        let (mut rest, mut is_raced) = (Vec::new(), false);
        let flights = self.in_flight.pick(sector.id, |flying| {
            // Others of this process may have picked some without asking the pool; then they are theirs. Should those come to
            // nothing, the units are lost to the pool until it is compared.
            let (theirs, ours): (Vec<u32>, Vec<u32>) = offered.iter().partition(|unit| flying.contains(unit));
            let mut units = ours.into_iter();
            let give = |demand: &Demand| {
                let count = usize::try_from(demand.count).ok().filter(|count| *count <= units.len())?;
                Some(units.by_ref().take(count).collect())
            };
            let given = demands.iter().map(give).collect();
            is_raced = !theirs.is_empty();
            rest = units.collect();
            given
        });
        self.pools.put_back(event_id, sector.id, &rest).await;
        Ok(Given { flights, is_raced })
    }

    /// Seats of a pool: which are best takes the whole map, so it is read, and what is chosen is taken if it still can be.
    async fn take_seats(&self, asked: &Asked<'_>, demands: &[Demand]) -> Result<Given, Fault> {
        let (event_id, sector) = (asked.event_id, asked.sector);
        let _gate = self.gates.to_take(sector.id).await;
        let free = self.pools.read(event_id, sector).await?;
        let mut flights = self.in_flight.pick(sector.id, |flying| {
            let mut picker = Picker::new(sector.layout.as_ref(), free.without_units(flying));
            demands.iter().map(|demand| picker.take(demand.count)).collect()
        });
        let chosen: Vec<u32> = flights.iter().flatten().flat_map(|flight| flight.units.clone()).collect();
        if chosen.is_empty() {
            return Ok(Given { flights, is_raced: false });
        }
        let taken = self.pools.take_these(event_id, sector.id, &chosen).await?;
        let taken: BTreeSet<u32> = taken.into_iter().collect();
        let is_raced = taken.len() < chosen.len();
        let mut in_vain = Vec::new();
        for place in &mut flights {
            let is_whole = |flight: &Flight| flight.units.iter().all(|unit| taken.contains(unit));
            if let Some(flight) = place.take_if(|flight| !is_whole(flight)) {
                in_vain.extend(flight.units.iter().copied().filter(|unit| taken.contains(unit)));
            }
        }
        self.pools.put_back(event_id, sector.id, &in_vain).await;
        Ok(Given { flights, is_raced })
    }

    /// Units that were free when Postgres was last asked.
    async fn pick_from_view(&self, sector: &Sector, demands: &[Demand]) -> Vec<Option<Flight>> {
        let view = match self.views.latest(sector.id) {
            Some(view) => Ok(view),
            None => self.fresh_view(sector).await,
        };
        // Its failure is told by the transaction that comes next, if it lasts.
        let Ok(view) = view else { return demands.iter().map(|_| None).collect() };
        self.in_flight.pick(sector.id, |flying| {
            let mut picker = Picker::new(sector.layout.as_ref(), view.without_units(flying));
            let mut picked: Vec<_> = demands.iter().map(|demand| picker.take(demand.count)).collect();
            let own: BTreeSet<u32> = picked.iter().flatten().flatten().copied().collect();
            // What is left may all be in flight. Then one of those is tried: the primary key makes us wait for its outcome.
            let mut contested = Picker::new(sector.layout.as_ref(), view.without_units(&own));
            for (place, demand) in picked.iter_mut().zip(demands) {
                if place.is_none() {
                    *place = contested.take(demand.count);
                }
            }
            picked
        })
    }
}
