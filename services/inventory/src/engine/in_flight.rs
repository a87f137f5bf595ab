//! Units that calls of this process have picked and not yet written, so that concurrent calls do not pick the same ones. Calls
//! of other processes are not visible here; the primary key in Postgres decides.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use onsale_types::SectorId;
use parking_lot::Mutex;

type Sectors = HashMap<SectorId, BTreeSet<u32>>;

/// The units of each sector that are about to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    sectors: Arc<Mutex<Sectors>>,
}

/// Units that are in flight until this guard is dropped.
#[derive(Debug)]
pub(crate) struct InFlightUnits {
    in_flight: InFlight,
    pub(crate) sector_id: SectorId,
    /// In rising order.
    pub(crate) units: Vec<u32>,
}

impl InFlight {
    /// Lets `choose` pick units for several requests, given those in flight, and marks its picks in the same step.
    pub(super) fn pick(
        &self,
        sector_id: SectorId,
        choose: impl FnOnce(&BTreeSet<u32>) -> Vec<Option<Vec<u32>>>,
    ) -> Vec<Option<InFlightUnits>> {
        let mut sectors = self.sectors.lock();
        let in_flight = sectors.entry(sector_id).or_default();
        let picked = choose(in_flight);
        in_flight.extend(picked.iter().flatten().flatten());
        if in_flight.is_empty() {
            sectors.remove(&sector_id);
        }
        drop(sectors);
        let guard = |units: Vec<u32>| InFlightUnits { in_flight: self.clone(), sector_id, units };
        picked.into_iter().map(|units| units.map(guard)).collect()
    }

    /// Marks `units`, also those that are in flight already.
    pub(super) fn add(&self, sector_id: SectorId, units: Vec<u32>) -> InFlightUnits {
        self.sectors.lock().entry(sector_id).or_default().extend(&units);
        InFlightUnits { in_flight: self.clone(), sector_id, units }
    }

    /// Returns the sector's units in flight.
    pub(super) fn of(&self, sector_id: SectorId) -> BTreeSet<u32> {
        self.sectors.lock().get(&sector_id).cloned().unwrap_or_default()
    }
}

impl Drop for InFlightUnits {
    fn drop(&mut self) {
        let mut sectors = self.in_flight.sectors.lock();
        if let Some(in_flight) = sectors.get_mut(&self.sector_id) {
            for unit in &self.units {
                in_flight.remove(unit);
            }
            if in_flight.is_empty() {
                sectors.remove(&self.sector_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_in_flight_until_their_guard_is_dropped() {
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
        assert!(in_flight.sectors.lock().is_empty());
    }
}
