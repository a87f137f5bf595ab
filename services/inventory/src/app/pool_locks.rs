//! Lets a pool be looked at only while this process does not take from it. What it has taken and not yet put in units_in_flight would look
//! lost, and be offered again: each such unit costs somebody a try, and a pool is mended when many are about.

use onsale_types::SectorId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Sectors share pool_locks: there may be any number of sectors. Two at one gate wait for each other's Redis for nothing, not long.
const GATES: usize = 64;

/// A gate for each sector.
#[derive(Debug)]
pub(super) struct PoolLocks {
    pool_locks: [RwLock<()>; GATES],
}

impl Default for PoolLocks {
    fn default() -> Self {
        Self { pool_locks: std::array::from_fn(|_| RwLock::new(())) }
    }
}

impl PoolLocks {
    /// Waits until nobody looks at the pool. While the answer lives, nobody begins to.
    pub(super) async fn lock_for_take(&self, sector_id: SectorId) -> RwLockReadGuard<'_, ()> {
        self.of(sector_id).read().await
    }

    /// Waits until nobody takes from the pool. While the answer lives, nobody begins to. To be kept for one question to Redis.
    pub(super) async fn lock_for_compare(&self, sector_id: SectorId) -> RwLockWriteGuard<'_, ()> {
        self.of(sector_id).write().await
    }

    fn of(&self, sector_id: SectorId) -> &RwLock<()> {
        // The last byte of an id is random.
        let [.., last] = sector_id.as_uuid().into_bytes();
        let [first, ..] = &self.pool_locks;
        self.pool_locks.get(usize::from(last) % GATES).unwrap_or(first)
    }
}
