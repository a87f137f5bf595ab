//! Units that calls of this process have picked and not yet written, so that they do not pick the same ones side by side.
//! A help only: calls of other processes are not seen, and the primary key decides.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use onsale_types::SectorId;

type Sectors = HashMap<SectorId, BTreeSet<u32>>;

/// The units of each sector that are about to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    sectors: Arc<Mutex<Sectors>>,
}

/// Units in units_in_flight until this is dropped.
#[derive(Debug)]
pub(super) struct InFlightUnits {
    in_flight: InFlight,
    pub(super) sector_id: SectorId,
    /// In rising order.
    pub(super) units: Vec<u32>,
}

impl InFlight {
    /// Lets `choose` pick units for several, knowing those in units_in_flight, and puts what it picked in units_in_flight at once.
    pub(super) fn pick(
        &self,
        sector_id: SectorId,
        choose: impl FnOnce(&BTreeSet<u32>) -> Vec<Option<Vec<u32>>>,
    ) -> Vec<Option<InFlightUnits>> {
        let mut sectors = self.lock();
        let flying = sectors.entry(sector_id).or_default();
        let picked = choose(flying);
        flying.extend(picked.iter().flatten().flatten());
        if flying.is_empty() {
            sectors.remove(&sector_id);
        }
        drop(sectors);
        let fly = |units: Vec<u32>| InFlightUnits { in_flight: self.clone(), sector_id, units };
        picked.into_iter().map(|units| units.map(fly)).collect()
    }

    /// Puts `units` in units_in_flight.
    pub(super) fn add(&self, sector_id: SectorId, units: Vec<u32>) -> InFlightUnits {
        self.lock().entry(sector_id).or_default().extend(&units);
        InFlightUnits { in_flight: self.clone(), sector_id, units }
    }

    /// What is in units_in_flight.
    pub(super) fn of(&self, sector_id: SectorId) -> BTreeSet<u32> {
        self.lock().get(&sector_id).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Sectors> {
        self.sectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightUnits {
    fn drop(&mut self) {
        let mut sectors = self.in_flight.lock();
        if let Some(flying) = sectors.get_mut(&self.sector_id) {
            for unit in &self.units {
                flying.remove(unit);
            }
            if flying.is_empty() {
                sectors.remove(&self.sector_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_in_flight_are_seen_by_the_next_and_land_when_dropped() {
        let in_flight = InFlight::default();
        let sector_id = SectorId::generate();
        let first = in_flight.add(sector_id, vec![1, 2]);
        let second = in_flight.pick(sector_id, |flying| {
            assert_eq!(*flying, BTreeSet::from([1, 2]));
            vec![Some(vec![3]), None]
        });
        assert_eq!(in_flight.of(sector_id), BTreeSet::from([1, 2, 3]));
        drop(first);
        assert_eq!(in_flight.of(sector_id), BTreeSet::from([3]));
        assert!(in_flight.pick(sector_id, |_| vec![None]).iter().all(Option::is_none));
        drop(second);
        assert!(in_flight.lock().is_empty());
    }
}
