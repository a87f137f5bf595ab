//! Changes of a line, revision by revision, and a copy of a line that follows them.
//!
//! Every change of a queue has a revision, one higher than the one before, and appends one [`LineChange`] to the move log. A
//! copy that has applied every change up to a revision knows exactly which numbers wait; one that misses a change notices the
//! gap.

use super::rank_index::RankIndex;

/// One revision of a line: the counters after it, and the entries that ended by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineChange {
    /// Revision of the line after the change.
    pub(crate) revision: u64,
    /// Last number given out.
    pub(crate) last_seq: u64,
    /// Highest number admitted: no entry up to it waits.
    pub(crate) last_admitted_seq: u64,
    /// Number of waiting entries, against which a copy checks itself.
    pub(crate) waiting_count: u64,
    /// Turns ever granted.
    pub(crate) admitted_count: u64,
    /// Numbers of the entries that ended without having been admitted.
    pub(crate) gone: Vec<u64>,
    /// Numbers of the entries whose turn ended, in a purchase or not.
    pub(crate) ended: Vec<u64>,
    /// True if the state or policy of the queue changed.
    pub(crate) is_controlled: bool,
}

/// Outcome of applying a change to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    /// The change was the next one and is applied.
    Applied,
    /// The copy had applied the change before.
    Known,
    /// Changes before this one are missing.
    Gap,
    /// The copy's count differs from the line's; further changes cannot repair it.
    Diverged,
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
    /// Builds a copy of a line that was read in one snapshot: its counters, and the waiting numbers as ranges.
    pub(crate) fn read(counters: &LineChange, waiting: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut index = RankIndex::new();
        index.admit_up_to(counters.last_admitted_seq);
        for (first, last) in waiting {
            index.insert_range(first, last);
        }
        Self {
            revision: counters.revision,
            last_seq: counters.last_seq,
            admitted_count: counters.admitted_count,
            index,
        }
    }

    /// Applies one change of the log.
    pub(crate) fn apply(&mut self, change: &LineChange) -> ApplyOutcome {
        if change.revision <= self.revision {
            return ApplyOutcome::Known;
        }
        if change.revision != self.revision.saturating_add(1) {
            return ApplyOutcome::Gap;
        }
        self.apply_merged(change)
    }

    /// Applies several changes at once: `change` has the counters after the last of them, and every entry that ended by any of
    /// them.
    pub(crate) fn apply_merged(&mut self, change: &LineChange) -> ApplyOutcome {
        if change.revision <= self.revision {
            return ApplyOutcome::Known;
        }
        if change.last_seq > self.last_seq {
            self.index.insert_range(self.last_seq.saturating_add(1), change.last_seq);
        }
        self.index.admit_up_to(change.last_admitted_seq);
        for seq in &change.gone {
            self.index.remove(*seq);
        }
        self.revision = change.revision;
        self.last_seq = self.last_seq.max(change.last_seq);
        self.admitted_count = self.admitted_count.max(change.admitted_count);
        if self.index.len() == change.waiting_count { ApplyOutcome::Applied } else { ApplyOutcome::Diverged }
    }

    /// Returns the last revision that is applied.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the last number given out.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the number of turns ever granted.
    pub(crate) fn admitted_count(&self) -> u64 {
        self.admitted_count
    }

    /// Returns the waiting numbers.
    pub(crate) fn index(&self) -> &RankIndex {
        &self.index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The waiting numbers, and the changes that led to them.
    #[derive(Clone, Debug, Default)]
    struct History {
        waiting: BTreeSet<u64>,
        changes: Vec<LineChange>,
    }

    impl History {
        fn add(&mut self, kind: u8, size: u64) {
            let mut change = self.changes.last().cloned().unwrap_or_default();
            change.revision += 1;
            (change.gone, change.ended) = (Vec::new(), Vec::new());
            match kind % 4 {
                0 | 1 => {
                    self.waiting.extend(change.last_seq + 1..=change.last_seq + size);
                    change.last_seq += size;
                }
                2 => {
                    for _ in 0..size {
                        let Some(first) = self.waiting.pop_first() else { break };
                        change.last_admitted_seq = first;
                        change.admitted_count += 1;
                    }
                }
                _ => {
                    let gone = self.waiting.iter().copied().step_by(3).take(usize::try_from(size).unwrap());
                    change.gone = gone.collect();
                    self.waiting.retain(|seq| !change.gone.contains(seq));
                }
            }
            change.waiting_count = u64::try_from(self.waiting.len()).unwrap();
            self.changes.push(change);
        }

        /// Merges all changes after a revision.
        fn since(&self, revision: u64) -> LineChange {
            let mut last = self.changes.last().cloned().unwrap_or_default();
            last.gone = self
                .changes
                .iter()
                .filter(|change| change.revision > revision)
                .flat_map(|change| change.gone.clone())
                .collect();
            last
        }
    }

    fn history() -> impl Strategy<Value = History> {
        proptest::collection::vec((any::<u8>(), 1_u64..200), 1..40).prop_map(|changes| {
            let mut history = History::default();
            for (kind, size) in changes {
                history.add(kind, size);
            }
            history
        })
    }

    proptest! {
        #[test]
        fn copy_that_applies_every_change_equals_the_line(history in history()) {
            let mut copy = LineCopy::default();
            for change in &history.changes {
                prop_assert_eq!(copy.apply(change), ApplyOutcome::Applied);
                prop_assert_eq!(copy.apply(change), ApplyOutcome::Known);
            }
            prop_assert!(copy.index().iter().eq(history.waiting.iter().copied()));
        }

        #[test]
        fn gap_is_noticed_and_a_merged_change_closes_it(history in history(), cut in 0_usize..40) {
            let cut = cut % history.changes.len();
            let mut copy = LineCopy::default();
            for (place, change) in history.changes.iter().enumerate() {
                let followed = if place == cut { ApplyOutcome::Gap } else { copy.apply(change) };
                let expected = if place < cut { ApplyOutcome::Applied } else { ApplyOutcome::Gap };
                prop_assert_eq!(followed, expected);
            }
            prop_assert_eq!(copy.apply_merged(&history.since(copy.revision())), ApplyOutcome::Applied);
            prop_assert!(copy.index().iter().eq(history.waiting.iter().copied()));
        }

        #[test]
        fn copy_read_at_any_revision_applies_the_changes_after_it(history in history(), cut in 0_usize..40) {
            let cut = cut % history.changes.len();
            let (before, after) = history.changes.split_at(cut + 1);
            let mut walked = LineCopy::default();
            for change in before {
                walked.apply(change);
            }
            let mut read = LineCopy::read(before.last().unwrap(), walked.index().iter().map(|seq| (seq, seq)));
            for change in before {
                prop_assert_eq!(read.apply(change), ApplyOutcome::Known);
            }
            for change in after {
                prop_assert_eq!(read.apply(change), ApplyOutcome::Applied);
            }
            prop_assert!(read.index().iter().eq(history.waiting.iter().copied()));
        }
    }

    #[test]
    fn copy_with_another_count_has_diverged() {
        let mut copy = LineCopy::default();
        let change = LineChange { revision: 1, last_seq: 3, waiting_count: 2, ..LineChange::default() };
        assert_eq!(copy.apply(&change), ApplyOutcome::Diverged);
    }
}
