//! How a line moves, revision by revision, and a copy of a line that follows it.
//!
//! Every change of a queue has a revision, one higher than the one before, and leaves one [`Step`] in the move log. A copy
//! that has seen every step up to a revision knows exactly who waits; one that misses a step knows that it does.

use super::rank_index::RankIndex;

/// One revision of a line: what is true after it, and who went by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineChange {
    /// The revision that it led to.
    pub(crate) revision: u64,
    /// The last number given out.
    pub(crate) last_seq: u64,
    /// The highest number admitted: nobody up to it waits.
    pub(crate) last_admitted_seq: u64,
    /// How many wait: what a copy checks itself against.
    pub(crate) waiting_count: u64,
    /// Turns ever granted.
    pub(crate) admitted_count: u64,
    /// Seqs that went without having been admitted.
    pub(crate) gone: Vec<u64>,
    /// Seqs whose turn ended, whichever way.
    pub(crate) ended: Vec<u64>,
    /// State or policy of the queue changed.
    pub(crate) is_controlled: bool,
}

/// What a step means to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    /// It was the next one.
    Moved,
    /// It was known already.
    Known,
    /// Steps before it are missing.
    Gap,
    /// The copy was wrong, and cannot be mended by further steps.
    Wrong,
}

/// A copy of a line at one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineCopy {
    revision: u64,
    last_seq: u64,
    admitted_count: u64,
    index: RankIndex,
}

impl LineCopy {
    /// A line as it was read at one moment: its counters, and who waits as ranges of seqs.
    pub(crate) fn read(step: &LineChange, waiting: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut index = RankIndex::new();
        index.admit_up_to(step.last_admitted_seq);
        for (first, last) in waiting {
            index.insert_range(first, last);
        }
        Self { revision: step.revision, last_seq: step.last_seq, admitted_count: step.admitted_count, index }
    }

    /// Follows one step of the log.
    pub(crate) fn follow(&mut self, step: &LineChange) -> ApplyOutcome {
        if step.revision <= self.revision {
            return ApplyOutcome::Known;
        }
        if step.revision != self.revision.saturating_add(1) {
            return ApplyOutcome::Gap;
        }
        self.jump(step)
    }

    /// Follows several steps at once: `step` has what is true after them, and everybody who went or ended by any of them.
    pub(crate) fn jump(&mut self, step: &LineChange) -> ApplyOutcome {
        if step.revision <= self.revision {
            return ApplyOutcome::Known;
        }
        if step.last_seq > self.last_seq {
            self.index.insert_range(self.last_seq.saturating_add(1), step.last_seq);
        }
        self.index.admit_up_to(step.last_admitted_seq);
        for seq in &step.gone {
            self.index.remove(*seq);
        }
        self.revision = step.revision;
        self.last_seq = self.last_seq.max(step.last_seq);
        self.admitted_count = self.admitted_count.max(step.admitted_count);
        if self.index.len() == step.waiting_count { ApplyOutcome::Moved } else { ApplyOutcome::Wrong }
    }

    /// The revision up to which it is true.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The last number given out.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Turns ever granted.
    pub(crate) fn admitted_count(&self) -> u64 {
        self.admitted_count
    }

    /// Who waits.
    pub(crate) fn index(&self) -> &RankIndex {
        &self.index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The line itself, and the steps that led to it.
    #[derive(Clone, Debug, Default)]
    struct History {
        waiting: BTreeSet<u64>,
        steps: Vec<LineChange>,
    }

    impl History {
        fn step(&mut self, change: u8, size: u64) {
            let mut step = self.steps.last().cloned().unwrap_or_default();
            step.revision += 1;
            (step.gone, step.ended) = (Vec::new(), Vec::new());
            match change % 4 {
                0 | 1 => {
                    self.waiting.extend(step.last_seq + 1..=step.last_seq + size);
                    step.last_seq += size;
                }
                2 => {
                    for _ in 0..size {
                        let Some(first) = self.waiting.pop_first() else { break };
                        step.last_admitted_seq = first;
                        step.admitted_count += 1;
                    }
                }
                _ => {
                    let gone = self.waiting.iter().copied().step_by(3).take(usize::try_from(size).unwrap());
                    step.gone = gone.collect();
                    self.waiting.retain(|seq| !step.gone.contains(seq));
                }
            }
            step.waiting_count = u64::try_from(self.waiting.len()).unwrap();
            self.steps.push(step);
        }

        /// All that happened after a revision, as one step.
        fn since(&self, revision: u64) -> LineChange {
            let mut last = self.steps.last().cloned().unwrap_or_default();
            last.gone = self
                .steps
                .iter()
                .filter(|step| step.revision > revision)
                .flat_map(|step| step.gone.clone())
                .collect();
            last
        }
    }

    fn history() -> impl Strategy<Value = History> {
        proptest::collection::vec((any::<u8>(), 1_u64..200), 1..40).prop_map(|changes| {
            let mut history = History::default();
            for (change, size) in changes {
                history.step(change, size);
            }
            history
        })
    }

    proptest! {
        #[test]
        fn who_follows_every_step_knows_exactly_who_waits(history in history()) {
            let mut copy = LineCopy::default();
            for step in &history.steps {
                prop_assert_eq!(copy.follow(step), ApplyOutcome::Moved);
                prop_assert_eq!(copy.follow(step), ApplyOutcome::Known);
            }
            prop_assert!(copy.index().iter().eq(history.waiting.iter().copied()));
        }

        #[test]
        fn a_missing_step_is_noticed_and_a_jump_mends_it(history in history(), cut in 0_usize..40) {
            let cut = cut % history.steps.len();
            let mut copy = LineCopy::default();
            for (place, step) in history.steps.iter().enumerate() {
                let followed = if place == cut { ApplyOutcome::Gap } else { copy.follow(step) };
                let expected = if place < cut { ApplyOutcome::Moved } else { ApplyOutcome::Gap };
                prop_assert_eq!(followed, expected);
            }
            prop_assert_eq!(copy.jump(&history.since(copy.revision())), ApplyOutcome::Moved);
            prop_assert!(copy.index().iter().eq(history.waiting.iter().copied()));
        }

        #[test]
        fn what_was_read_at_any_moment_follows_on_from_there(history in history(), cut in 0_usize..40) {
            let cut = cut % history.steps.len();
            let (before, after) = history.steps.split_at(cut + 1);
            let mut walked = LineCopy::default();
            for step in before {
                walked.follow(step);
            }
            let mut read = LineCopy::read(before.last().unwrap(), walked.index().iter().map(|seq| (seq, seq)));
            for step in before {
                prop_assert_eq!(read.follow(step), ApplyOutcome::Known);
            }
            for step in after {
                prop_assert_eq!(read.follow(step), ApplyOutcome::Moved);
            }
            prop_assert!(read.index().iter().eq(history.waiting.iter().copied()));
        }
    }

    #[test]
    fn a_copy_whose_count_does_not_fit_says_so() {
        let mut copy = LineCopy::default();
        let step = LineChange { revision: 1, last_seq: 3, waiting_count: 2, ..LineChange::default() };
        assert_eq!(copy.follow(&step), ApplyOutcome::Wrong);
    }
}
