//! Lets a pool be looked at only while this process does not take from it. What it has taken and not yet put in flight would look
//! lost, and be offered again: each such unit costs somebody a try, and a pool is mended when many are about.

use onsale_types::SectorId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Sectors share gates: there may be any number of sectors. Two at one gate wait for each other's Redis for nothing, not long.
const GATES: usize = 64;

/// A gate for each sector.
#[derive(Debug)]
pub(super) struct Gates {
    gates: [RwLock<()>; GATES],
}

impl Default for Gates {
    fn default() -> Self {
        Self { gates: std::array::from_fn(|_| RwLock::new(())) }
    }
}

impl Gates {
    /// Waits until nobody looks at the pool. While the answer lives, nobody begins to.
    pub(super) async fn to_take(&self, sector_id: SectorId) -> RwLockReadGuard<'_, ()> {
        self.of(sector_id).read().await
    }

    /// Waits until nobody takes from the pool. While the answer lives, nobody begins to. To be kept for one question to Redis.
    pub(super) async fn to_look(&self, sector_id: SectorId) -> RwLockWriteGuard<'_, ()> {
        self.of(sector_id).write().await
    }

    fn of(&self, sector_id: SectorId) -> &RwLock<()> {
        // The last byte of an id is random.
        let [.., last] = sector_id.as_uuid().into_bytes();
        let [first, ..] = &self.gates;
        self.gates.get(usize::from(last) % GATES).unwrap_or(first)
    }
}
