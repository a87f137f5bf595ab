//! Counts of a sector's units, and the effect of holds and quotas on them.

use std::collections::BTreeMap;

use onsale_types::SectorId;

use super::hold::Hold;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) capacity: u32,
    /// Units that are not free: held, sold or kept.
    pub(crate) taken: u32,
    /// Taken units that a quota keeps, without those that invitees hold or have bought.
    pub(crate) kept: u32,
    /// Taken units that are sold.
    pub(crate) sold: u32,
    /// Rises with every change of the sector's stock.
    pub(crate) revision: u64,
}

/// A change of a sector's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountsChange {
    pub(crate) taken: i32,
    pub(crate) kept: i32,
    pub(crate) sold: i32,
}

/// The changes of several sectors.
pub(crate) type Changes = BTreeMap<SectorId, CountsChange>;

impl CountsChange {
    /// A customer holds a free unit.
    pub(crate) const TAKEN: Self = Self { taken: 1, kept: 0, sold: 0 };
    /// A held unit goes back to the public sale.
    pub(crate) const FREED: Self = Self { taken: -1, kept: 0, sold: 0 };
    /// A held unit is sold.
    pub(crate) const SOLD: Self = Self { taken: 0, kept: 0, sold: 1 };
    /// An invitee holds a unit that a quota kept.
    pub(crate) const INVITED: Self = Self { taken: 0, kept: -1, sold: 0 };
    /// A unit that an invitee held goes back to its quota.
    pub(crate) const KEPT_AGAIN: Self = Self { taken: 0, kept: 1, sold: 0 };

    /// Returns the change of a quota that keeps `units` free units or, if negative, frees kept units.
    #[must_use]
    pub(crate) const fn kept(units: i32) -> Self {
        Self { taken: units, kept: units, sold: 0 }
    }
}

/// Adds the change `each` to `changes` for every unit of `holds`.
pub(crate) fn add<'a>(changes: &mut Changes, holds: impl IntoIterator<Item = &'a Hold>, each: CountsChange) {
    for item in holds.into_iter().flat_map(|hold| &hold.items) {
        let count = i32::try_from(item.units.len()).unwrap_or(i32::MAX);
        let change = changes.entry(item.sector_id).or_default();
        change.taken = change.taken.saturating_add(each.taken.saturating_mul(count));
        change.kept = change.kept.saturating_add(each.kept.saturating_mul(count));
        change.sold = change.sold.saturating_add(each.sold.saturating_mul(count));
    }
}

impl Counts {
    /// Returns the number of units in the public sale.
    #[must_use]
    pub(crate) fn free(&self) -> u32 {
        self.capacity.saturating_sub(self.taken)
    }

    /// Returns true if no unit is free or held, so all are sold or kept.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.free() == 0 && self.held() == 0
    }

    /// Returns the number of units that are held and not sold.
    #[must_use]
    pub(crate) fn held(&self) -> u32 {
        self.taken.saturating_sub(self.kept).saturating_sub(self.sold)
    }
}
