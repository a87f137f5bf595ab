//! Which of the free units a customer gets who asked for a number of them.

use super::{layout::SeatLayout, unit_set::UnitSet};

/// Free seats side by side in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    row: usize,
    start: u32,
    length: u32,
}

/// `count` free units in rising order, the best there are: the first ones, or in a seated sector adjacent seats of one row
/// where there are any, else as few groups as possible; earlier rows first. None when fewer are free.
#[must_use]
pub fn pick(layout: Option<&SeatLayout>, free: &UnitSet, count: u32) -> Option<Vec<u32>> {
    let wanted = usize::try_from(count).ok()?;
    let units = match layout {
        Some(layout) => pick_seats(layout, free, count)?,
        None => free.iter().take(wanted).collect(),
    };
    (units.len() == wanted).then_some(units)
}

/// Takes the longest runs until one holds the rest: no choice needs fewer groups. The rest goes to the first row that has
/// room for it, and there to the run where it leaves least over.
fn pick_seats(layout: &SeatLayout, free: &UnitSet, count: u32) -> Option<Vec<u32>> {
    let mut runs = runs(layout, free);
    let mut units = Vec::new();
    let mut missing = count;
    while missing > 0 {
        let fits = |run: &&Run| run.length >= missing;
        let best = runs.iter().filter(fits).min_by_key(|run| (run.row, run.length, run.start));
        let longest = || runs.iter().min_by_key(|run| (u32::MAX - run.length, run.start));
        let run = *best.or_else(longest)?;
        runs.retain(|other| *other != run);
        let taken = run.length.min(missing);
        units.extend(run.start..run.start.saturating_add(taken));
        missing = missing.saturating_sub(taken);
    }
    units.sort_unstable();
    Some(units)
}

fn runs(layout: &SeatLayout, free: &UnitSet) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (row, (first, seats)) in layout.rows_from().enumerate() {
        for unit in (first..first.saturating_add(seats.seat_count)).filter(|unit| free.contains(*unit)) {
            match runs.last_mut() {
                Some(run) if run.row == row && run.start.saturating_add(run.length) == unit => {
                    run.length += 1
                }
                Some(_) | None => runs.push(Run { row, start: unit, length: 1 }),
            }
        }
    }
    runs
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
        SeatLayout { rows: rows.iter().enumerate().map(row).collect() }
    }

    fn free(capacity: u32, units: &[u32]) -> UnitSet {
        let mut set = UnitSet::empty(capacity);
        units.iter().for_each(|unit| set.insert(*unit));
        set
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

    /// The fewest groups any choice of `count` has, by trying all of them.
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
        fn a_pick_is_free_complete_and_in_as_few_groups_as_possible(
            rows in prop::collection::vec(1_u32..6, 1..4),
            bits: u16,
            count in 1_u32..9,
        ) {
            let rows = layout(&rows);
            let capacity = rows.capacity();
            let units: Vec<u32> = (1..=capacity.min(12)).filter(|unit| bits >> (unit - 1) & 1 == 1).collect();
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
    }
}
