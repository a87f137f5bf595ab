//! What Postgres says is free in each sector, kept in memory together with the revision at which it was so. A view follows
//! what this process commits change by change; where another process was in between, it stays behind until it is read again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use onsale_types::SectorId;

use crate::domain::unit_set::UnitSet;

/// So many sectors are remembered. Beyond it all are forgotten: a process that serves more is rare, and reads again.
const VIEWS_MAX: usize = 4_096;
/// Steps that wait for one before them. More than commits are under way at once: then the one before is another's.
const AHEAD_MAX: usize = 64;

/// What one commit changed in a sector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StockChange {
    /// Units that are no longer free.
    pub(super) taken: Vec<u32>,
    /// Units that became free.
    pub(super) freed: Vec<u32>,
}

#[derive(Debug)]
struct View {
    revision: u64,
    free: Arc<UnitSet>,
    /// Commits whose predecessors have not arrived.
    ahead: BTreeMap<u64, StockChange>,
}

/// The views of all sectors.
#[derive(Debug, Default)]
pub(super) struct Views {
    sectors: Mutex<HashMap<SectorId, View>>,
}

impl Views {
    /// What was free at `revision`, if that is the one known.
    pub(super) fn at(&self, sector_id: SectorId, revision: u64) -> Option<Arc<UnitSet>> {
        self.lock().get(&sector_id).filter(|view| view.revision == revision).map(|it| Arc::clone(&it.free))
    }

    /// What was free when last seen, less what this process took since.
    pub(super) fn latest(&self, sector_id: SectorId) -> Option<Arc<UnitSet>> {
        let sectors = self.lock();
        let view = sectors.get(&sector_id)?;
        if view.ahead.is_empty() {
            return Some(Arc::clone(&view.free));
        }
        let taken = view.ahead.values().flat_map(|change| &change.taken);
        Some(Arc::new(view.free.without_units(taken)))
    }

    /// Notes what was read at `revision`; nothing when something newer is known.
    pub(super) fn put(&self, sector_id: SectorId, revision: u64, free: &Arc<UnitSet>) {
        let mut sectors = self.lock();
        if sectors.len() >= VIEWS_MAX && !sectors.contains_key(&sector_id) {
            sectors.clear();
        }
        let new = || View { revision, free: Arc::clone(free), ahead: BTreeMap::new() };
        let view = sectors.entry(sector_id).or_insert_with(new);
        if view.revision < revision {
            view.revision = revision;
            view.free = Arc::clone(free);
            view.catch_up();
        }
    }

    /// Notes what a commit of this process changed, which made the sector's revision what it is.
    pub(super) fn follow(&self, sector_id: SectorId, revision: u64, change: StockChange) {
        let mut sectors = self.lock();
        let Some(view) = sectors.get_mut(&sector_id) else { return };
        view.ahead.insert(revision, change);
        view.catch_up();
        if view.ahead.len() > AHEAD_MAX {
            sectors.remove(&sector_id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SectorId, View>> {
        self.sectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn catch_up(&mut self) {
        while let Some(next) = self.ahead.first_entry() {
            if *next.key() > self.revision.saturating_add(1) {
                return;
            }
            let (revision, change) = next.remove_entry();
            if revision <= self.revision {
                continue;
            }
            let free = Arc::make_mut(&mut self.free);
            change.taken.iter().for_each(|unit| free.remove(*unit));
            change.freed.iter().for_each(|unit| free.insert(*unit));
            self.revision = revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sector() -> SectorId {
        SectorId::from_uuid(uuid::Uuid::from_u128(7))
    }

    proptest! {
        #[test]
        fn commits_in_any_order_lead_to_the_same_view(
            toggled in prop::collection::vec(1_u32..20, 1..30),
            order in prop::collection::vec(any::<prop::sample::Index>(), 30),
        ) {
            let mut truth = UnitSet::full(20);
            let mut changes: Vec<(u64, StockChange)> = Vec::new();
            for (revision, unit) in (2..).zip(&toggled) {
                let mut change = StockChange::default();
                if truth.contains(*unit) {
                    truth.remove(*unit);
                    change.taken.push(*unit);
                } else {
                    truth.insert(*unit);
                    change.freed.push(*unit);
                }
                changes.push((revision, change));
            }
            let last = changes.last().map_or(1, |(revision, _)| *revision);
            let views = Views::default();
            views.put(sector(), 1, &Arc::new(UnitSet::full(20)));
            for index in order {
                if !changes.is_empty() {
                    let (revision, change) = changes.remove(index.index(changes.len()));
                    views.follow(sector(), revision, change);
                }
            }
            let view = views.at(sector(), last);
            prop_assert_eq!(view.as_deref(), Some(&truth));
        }
    }

    #[test]
    fn a_view_with_a_gap_stays_at_its_revision_until_it_is_read_again() {
        let views = Views::default();
        views.put(sector(), 1, &Arc::new(UnitSet::full(3)));
        views.follow(sector(), 3, StockChange { taken: vec![2], freed: Vec::new() });
        assert_eq!(views.at(sector(), 3), None);
        assert_eq!(
            views.latest(sector()).unwrap().iter().collect::<Vec<_>>(),
            [1, 3],
            "what was taken is not free"
        );
        views.put(sector(), 2, &Arc::new(UnitSet::all_but([1], 3)));
        assert_eq!(views.at(sector(), 3).unwrap().iter().collect::<Vec<_>>(), [3]);
        views.put(sector(), 2, &Arc::new(UnitSet::full(3)));
        assert_eq!(views.latest(sector()).unwrap().count(), 1, "what is older changes nothing");
    }

    #[test]
    fn a_view_that_waits_too_long_for_a_step_is_given_up() {
        let views = Views::default();
        views.put(sector(), 1, &Arc::new(UnitSet::full(3)));
        (3..70).for_each(|revision| views.follow(sector(), revision, StockChange::default()));
        assert_eq!(views.latest(sector()), None);
    }
}
