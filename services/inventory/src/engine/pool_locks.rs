//! Striped read-write locks by sector: a take from a pool holds its lock shared, a read for a comparison with Postgres holds it
//! exclusively. Without them, units that were taken but not yet marked in flight would look lost and be offered again; each such
//! unit costs some customer an attempt, and pools are repaired when demand is highest.

use onsale_types::SectorId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks; the number of sectors has no limit. Two sectors with one lock wait at most for each other's Redis command.
const LOCKS: usize = 64;

#[derive(Debug)]
pub(super) struct PoolLocks {
    locks: [RwLock<()>; LOCKS],
}

impl Default for PoolLocks {
    fn default() -> Self {
        Self { locks: std::array::from_fn(|_| RwLock::new(())) }
    }
}

impl PoolLocks {
    /// Waits for comparisons of the pool to finish and keeps new ones out while the guard lives.
    pub(super) async fn lock_for_take(&self, sector_id: SectorId) -> RwLockReadGuard<'_, ()> {
        self.of(sector_id).read().await
    }

    /// Waits for takes from the pool to finish and keeps new ones out while the guard lives. Hold it for one Redis command only.
    pub(super) async fn lock_for_compare(&self, sector_id: SectorId) -> RwLockWriteGuard<'_, ()> {
        self.of(sector_id).write().await
    }

    fn of(&self, sector_id: SectorId) -> &RwLock<()> {
        // The last byte of an id is random.
        let [.., last] = sector_id.as_uuid().into_bytes();
        let [first, ..] = &self.locks;
        self.locks.get(usize::from(last) % LOCKS).unwrap_or(first)
    }
}
