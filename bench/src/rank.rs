//! The `rank` benchmark: positions per second from the rank index. Limit: random reads of an array as long as the line.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use onsale_queue::domain::rank_index::RankIndex;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::report::{Report, Round, per_second, share};

const ROUNDS: usize = 3;
const LARGE: u64 = 10_000_000;
const SMALL: u64 = 1_000_000;
/// Number of random numbers in line, which each measurement reads in a cycle.
const QUESTIONS: usize = 1 << 20;
/// One of this many entries has left the line.
const HOLES: u64 = 10;
/// Timed changes of each kind, few enough to leave the shape of the line as it is.
const CHANGES: u64 = 100_000;
/// Seed of the random numbers, so that every run uses the same ones.
const SEED: u64 = 42;

/// Measures the index and its limit in alternating rounds.
pub(crate) fn run(measured: Duration) -> Report {
    let mut random = StdRng::seed_from_u64(SEED);
    let large = line(LARGE, &mut random);
    let small = line(SMALL, &mut random);
    let of_large = questions(LARGE, &mut random);
    let of_small = questions(SMALL, &mut random);
    let array: Vec<u64> = (0..=LARGE).collect();
    let (mut rounds, mut of_million) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let ours = || per_second_of(measured, &of_large, |seq| large.position(seq).unwrap_or_default());
        let limit = || per_second_of(measured, &of_large, |seq| read(&array, seq));
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let (value, limit) = if round % 2 == 0 {
            let value = ours();
            (value, limit())
        } else {
            let limit = limit();
            (ours(), limit)
        };
        rounds.push(Round { value, limit });
        of_million.push(
            per_second_of(measured / 4, &of_small, |seq| small.position(seq).unwrap_or_default()).round(),
        );
    }
    let detail = json!({
        "one_million": { "positions_per_second": of_million, "index": to_json(&small, SMALL, &of_small) },
        "ten_million": { "index": to_json(&large, LARGE, &of_large) },
        "rounds": rounds.iter().map(|round| json!({ "positions_per_second": round.value.round(), "reads_per_second": round.limit.round() })).collect::<Vec<_>>(),
    });
    Report::new("rank", "positions/s", "one random read of an array of 10,000,000 u64", &rounds, detail)
}

/// Returns a line of `count` entries from which one in ten has left at random.
fn line(count: u64, random: &mut StdRng) -> RankIndex {
    let mut index = RankIndex::new();
    index.insert_range(1, count);
    for _ in 0..count / HOLES {
        index.remove(random.random_range(1..=count));
    }
    index
}

fn questions(count: u64, random: &mut StdRng) -> Vec<u64> {
    (0..QUESTIONS).map(|_| random.random_range(1..=count)).collect()
}

fn read(array: &[u64], index: u64) -> u64 {
    usize::try_from(index).ok().and_then(|index| array.get(index)).copied().unwrap_or_default()
}

/// Returns the calls of `answer` per second over at least `measured`. Both sides use this loop.
fn per_second_of(measured: Duration, questions: &[u64], answer: impl Fn(u64) -> u64) -> f64 {
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < measured {
        for question in questions {
            black_box(answer(black_box(*question)));
        }
        count = count.saturating_add(u64::try_from(questions.len()).unwrap_or_default());
    }
    per_second(count, begun.elapsed())
}

/// Measures the size of the index and the nanoseconds of every operation besides `position`.
fn to_json(index: &RankIndex, count: u64, questions: &[u64]) -> Value {
    let bits = u64::try_from(index.bytes()).unwrap_or(u64::MAX).saturating_mul(8);
    let mut changed = index.clone();
    let mut some = questions.iter().copied();
    let mut next = move || some.next().unwrap_or(1);
    let at = nanos(|_| _ = black_box(index.at(next() / 2 + 1)));
    let neighbors = nanos(|turn| drop(black_box(index.neighbors((turn * 7) % count, 5))));
    let mut seqs = questions.iter().rev().copied();
    let remove = nanos(|_| _ = black_box(changed.remove(seqs.next().unwrap_or(1))));
    let append = nanos(|turn| _ = black_box(changed.insert(count + 1 + turn)));
    let end = count + CHANGES;
    let append_hundred = nanos(|turn| changed.insert_range(end + 1 + turn * 100, end + 100 + turn * 100));
    let admit = nanos(|turn| changed.admit_up_to(turn * 5));
    json!({
        "entries": count,
        "waiting": index.len(),
        "bits_per_entry": share(bits, count),
        "nanos": {
            "at": at, "neighbors_of_five": neighbors, "remove_from_the_middle": remove,
            "append": append, "append_a_hundred": append_hundred, "admit_five": admit,
        },
    })
}

/// Returns the average nanoseconds of one change.
fn nanos(mut change: impl FnMut(u64)) -> u64 {
    let begun = Instant::now();
    for turn in 0..CHANGES {
        change(turn);
    }
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / CHANGES
}
