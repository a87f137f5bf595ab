//! The rows of a seated sector, and which seat a unit is.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A seat as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Label of the row.
    pub row_label: String,
    /// Label of the seat in its row.
    pub seat_label: String,
}

/// The rows of a seated sector, best first. Unit 1 is the first seat of the first row, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatLayout {
    /// The rows.
    pub rows: Vec<SeatRow>,
    #[serde(skip)]
    firsts: Firsts,
}

/// The first unit of each row, found once: every reservation asks for the rows of its units.
#[derive(Clone, Debug, Default)]
struct Firsts(OnceLock<Vec<u32>>);

impl PartialEq for Firsts {
    fn eq(&self, _other: &Self) -> bool {
        // It follows from the rows.
        true
    }
}

impl Eq for Firsts {}

/// Seats that stand side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatRow {
    /// Label of the row.
    pub label: String,
    /// How many seats.
    pub seat_count: u32,
    /// Their labels; none: `1`, `2`, ….
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seat_labels: Vec<String>,
}

impl SeatLayout {
    /// Of `rows`, best first.
    #[must_use]
    pub fn new(rows: Vec<SeatRow>) -> Self {
        Self { rows, firsts: Firsts::default() }
    }

    /// How many seats.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.rows.iter().map(|row| row.seat_count).fold(0, u32::saturating_add)
    }

    /// Each row with its first unit.
    pub fn rows_from(&self) -> impl Iterator<Item = (u32, &SeatRow)> {
        self.rows.iter().scan(1_u32, |next, row| {
            let first = *next;
            *next = first.saturating_add(row.seat_count);
            Some((first, row))
        })
    }

    /// The seat that `unit` is; none when the sector has no such unit.
    #[must_use]
    pub fn seat(&self, unit: u32) -> Option<Seat> {
        let (first, row) = self.row_of(unit)?;
        let index = unit.checked_sub(first)?;
        let label = match row.seat_labels.get(usize::try_from(index).ok()?) {
            Some(label) => label.clone(),
            None => index.saturating_add(1).to_string(),
        };
        Some(Seat { row_label: row.label.clone(), seat_label: label })
    }

    /// Into how many groups of adjacent seats `units` fall, which are in rising order.
    #[must_use]
    pub fn group_count(&self, units: &[u32]) -> u32 {
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
    fn units_count_through_a_row_and_then_through_the_next() {
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
    fn a_group_ends_at_a_gap_and_at_the_end_of_a_row() {
        let layout = layout();
        assert_eq!(layout.group_count(&[1, 2, 3]), 1);
        assert_eq!(layout.group_count(&[1, 3]), 2);
        assert_eq!(layout.group_count(&[3, 4]), 2);
        assert_eq!(layout.group_count(&[1, 2, 4, 5]), 2);
        assert_eq!(layout.group_count(&[]), 0);
    }
}
