//! The index against a set that counts one by one, and at every border.

use std::collections::BTreeSet;

use proptest::{prelude::*, sample::select};

use super::*;

/// The same, one by one.
#[derive(Debug, Default)]
struct Naive {
    admitted_seq: u64,
    waiting: BTreeSet<u64>,
}

impl Naive {
    fn insert_range(&mut self, first: u64, last: u64) {
        let limit = self.admitted_seq.saturating_add(SPAN_MAX);
        self.waiting.extend(first.max(self.admitted_seq + 1)..=last.min(limit));
    }

    fn admit_up_to(&mut self, seq: u64) {
        self.admitted_seq = self.admitted_seq.max(seq);
        self.waiting.retain(|waiting| *waiting > self.admitted_seq);
    }

    fn before(&self, seq: u64) -> u64 {
        u64::try_from(self.waiting.range(..seq).count()).unwrap()
    }

    fn neighbors(&self, seq: u64, count: usize) -> (Vec<u64>, Vec<u64>) {
        let mut before: Vec<u64> = self.waiting.range(..seq).rev().take(count).copied().collect();
        before.reverse();
        (before, self.waiting.range(seq + 1..).take(count).copied().collect())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { count: u64 },
    Insert { seq: u64 },
    InsertRange { first: u64, count: u64 },
    Remove { seq: u64 },
    Admit { seq: u64 },
    AdmitFirst { count: usize },
}

/// Seqs around the borders of words, blocks and superblocks, and here and there.
fn seqs() -> impl Strategy<Value = u64> {
    let borders = select(vec![1_u64, 64, 128, 256, 512, 1_024, 32_512, 32_768, 33_024, 65_536, 98_304]);
    prop_oneof![
        3 => (borders, 0_u64..4).prop_map(|(border, below)| (border + 1).saturating_sub(below)),
        1 => 0_u64..70_000,
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u64..700).prop_map(|count| Step::Append { count }),
        2 => seqs().prop_map(|seq| Step::Insert { seq }),
        2 => (seqs(), 0_u64..35_000).prop_map(|(first, count)| Step::InsertRange { first, count }),
        4 => seqs().prop_map(|seq| Step::Remove { seq }),
        1 => seqs().prop_map(|seq| Step::Admit { seq }),
        2 => (0_usize..500).prop_map(|count| Step::AdmitFirst { count }),
    ]
}

fn take(step: &Step, index: &mut RankIndex, naive: &mut Naive) {
    match *step {
        Step::Append { count } => {
            let first = naive.waiting.last().copied().unwrap_or(naive.admitted_seq) + 1;
            index.insert_range(first, first + count - 1);
            naive.insert_range(first, first + count - 1);
        }
        Step::Insert { seq } => {
            let new = seq > naive.admitted_seq && naive.waiting.insert(seq);
            assert_eq!(index.insert(seq), new);
        }
        Step::InsertRange { first, count } => {
            index.insert_range(first, first + count);
            naive.insert_range(first, first + count);
        }
        Step::Remove { seq } => assert_eq!(index.remove(seq), naive.waiting.remove(&seq)),
        Step::Admit { seq } => {
            index.admit_up_to(seq);
            naive.admit_up_to(seq);
        }
        Step::AdmitFirst { count } => {
            let admitted = index.first(count);
            assert_eq!(admitted, naive.waiting.iter().take(count).copied().collect::<Vec<_>>());
            if let Some(last) = admitted.last() {
                index.admit_up_to(*last);
                naive.admit_up_to(*last);
            }
        }
    }
}

