//! Chooses units for customers who ask for a number of units: the first free ones, or adjacent seats.

use super::{layout::SeatLayout, unit_set::UnitSet};

/// Adjacent free seats in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u32,
    length: u32,
}

/// A row of seats with the length of its longest run.
#[derive(Clone, Copy, Debug)]
struct Row {
    first: u32,
    seat_count: u32,
    /// Length of the longest run of free seats. `None`: to be counted again.
    longest: Option<u32>,
}

/// Gives free units to one customer after the other, each time the best ones left.
#[derive(Debug)]
pub(crate) struct Picker {
    free: UnitSet,
    free_count: u32,
    /// `None`: general admission.
    rows: Option<Vec<Row>>,
    /// In general admission, every unit before this one is taken.
    next: u32,
}

/// Returns the best `count` free units in rising order, or `None` if fewer are free.
#[must_use]
pub(crate) fn pick(layout: Option<&SeatLayout>, free: &UnitSet, count: u32) -> Option<Vec<u32>> {
    Picker::new(layout, free.clone()).take(count)
}

impl Picker {
    /// Creates a picker of the units `free`. `layout` is `None` for general admission.
    #[must_use]
    pub(crate) fn new(layout: Option<&SeatLayout>, free: UnitSet) -> Self {
        let row = |(first, row): (u32, &super::layout::SeatRow)| Row {
            first,
            seat_count: row.seat_count,
            longest: None,
        };
        let rows = layout.map(|layout| layout.rows_from().map(row).collect());
        Self { free_count: free.count(), free, rows, next: 1 }
    }

    /// Takes `count` units and returns them in rising order: the first ones or, in a seated sector, adjacent seats of one row if
    /// possible, else as few groups as possible, earlier rows first. Returns `None` and takes nothing if fewer are left.
    pub(crate) fn take(&mut self, count: u32) -> Option<Vec<u32>> {
        if count > self.free_count {
            return None;
        }
        let units = match self.rows.take() {
            None => self.first(count),
            Some(mut rows) => {
                let units = self.seats(&mut rows, count);
                self.rows = Some(rows);
                units
            }
        };
        for unit in &units {
            self.free.remove(*unit);
        }
        self.free_count = self.free_count.saturating_sub(u32::try_from(units.len()).unwrap_or(u32::MAX));
        Some(units)
    }

    fn first(&mut self, count: u32) -> Vec<u32> {
        let mut units = Vec::new();
        for _ in 0..count {
            let Some(unit) = self.free.first_from(self.next) else { break };
            units.push(unit);
            self.next = unit.saturating_add(1);
        }
        units
    }

    /// Takes the longest runs until one run has room for the rest: no choice has fewer groups. The rest comes from the first
    /// row that has room for it, and there from the shortest run that fits.
    fn seats(&mut self, rows: &mut [Row], count: u32) -> Vec<u32> {
        let mut units = Vec::new();
        let mut missing = count;
        while missing > 0 {
            let Some(run) = self.best_run(rows, missing) else { break };
            let end = run.start.saturating_add(run.length.min(missing));
            units.extend(run.start..end);
            // Removed immediately, so that the next run is not found among them.
            (run.start..end).for_each(|unit| self.free.remove(unit));
            missing = missing.saturating_sub(run.length);
        }
        units.sort_unstable();
        units
    }

    /// Returns the run to take `missing` seats from, and marks its row to be counted again.
    fn best_run(&self, rows: &mut [Row], missing: u32) -> Option<Run> {
        let free = &self.free;
        let longest_of = |row: &mut Row| {
            let counted =
                row.longest.unwrap_or_else(|| row.runs(free).map(|run| run.length).max().unwrap_or(0));
            row.longest = Some(counted);
            counted
        };
        let mut longest: Option<(usize, u32)> = None;
        let mut fitting = None;
        for (index, row) in rows.iter_mut().enumerate() {
            let length = longest_of(row);
            if length >= missing {
                fitting = Some(index);
                break;
            }
            if length > longest.map_or(0, |(_, length)| length) {
                longest = Some((index, length));
            }
        }
        let (index, at_least) = match fitting {
            Some(index) => (index, missing),
            None => longest?,
        };
        let row = rows.get_mut(index)?;
        row.longest = None;
        row.runs(free).filter(|run| run.length >= at_least).min_by_key(|run| (run.length, run.start))
    }
}

