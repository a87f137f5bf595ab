//! Free units of an event, as Inventory reports them.

use std::collections::HashMap;

use onsale_types::SectorId;

/// Free units of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Availability {
    /// Free units by sector.
    pub(crate) sectors: HashMap<SectorId, u32>,
    /// False while the event is DRAFT, PAUSED or ENDED.
    pub(crate) is_on_sale: bool,
}

impl Availability {
    /// Returns the number of units that a customer who is admitted now could buy: 0 unless the event is on sale.
    pub(crate) fn free_units(&self) -> u64 {
        if self.is_on_sale { self.sectors.values().map(|free| u64::from(*free)).sum() } else { 0 }
    }
}