fn assert_same(index: &RankIndex, naive: &Naive, probes: &[u64]) {
    assert_eq!(index.admitted_seq(), naive.admitted_seq);
    assert_eq!(index.len(), u64::try_from(naive.waiting.len()).unwrap());
    assert_eq!(index.is_empty(), naive.waiting.is_empty());
    assert_eq!(index.last_seq(), naive.waiting.last().copied());
    for seq in probes.iter().copied() {
        let waits = naive.waiting.contains(&seq);
        assert_eq!(index.contains(seq), waits, "contains {seq}");
        assert_eq!(index.before(seq), naive.before(seq), "before {seq}");
        assert_eq!(index.position(seq), waits.then(|| naive.before(seq) + 1), "position {seq}");
        assert_eq!(index.neighbors(seq, 3), naive.neighbors(seq, 3), "neighbors of {seq}");
        if let Some(position) = index.position(seq) {
            assert_eq!(index.at(position), Some(seq), "at {position}");
        }
    }
    assert_eq!(index.at(0), None);
    assert_eq!(index.at(index.len() + 1), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_tells_what_counting_one_by_one_tells(
        steps in proptest::collection::vec(steps(), 1..20),
        probes in proptest::collection::vec(seqs(), 8),
    ) {
        let (mut index, mut naive) = (RankIndex::new(), Naive::default());
        for step in &steps {
            take(step, &mut index, &mut naive);
            assert_same(&index, &naive, &probes);
        }
        prop_assert!(index.iter().eq(naive.waiting.iter().copied()));
    }
}

#[test]
fn positions_are_right_on_both_sides_of_every_border() {
    let mut index = RankIndex::new();
    index.insert_range(1, 200_000);
    for border in [64, 256, 32_768, 65_536] {
        for seq in border - 2..=border + 2 {
            assert_eq!((index.position(seq), index.at(seq)), (Some(seq), Some(seq)));
        }
    }
    for seq in [63, 64, 255, 256, 32_767, 32_768, 65_535, 65_536] {
        assert!(index.remove(seq));
        assert!(!index.remove(seq));
        assert_eq!(index.position(seq), None);
    }
    assert_eq!(index.position(32_769), Some(32_769 - 6));
    assert_eq!(index.position(200_000), Some(200_000 - 8));
    assert_eq!(index.neighbors(32_768, 2), (vec![32_765, 32_766], vec![32_769, 32_770]));
    index.admit_up_to(32_766);
    assert_eq!(index.first(2), [32_769, 32_770]);
    index.admit_up_to(65_537);
    assert_eq!((index.position(65_538), index.before(65_538), index.len()), (Some(1), 0, 134_463));
}

#[test]
fn who_was_admitted_does_not_come_back_and_admission_never_goes_back() {
    let mut index = RankIndex::new();
    index.insert_range(1, 100);
    index.admit_up_to(40);
    index.admit_up_to(10);
    index.insert_range(1, 50);
    assert!(!index.insert(40));
    assert!(!index.remove(40));
    assert_eq!((index.admitted_seq(), index.len(), index.position(41)), (40, 60, Some(1)));
}

#[test]
fn a_million_who_wait_cost_at_most_eleven_tenths_of_a_bit_each() {
    for count in [1_000_000, 10_000_000] {
        let mut index = RankIndex::new();
        index.insert_range(1, count);
        assert_eq!(index.len(), count);
        let bits = u64::try_from(index.bytes()).unwrap() * 8;
        assert!(bits * 10 <= count * 11, "{bits} bits for {count}");
    }
}

#[test]
fn admitted_superblocks_give_their_memory_back() {
    let mut index = RankIndex::new();
    index.insert_range(1, 10_000_000);
    let full = index.bytes();
    index.admit_up_to(9_990_000);
    assert!(index.bytes() < full / 50, "{} of {full}", index.bytes());
    assert_eq!(index.position(10_000_000), Some(10_000));
}

#[test]
fn a_number_that_cannot_be_right_costs_little() {
    let mut index = RankIndex::new();
    index.insert_range(1, 10);
    assert!(!index.insert(u64::MAX));
    assert!(!index.insert(1 << 60));
    assert!(index.insert(SPAN_MAX));
    assert_eq!((index.position(u64::MAX), index.before(u64::MAX), index.at(u64::MAX)), (None, 11, None));
    assert_eq!((index.position(SPAN_MAX), index.last_seq()), (Some(11), Some(SPAN_MAX)));
    assert!(!index.remove(u64::MAX));
    assert_eq!(index.neighbors(u64::MAX, 1), (vec![SPAN_MAX], vec![]));
    assert!(index.bytes() < 4_000_000);
    index.admit_up_to(u64::MAX - 1);
    index.admit_up_to(u64::MAX);
    index.insert_range(0, u64::MAX);
    assert_eq!((index.len(), index.before(u64::MAX), index.first(1)), (0, 0, vec![]));
}
