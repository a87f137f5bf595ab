//! Rows of a seated sector, and the seat of each unit.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A seat with its printed labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) row_label: String,
    pub(crate) seat_label: String,
}

/// The rows of a seated sector, best first. Unit 1 is the first seat of the first row; numbers continue from row to row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeatLayout {
    pub(crate) rows: Vec<SeatRow>,
    #[serde(skip)]
    firsts: Firsts,
}

/// The first unit of each row, computed once because every reservation looks up the rows of its units.
#[derive(Clone, Debug, Default)]
struct Firsts(OnceLock<Vec<u32>>);

impl PartialEq for Firsts {
    fn eq(&self, _other: &Self) -> bool {
        // Derived from the rows, which are compared.
        true
    }
}

impl Eq for Firsts {}

/// Adjacent seats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeatRow {
    pub(crate) label: String,
    pub(crate) seat_count: u32,
    /// Empty: the seats are labeled `1`, `2`, ….
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seat_labels: Vec<String>,
}

impl SeatLayout {
    /// Creates a layout of `rows`, best first.
    #[must_use]
    pub(crate) fn new(rows: Vec<SeatRow>) -> Self {
        Self { rows, firsts: Firsts::default() }
    }

    /// Returns the number of seats.
    #[must_use]
    pub(crate) fn capacity(&self) -> u32 {
        self.rows.iter().map(|row| row.seat_count).fold(0, u32::saturating_add)
    }

    /// Returns each row with its first unit.
    pub(crate) fn rows_from(&self) -> impl Iterator<Item = (u32, &SeatRow)> {
        self.rows.iter().scan(1_u32, |next, row| {
            let first = *next;
            *next = first.saturating_add(row.seat_count);
            Some((first, row))
        })
    }

    /// Returns the seat of `unit`, or `None` if the sector has no such unit.
    #[must_use]
    pub(crate) fn seat(&self, unit: u32) -> Option<Seat> {
        let (first, row) = self.row_of(unit)?;
        let index = unit.checked_sub(first)?;
        let label = match row.seat_labels.get(usize::try_from(index).ok()?) {
            Some(label) => label.clone(),
            None => index.saturating_add(1).to_string(),
        };
        Some(Seat { row_label: row.label.clone(), seat_label: label })
    }

    /// Returns the number of groups of adjacent seats in `units`, which are in rising order.
    #[must_use]
    pub(crate) fn group_count(&self, units: &[u32]) -> u32 {
        let mut groups = 0;
        let mut before: Option<u32> = None;
        for unit in units {
            let begins_row = self.row_of(*unit).is_some_and(|(first, _)| first == *unit);
            let follows = before.is_some_and(|before| before.saturating_add(1) == *unit);
            if begins_row || !follows {
                groups += 1;
            }
            before = Some(*unit);
        }
        groups
    }

    fn row_of(&self, unit: u32) -> Option<(u32, &SeatRow)> {
        let firsts = self.firsts.0.get_or_init(|| self.rows_from().map(|(first, _)| first).collect());
        let index = firsts.partition_point(|first| *first <= unit).checked_sub(1)?;
        let (first, row) = (*firsts.get(index)?, self.rows.get(index)?);
        (first..first.saturating_add(row.seat_count)).contains(&unit).then_some((first, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> SeatLayout {
        let row = |label: &str, seat_count, labels: &[&str]| SeatRow {
            label: label.to_owned(),
            seat_count,
            seat_labels: labels.iter().map(ToString::to_string).collect(),
        };
        SeatLayout::new(vec![row("A", 3, &[]), row("B", 2, &["left", "right"])])
    }

    #[test]
    fn units_are_numbered_row_by_row() {
        let layout = layout();
        assert_eq!(layout.capacity(), 5);
        let seats: Vec<_> = (0..=6).map(|unit| layout.seat(unit)).collect();
        let seat =
            |row: &str, label: &str| Some(Seat { row_label: row.to_owned(), seat_label: label.to_owned() });
        assert_eq!(
            seats,
            [
                None,
                seat("A", "1"),
                seat("A", "2"),
                seat("A", "3"),
                seat("B", "left"),
                seat("B", "right"),
                None
            ]
        );
    }

    #[test]
    fn group_ends_at_a_gap_and_at_the_end_of_a_row() {
        let layout = layout();
        assert_eq!(layout.group_count(&[1, 2, 3]), 1);
        assert_eq!(layout.group_count(&[1, 3]), 2);
        assert_eq!(layout.group_count(&[3, 4]), 2);
        assert_eq!(layout.group_count(&[1, 2, 4, 5]), 2);
        assert_eq!(layout.group_count(&[]), 0);
    }
}
