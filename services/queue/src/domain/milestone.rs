//! Milestones: positions at which a customer who does not watch is told where they stand.

use serde::Deserialize;

/// Most milestones of a queue.
const COUNT_MAX: usize = 10;

/// The furthest one: finding who stands there costs as much as it is far.
const MILESTONE_MAX: u64 = 1_000_000;

/// The milestones of a queue, falling. Small and of one size, so that a policy can be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u64>")]
pub(crate) struct Milestones {
    /// Those behind the last one are 0.
    values: [u64; COUNT_MAX],
}

/// Why a list is not one of milestones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MilestonesError {
    /// There are too many.
    #[error("must be at most {COUNT_MAX}")]
    TooMany,
    /// One is nobody's position.
    #[error("must be from 1 to {MILESTONE_MAX}")]
    OutOfRange,
    /// One is not below the one before.
    #[error("must fall strictly")]
    NotFalling,
}

impl Milestones {
    /// All of them, the furthest first.
    pub(crate) fn falling(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.values.into_iter().filter(|value| *value > 0)
    }

    /// Whether there are none.
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
        for (place, value) in values.iter_mut().zip(list) {
            *place = *value;
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

/// How far a milestone has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MilestoneProgress {
    /// The milestone.
    pub(crate) milestone: u64,
    /// Everybody up to this number in line has been dealt with.
    pub(crate) told_seq: u64,
    /// Everybody up to this number in line who waits stands at the milestone or before it.
    pub(crate) upto_seq: u64,
}

/// A part of the line in which a milestone may have been passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeqRange {
    /// The milestone.
    pub(crate) milestone: u64,
    /// How far it had come.
    pub(crate) told_seq: u64,
    /// Behind this number in line.
    pub(crate) after_seq: u64,
    /// Up to this number in line.
    pub(crate) upto_seq: u64,
}

/// Where to look for those who passed a milestone, the lowest milestone first. `reached` is falling, as milestones are. Who
/// passed several at once is told the lowest only: whoever stands at a lower one is left to that.
pub(crate) fn spans(reached: &[MilestoneProgress]) -> Vec<SeqRange> {
    let mut lower_upto_seq = 0;
    let mut spans = Vec::with_capacity(reached.len());
    for MilestoneProgress { milestone, told_seq, upto_seq } in reached.iter().rev().copied() {
        if told_seq < upto_seq {
            let after_seq = told_seq.max(lower_upto_seq).min(upto_seq);
            spans.push(SeqRange { milestone, told_seq, after_seq, upto_seq });
        }
        lower_upto_seq = lower_upto_seq.max(upto_seq);
    }
    spans
}

/// Whether somebody who began at `start_position` passes the milestone at all: who began at it, or before it, never does.
pub(crate) const fn passes(start_position: u64, milestone: u64) -> bool {
    start_position > milestone
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn milestones_are_few_fall_and_are_positions() {
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

    /// A line that is looked at after each step, and what its customers were told.
    struct Model {
        /// Who waits: number in line and the position they began with.
        waiting: Vec<(u64, u64)>,
        last_seq: u64,
        told_seqs: HashMap<u64, u64>,
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

        fn look(&mut self, milestones: Milestones) {
            let nth = |place: u64| self.waiting.get(usize::try_from(place).unwrap() - 1);
            let reached: Vec<MilestoneProgress> = milestones
                .falling()
                .map(|milestone| MilestoneProgress {
                    milestone,
                    told_seq: self.told_seqs.get(&milestone).copied().unwrap_or(0),
                    upto_seq: nth(milestone).map_or(self.last_seq, |(seq, _)| *seq),
                })
                .collect();
            for span in spans(&reached) {
                let inside = |seq: u64| seq > span.after_seq && seq <= span.upto_seq;
                let passed =
                    self.waiting.iter().filter(|(seq, start)| inside(*seq) && passes(*start, span.milestone));
                self.pushes.extend(passed.map(|(seq, _)| (*seq, span.milestone)));
                self.told_seqs.insert(span.milestone, span.upto_seq);
            }
        }
    }

    proptest! {
        #[test]
        fn everybody_is_told_the_lowest_milestone_they_passed_once_and_no_other_twice(
            steps in proptest::collection::vec((0_u64..8, 0_usize..12, any::<prop::sample::Index>()), 1..40),
        ) {
            let milestones = Milestones::try_from([9, 4, 1].as_slice()).unwrap();
            let mut line = Model { waiting: Vec::new(), last_seq: 0, told_seqs: HashMap::new(), pushes: Vec::new() };
            line.join(30);
            line.look(milestones);
            prop_assert!(line.pushes.is_empty(), "nobody has moved");
            for (joined, admitted, leaver) in steps {
                line.join(joined);
                line.waiting.drain(..admitted.min(line.waiting.len()));
                if !line.waiting.is_empty() {
                    line.waiting.remove(leaver.index(line.waiting.len()));
                }
                let before = line.pushes.len();
                line.look(milestones);
                let new = &line.pushes[before..];
                for (place, (seq, start)) in (1_u64..).zip(&line.waiting) {
                    // What they should have heard by now, and were not told in this look more than once.
                    let lowest = milestones.falling().rfind(|milestone| place <= *milestone && start > milestone);
                    let told: Vec<u64> = new.iter().filter(|(told, _)| told == seq).map(|(_, at)| *at).collect();
                    prop_assert!(told.len() <= 1);
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
