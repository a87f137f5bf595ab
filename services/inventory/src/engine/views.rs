//! Copies of the free units of each sector in Postgres, kept in memory with the revision at which they were read. A view follows
//! the commits of this process one by one. After a commit of another process it lags until it is read again.

use std::{collections::BTreeMap, sync::Arc};

use onsale_storage::postgres::{Isolation, Transaction};
use onsale_types::SectorId;
use parking_lot::Mutex;
use quick_cache::unsync::Cache;

use super::Engine;
use crate::{
    domain::{event::Sector, unit_set::UnitSet},
    error::Error,
    store,
};

/// Views kept in memory. A process that serves more sectors is rare and reads the others again.
const VIEWS_MAX: usize = 4_096;
/// Changes that wait for an earlier revision. More than the commits that run concurrently: beyond it, the missing one is another
/// process's.
const PENDING_MAX: usize = 64;

/// The change of one commit to a sector's free units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StockChange {
    /// Units that are no longer free.
    pub(crate) taken: Vec<u32>,
    /// Units that became free.
    pub(crate) freed: Vec<u32>,
}

#[derive(Debug)]
struct View {
    revision: u64,
    free: Arc<UnitSet>,
    /// Commits whose predecessors have not arrived, by revision.
    pending: BTreeMap<u64, StockChange>,
}

/// The views of all sectors.
pub(crate) struct Views {
    sectors: Mutex<Cache<SectorId, View>>,
}

impl Default for Views {
    fn default() -> Self {
        Self { sectors: Mutex::new(Cache::new(VIEWS_MAX)) }
    }
}

impl Views {
    /// Returns the units that were free at `revision`, if the view is at that revision.
    fn at(&self, sector_id: SectorId, revision: u64) -> Option<Arc<UnitSet>> {
        let sectors = self.sectors.lock();
        sectors.get(&sector_id).filter(|view| view.revision == revision).map(|view| Arc::clone(&view.free))
    }

    /// Returns the units of the view without those that this process has taken since.
    pub(super) fn latest(&self, sector_id: SectorId) -> Option<Arc<UnitSet>> {
        let sectors = self.sectors.lock();
        let view = sectors.get(&sector_id)?;
        if view.pending.is_empty() {
            return Some(Arc::clone(&view.free));
        }
        let taken = view.pending.values().flat_map(|change| &change.taken);
        Some(Arc::new(view.free.without_units(taken)))
    }

    /// Stores the free units that were read at `revision`, unless the view is newer.
    fn put(&self, sector_id: SectorId, revision: u64, free: &Arc<UnitSet>) {
        let mut sectors = self.sectors.lock();
        if let Some(mut view) = sectors.get_mut(&sector_id) {
            if view.revision < revision {
                view.revision = revision;
                view.free = Arc::clone(free);
                view.catch_up();
            }
            return;
        }
        sectors.insert(sector_id, View { revision, free: Arc::clone(free), pending: BTreeMap::new() });
    }

    /// Applies a commit of this process that moved the sector to `revision`.
    pub(crate) fn apply(&self, sector_id: SectorId, revision: u64, change: StockChange) {
        let mut sectors = self.sectors.lock();
        let Some(mut view) = sectors.get_mut(&sector_id) else { return };
        view.pending.insert(revision, change);
        view.catch_up();
        let lags = view.pending.len() > PENDING_MAX;
        drop(view);
        if lags {
            sectors.remove(&sector_id);
        }
    }
}

impl View {
    fn catch_up(&mut self) {
        while let Some(next) = self.pending.first_entry() {
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

impl Engine {
    /// Returns the units that are free in Postgres at some time after this call began.
    pub(crate) async fn fresh_view(&self, sector: &Sector) -> Result<Arc<UnitSet>, Error> {
        let postgres = &self.stores.postgres;
        let work =
            postgres.transaction_at(Isolation::RepeatableRead, "find free units", |transaction| async move {
                let counts = store::stocks::counts_of(&transaction, &[sector.id]).await?;
                let revision = counts.get(&sector.id).map_or(0, |counts| counts.revision);
                self.view_at(&transaction, sector, revision).await
            });
        self.view_reads.run(sector.id, Box::pin(work)).await
    }

    /// Returns the units that are free at the sector's `revision`, and reads them only if the view is at another one.
    /// `transaction` must read from one snapshot and have changed nothing.
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
                    views.apply(sector(), revision, change);
                }
            }
            let view = views.at(sector(), last);
            prop_assert_eq!(view.as_deref(), Some(&truth));
        }
    }

    #[test]
    fn view_with_a_gap_keeps_its_revision_until_it_is_read_again() {
        let views = Views::default();
        views.put(sector(), 1, &Arc::new(UnitSet::full(3)));
        views.apply(sector(), 3, StockChange { taken: vec![2], freed: Vec::new() });
        assert_eq!(views.at(sector(), 3), None);
        assert_eq!(
            views.latest(sector()).unwrap().iter().collect::<Vec<_>>(),
            [1, 3],
            "taken units are not free"
        );
        views.put(sector(), 2, &Arc::new(UnitSet::all_but([1], 3)));
        assert_eq!(views.at(sector(), 3).unwrap().iter().collect::<Vec<_>>(), [3]);
        views.put(sector(), 2, &Arc::new(UnitSet::full(3)));
        assert_eq!(views.latest(sector()).unwrap().count(), 1, "an older read changes nothing");
    }

    #[test]
    fn view_that_lacks_a_commit_for_too_long_is_evicted() {
        let views = Views::default();
        views.put(sector(), 1, &Arc::new(UnitSet::full(3)));
        (3..70).for_each(|revision| views.apply(sector(), revision, StockChange::default()));
        assert_eq!(views.latest(sector()), None);
    }
}