impl Row {
    /// Returns the runs of free seats of the row.
    fn runs<'a>(&self, free: &'a UnitSet) -> impl Iterator<Item = Run> + 'a {
        let end = self.first.saturating_add(self.seat_count);
        let mut next = self.first;
        std::iter::from_fn(move || {
            let start = free.first_from(next).filter(|start| *start < end)?;
            let stop = (start..end).find(|unit| !free.contains(*unit)).unwrap_or(end);
            next = stop;
            Some(Run { start, length: stop.saturating_sub(start) })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::layout::SeatRow, *};

    fn layout(rows: &[u32]) -> SeatLayout {
        let row = |(index, seat_count): (usize, &u32)| SeatRow {
            label: index.to_string(),
            seat_count: *seat_count,
            seat_labels: Vec::new(),
        };
        SeatLayout::new(rows.iter().enumerate().map(row).collect())
    }

    fn free(capacity: u32, units: &[u32]) -> UnitSet {
        let mut set = UnitSet::empty(capacity);
        units.iter().for_each(|unit| set.insert(*unit));
        set
    }

    /// Returns the units up to `capacity` whose bits are set.
    fn units_of(bits: u64, capacity: u32) -> Vec<u32> {
        (1..=capacity).filter(|unit| bits >> (unit - 1) & 1 == 1).collect()
    }

    #[test]
    fn adjacent_seats_of_the_first_row_that_has_them_come_first() {
        // Rows 1–4, 5–8, 9–12; the first has only two side by side.
        let rows = layout(&[4, 4, 4]);
        let free = free(12, &[1, 2, 4, 5, 6, 7, 9, 10, 11, 12]);
        assert_eq!(pick(Some(&rows), &free, 2), Some(vec![1, 2]));
        assert_eq!(pick(Some(&rows), &free, 3), Some(vec![5, 6, 7]));
        assert_eq!(pick(Some(&rows), &free, 4), Some(vec![9, 10, 11, 12]));
    }

    #[test]
    fn within_a_row_the_tightest_gap_is_filled() {
        let rows = layout(&[8]);
        assert_eq!(pick(Some(&rows), &free(8, &[1, 2, 3, 5, 6, 8]), 2), Some(vec![5, 6]));
        assert_eq!(pick(Some(&rows), &free(8, &[1, 2, 3, 5, 6, 8]), 1), Some(vec![8]));
    }

    #[test]
    fn seats_across_a_row_end_are_not_adjacent() {
        let rows = layout(&[3, 3]);
        assert_eq!(pick(Some(&rows), &free(6, &[3, 4, 5, 6]), 2), Some(vec![4, 5]));
    }

    #[test]
    fn general_admission_takes_the_first_units() {
        assert_eq!(pick(None, &free(9, &[2, 5, 9]), 2), Some(vec![2, 5]));
        assert_eq!(pick(None, &free(9, &[2, 5, 9]), 4), None);
    }

    /// Returns the fewest groups of any choice of `count` units, by trying all choices.
    fn fewest_groups(rows: &SeatLayout, free: &[u32], count: usize) -> u32 {
        let choices = 0_u32..1 << free.len();
        choices
            .filter(|choice| usize::try_from(choice.count_ones()).unwrap() == count)
            .map(|choice| {
                let units: Vec<u32> =
                    (0..free.len()).filter(|bit| choice >> bit & 1 == 1).map(|bit| free[bit]).collect();
                rows.group_count(&units)
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn pick_is_free_complete_and_in_as_few_groups_as_possible(
            rows in prop::collection::vec(1_u32..6, 1..4),
            bits: u16,
            count in 1_u32..9,
        ) {
            let rows = layout(&rows);
            let capacity = rows.capacity();
            let units = units_of(bits.into(), capacity.min(12));
            let set = free(capacity, &units);
            for layout in [Some(&rows), None] {
                match pick(layout, &set, count) {
                    None => prop_assert!(set.count() < count),
                    Some(picked) => {
                        prop_assert_eq!(picked.len(), usize::try_from(count).unwrap());
                        prop_assert!(picked.is_sorted_by(|a, b| a < b));
                        prop_assert!(picked.iter().all(|unit| set.contains(*unit)));
                        if layout.is_some() {
                            prop_assert_eq!(rows.group_count(&picked), fewest_groups(&rows, &units, picked.len()));
                        }
                    }
                }
            }
        }

        #[test]
        fn customers_of_one_picker_get_the_units_they_would_get_alone(
            rows in prop::collection::vec(1_u32..6, 1..5),
            bits: u32,
            counts in prop::collection::vec(1_u32..7, 1..8),
        ) {
            let rows = layout(&rows);
            let capacity = rows.capacity();
            let units = units_of(bits.into(), capacity);
            for layout in [Some(&rows), None] {
                let mut left = free(capacity, &units);
                let mut picker = Picker::new(layout, left.clone());
                for count in &counts {
                    let picked = picker.take(*count);
                    prop_assert_eq!(&picked, &pick(layout, &left, *count));
                    picked.into_iter().flatten().for_each(|unit| left.remove(unit));
                }
            }
        }

        #[test]
        fn group_that_fits_in_a_row_is_never_split(
            rows in prop::collection::vec(1_u32..12, 1..5),
            bits: u64,
            count in 1_u32..10,
        ) {
            let rows = layout(&rows);
            let units = units_of(bits, rows.capacity());
            let set = free(rows.capacity(), &units);
            let fits = rows.rows_from().any(|(first, row)| {
                let seats: Vec<u32> = (first..first + row.seat_count).collect();
                let count = usize::try_from(count).unwrap();
                seats.windows(count).any(|window| window.iter().all(|unit| set.contains(*unit)))
            });
            if fits {
                let picked = pick(Some(&rows), &set, count).unwrap();
                prop_assert_eq!(rows.group_count(&picked), 1);
                prop_assert!(picked.iter().all(|unit| set.contains(*unit)));
            }
        }
    }
}
