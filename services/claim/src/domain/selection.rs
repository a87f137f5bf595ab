//! What a customer asks for.

use onsale_types::SectorId;

/// What is asked for in one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The sector.
    pub sector: SectorId,
    /// How many, or which.
    pub wanted: Wanted,
}

/// How many units, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As many, whichever are best.
    Count(u32),
    /// Exactly these.
    Units(Vec<u32>),
}

/// How many units are asked for in all.
#[must_use]
pub fn unit_count(selections: &[Selection]) -> u32 {
    selections.iter().fold(0, |sum, selection| {
        let count = match &selection.wanted {
            Wanted::Count(count) => *count,
            Wanted::Units(units) => u32::try_from(units.len()).unwrap_or(u32::MAX),
        };
        sum.saturating_add(count)
    })
}
