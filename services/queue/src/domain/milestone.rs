//! Milestones: positions at which customers without an open stream get a push message.

use onsale_types::{CustomerId, EntryId};
use serde::Deserialize;

/// Largest number of milestones of a queue.
const COUNT_MAX: usize = 10;

/// Largest milestone. Finding the entry at a position costs as much as the position is high.
const MILESTONE_MAX: u64 = 1_000_000;

/// The milestones of a queue in falling order: at most 10, in an array, so that a policy is `Copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u64>")]
pub(crate) struct Milestones {
    /// Unused places at the end are 0.
    values: [u64; COUNT_MAX],
}

/// Violation of the rules for a list of milestones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MilestonesError {
    #[error("must be at most {COUNT_MAX}")]
    TooMany,
    #[error("must be from 1 to {MILESTONE_MAX}")]
    OutOfRange,
    #[error("must fall strictly")]
    NotFalling,
}

impl Milestones {
    /// Returns all milestones, the highest first.
    pub(crate) fn falling(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.values.into_iter().filter(|value| *value > 0)
    }

    /// Returns true if the queue sends no milestone pushes.
    pub(crate) fn is_empty(&self) -> bool {
        self.falling().next().is_none()
    }
}

impl TryFrom<&[u64]> for Milestones {
    type Error = MilestonesError;

    fn try_from(list: &[u64]) -> Result<Self, Self::Error> {
        if list.len() > COUNT_MAX {
            return Err(MilestonesError::TooMany);
        }
        if list.iter().any(|value| !(1..=MILESTONE_MAX).contains(value)) {
            return Err(MilestonesError::OutOfRange);
        }
        if !list.iter().is_sorted_by(|before, after| before > after) {
            return Err(MilestonesError::NotFalling);
        }
        let mut values = [0; COUNT_MAX];
        for (slot, value) in values.iter_mut().zip(list) {
            *slot = *value;
        }
        Ok(Self { values })
    }
}

impl TryFrom<Vec<u64>> for Milestones {
    type Error = MilestonesError;

    fn try_from(list: Vec<u64>) -> Result<Self, Self::Error> {
        Self::try_from(list.as_slice())
    }
}

/// Progress of the pushes for one milestone along the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MilestoneProgress {
    pub(crate) milestone: u64,
    /// Every entry up to this number has been handled.
    pub(crate) pushed_seq: u64,
    /// Every waiting entry up to this number is at the milestone or before it.
    pub(crate) upto_seq: u64,
}

/// A range of numbers in which entries may have passed a milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeqRange {
    pub(crate) milestone: u64,
    /// Every entry up to this number was handled before.
    pub(crate) pushed_seq: u64,
    /// Exclusive lower bound.
    pub(crate) after_seq: u64,
    /// Inclusive upper bound.
    pub(crate) upto_seq: u64,
}

/// An entry that passed a milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedMilestone {
    pub(crate) entry_id: EntryId,
    pub(crate) customer_id: CustomerId,
    /// Position now.
    pub(crate) position: u64,
}

/// A waiting entry at a milestone or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MilestoneCandidate {
    pub(crate) passed: PassedMilestone,
    pub(crate) seq: u64,
    /// Position at which the entry joined.
    pub(crate) start_position: u64,
}

/// Returns the ranges to search for entries that passed a milestone, the lowest milestone first. `reached` is in falling
/// order. An entry that passed several milestones at once belongs to the lowest only, so ranges of higher milestones begin
/// behind it.
pub(crate) fn spans(reached: &[MilestoneProgress]) -> Vec<SeqRange> {
    let mut lower_upto_seq = 0;
    let mut spans = Vec::with_capacity(reached.len());
    for MilestoneProgress { milestone, pushed_seq, upto_seq } in reached.iter().rev().copied() {
        if pushed_seq < upto_seq {
            let after_seq = pushed_seq.max(lower_upto_seq).min(upto_seq);
            spans.push(SeqRange { milestone, pushed_seq, after_seq, upto_seq });
        }
        lower_upto_seq = lower_upto_seq.max(upto_seq);
    }
    spans
}

