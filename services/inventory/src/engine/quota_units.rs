//! Applies committed changes of a quota's units to the sector's view and pool. If the process dies before, the reconciler
//! corrects the pool.

use onsale_types::{EventId, SectorId};

use super::{Engine, StockChange};

/// Units in one command to Redis.
const UNITS_PER_COMMAND: usize = 1_000;

/// Units of a sector that a commit moved into or out of a quota.
#[derive(Debug)]
pub(crate) struct QuotaUnits {
    pub(crate) event_id: EventId,
    pub(crate) sector_id: SectorId,
    /// The sector's revision after the commit.
    pub(crate) revision: u64,
    pub(crate) units: Vec<u32>,
}

impl Engine {
    /// Removes the units that a quota keeps since a commit.
    pub(crate) async fn apply_kept(&self, kept: QuotaUnits) {
        let QuotaUnits { event_id, sector_id, revision, units } = kept;
        self.views.apply(sector_id, revision, StockChange { taken: units.clone(), freed: Vec::new() });
        for units in units.chunks(UNITS_PER_COMMAND) {
            self.pools.take_out(event_id, sector_id, units).await;
        }
    }

    /// Adds the units that a quota returned to the public sale by a commit.
    pub(crate) async fn apply_returned(&self, returned: QuotaUnits) {
        let QuotaUnits { event_id, sector_id, revision, units } = returned;
        self.views.apply(sector_id, revision, StockChange { taken: Vec::new(), freed: units.clone() });
        for units in units.chunks(UNITS_PER_COMMAND) {
            self.pools.put_back(event_id, sector_id, units).await;
        }
    }
}
