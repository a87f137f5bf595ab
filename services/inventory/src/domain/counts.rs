//! What is counted of a sector, and how a hold changes it.

use std::collections::BTreeMap;

use onsale_types::SectorId;

use super::hold::Hold;

/// What is counted of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Its units.
    pub capacity: u32,
    /// Those that are not free.
    pub taken: u32,
    /// Of the taken ones, those kept for a quota that nobody holds or bought.
    pub kept: u32,
    /// Of the taken ones, those that are sold.
    pub sold: u32,
    /// Rises with every change.
    pub revision: u64,
}

/// How the counts of a sector change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsChange {
    /// Of the taken ones.
    pub taken: i32,
    /// Of those kept for a quota.
    pub kept: i32,
    /// Of those sold.
    pub sold: i32,
}

/// The changes of several sectors.
pub type Changes = BTreeMap<SectorId, CountsChange>;

impl CountsChange {
    /// A unit is set aside.
    pub const TAKEN: Self = Self { taken: 1, kept: 0, sold: 0 };
    /// A unit goes back to the public sale.
    pub const FREED: Self = Self { taken: -1, kept: 0, sold: 0 };
    /// A held unit is sold.
    pub const SOLD: Self = Self { taken: 0, kept: 0, sold: 1 };
    /// A unit that a quota keeps is held by an invitee.
    pub const INVITED: Self = Self { taken: 0, kept: -1, sold: 0 };
    /// A unit that an invitee held is kept again.
    pub const KEPT_AGAIN: Self = Self { taken: 0, kept: 1, sold: 0 };

    /// A quota keeps `units` that were free; or, negative, frees units that it kept.
    #[must_use]
    pub const fn kept(units: i32) -> Self {
        Self { taken: units, kept: units, sold: 0 }
    }
}

/// Adds to `changes` what one unit changes, for each unit of `holds`.
pub fn add<'a>(changes: &mut Changes, holds: impl IntoIterator<Item = &'a Hold>, each: CountsChange) {
    for item in holds.into_iter().flat_map(|hold| &hold.items) {
        let count = i32::try_from(item.units.len()).unwrap_or(i32::MAX);
        let change = changes.entry(item.sector_id).or_default();
        change.taken = change.taken.saturating_add(each.taken.saturating_mul(count));
        change.kept = change.kept.saturating_add(each.kept.saturating_mul(count));
        change.sold = change.sold.saturating_add(each.sold.saturating_mul(count));
    }
}

impl Counts {
    /// Units that anyone may reserve.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.capacity.saturating_sub(self.taken)
    }

    /// Whether nothing is free and nothing is held: all is sold or kept.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free() == 0 && self.held() == 0
    }

    /// Units held for claims.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.taken.saturating_sub(self.kept).saturating_sub(self.sold)
    }
}