/// Returns true if an entry that joined at `start_position` can pass the milestone. One that joined at or before it cannot.
pub(crate) const fn passes(start_position: u64, milestone: u64) -> bool {
    start_position > milestone
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn milestones_are_at_most_ten_falling_positions() {
        let good = Milestones::try_from([1_000, 100, 10].as_slice()).unwrap();
        assert_eq!(good.falling().collect::<Vec<_>>(), [1_000, 100, 10]);
        assert!(Milestones::try_from([].as_slice()).unwrap().is_empty());
        let many: Vec<u64> = (1..=11).rev().collect();
        assert_eq!(Milestones::try_from(many), Err(MilestonesError::TooMany));
        for flat in [[10, 10], [10, 100]] {
            assert_eq!(Milestones::try_from(flat.as_slice()), Err(MilestonesError::NotFalling));
        }
        for out in [0, MILESTONE_MAX + 1] {
            assert_eq!(Milestones::try_from([out].as_slice()), Err(MilestonesError::OutOfRange));
        }
    }

    /// A line with a milestone round after each change, and the pushes sent so far.
    struct Model {
        /// Number in line and start position of each waiting entry.
        waiting: Vec<(u64, u64)>,
        last_seq: u64,
        pushed_seqs: HashMap<u64, u64>,
        pushes: Vec<(u64, u64)>,
    }

    impl Model {
        fn join(&mut self, count: u64) {
            for _ in 0..count {
                self.last_seq += 1;
                let start_position = u64::try_from(self.waiting.len()).unwrap() + 1;
                self.waiting.push((self.last_seq, start_position));
            }
        }

        fn run_round(&mut self, milestones: Milestones) {
            let nth = |position: u64| self.waiting.get(usize::try_from(position).unwrap() - 1);
            let reached: Vec<MilestoneProgress> = milestones
                .falling()
                .map(|milestone| MilestoneProgress {
                    milestone,
                    pushed_seq: self.pushed_seqs.get(&milestone).copied().unwrap_or(0),
                    upto_seq: nth(milestone).map_or(self.last_seq, |(seq, _)| *seq),
                })
                .collect();
            for span in spans(&reached) {
                let inside = |seq: u64| seq > span.after_seq && seq <= span.upto_seq;
                let passed =
                    self.waiting.iter().filter(|(seq, start)| inside(*seq) && passes(*start, span.milestone));
                self.pushes.extend(passed.map(|(seq, _)| (*seq, span.milestone)));
                self.pushed_seqs.insert(span.milestone, span.upto_seq);
            }
        }
    }

    proptest! {
        #[test]
        fn every_entry_gets_one_push_for_the_lowest_milestone_it_passed(
            steps in proptest::collection::vec((0_u64..8, 0_usize..12, any::<prop::sample::Index>()), 1..40),
        ) {
            let milestones = Milestones::try_from([9, 4, 1].as_slice()).unwrap();
            let mut line = Model { waiting: Vec::new(), last_seq: 0, pushed_seqs: HashMap::new(), pushes: Vec::new() };
            line.join(30);
            line.run_round(milestones);
            prop_assert!(line.pushes.is_empty(), "no entry has moved");
            for (joined, admitted, leaver) in steps {
                line.join(joined);
                line.waiting.drain(..admitted.min(line.waiting.len()));
                if !line.waiting.is_empty() {
                    line.waiting.remove(leaver.index(line.waiting.len()));
                }
                let before = line.pushes.len();
                line.run_round(milestones);
                let new = &line.pushes[before..];
                for (position, (seq, start)) in (1_u64..).zip(&line.waiting) {
                    // The push that is due by now; one round sends at most one push per entry.
                    let lowest = milestones.falling().rfind(|milestone| position <= *milestone && start > milestone);
                    let pushed: Vec<u64> = new.iter().filter(|(pushed, _)| pushed == seq).map(|(_, at)| *at).collect();
                    prop_assert!(pushed.len() <= 1);
                    if let Some(lowest) = lowest {
                        prop_assert!(line.pushes.contains(&(*seq, lowest)));
                    }
                }
            }
            let mut once = line.pushes.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), line.pushes.len());
        }
    }
}
