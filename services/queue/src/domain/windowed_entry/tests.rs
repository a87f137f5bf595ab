//! An entry waits, is active and expires in the order of its number, and the window reaches every number.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::{bucket::Bucket, line::tests::empty, policy::tests::some, queue::tests::open};

const START: Timestamp = Timestamp::from_secs(1_000);

fn policy(window_size: u32, active_windows: u32) -> Policy {
    Policy {
        mode: QueueMode::Windowed,
        admissions_per_minute: 1_000_000,
        window_size,
        active_windows,
        ..some()
    }
}

/// Returns a line with `last_seq` numbers given out, a window up to `last_active_seq`, and a bucket that never limits.
fn line(last_seq: u64, last_active_seq: u64) -> Line {
    Line {
        last_seq,
        last_admitted_seq: last_active_seq,
        last_fencing_number: last_active_seq,
        waiting_count: last_seq - last_active_seq,
        bucket: Bucket { level: u64::MAX, time: START },
        slide_time: Some(START),
        ..empty()
    }
}

fn windowed(seq: u64) -> WindowedEntry {
    WindowedEntry {
        event_id: EventId::generate(),
        customer_id: CustomerId::generate(),
        seq,
        join_time: START,
    }
}

fn after(seconds: u64) -> Timestamp {
    START.checked_add(Duration::from_secs(seconds)).unwrap()
}

/// Numbers the states in the order in which an entry passes them.
fn stage(state: WindowedEntryState) -> u8 {
    match state {
        WindowedEntryState::Waiting { .. } => 0,
        WindowedEntryState::Active => 1,
        WindowedEntryState::Expired => 2,
    }
}

#[test]
fn newest_windows_are_active_and_older_ones_expired() {
    let window = Window { last_active_seq: 100, window_size: 10, active_windows: 3 };
    assert_eq!(window.state(101), WindowedEntryState::Waiting { position: 1 });
    assert_eq!(window.state(100), WindowedEntryState::Active);
    assert_eq!(window.state(71), WindowedEntryState::Active);
    assert_eq!(window.state(70), WindowedEntryState::Expired);
    assert_eq!(Window { last_active_seq: 5, ..window }.state(1), WindowedEntryState::Active);
}

#[test]
fn window_slides_to_the_last_number_and_then_stops() {
    let (policy, mut line) = (policy(10, 1), line(13, 0));
    for (seconds, expected) in [(10, 10), (20, 13), (30, 13), (40, 13)] {
        let count = line.slide_count(QueueState::Open, &policy, true, after(seconds));
        if count > 0 {
            line.slide(count, &policy, after(seconds));
        }
        assert_eq!(line.last_admitted_seq, expected);
    }
    // The slide at 30 s was skipped, so the active entries stay active.
    let window = Window::of(&policy, &line);
    assert_eq!((window.state(13), window.state(4)), (WindowedEntryState::Active, WindowedEntryState::Active));
}

#[test]
fn window_slides_only_when_open_due_in_stock_and_at_a_rate() {
    let (policy, line) = (policy(10, 1), line(50, 0));
    let at = |state, has_stock, seconds| line.slide_count(state, &policy, has_stock, after(seconds));
    assert_eq!(at(QueueState::Open, true, 10), 10);
    assert_eq!(at(QueueState::Open, true, 9), 0);
    assert_eq!(at(QueueState::Open, false, 10), 0);
    for state in [QueueState::Scheduled, QueueState::Paused, QueueState::Closed] {
        assert_eq!(at(state, true, 10), 0);
    }
    let slow = Policy { admissions_per_minute: 0, ..policy };
    assert_eq!(line.slide_count(QueueState::Open, &slow, true, after(10)), 0);
}

#[test]
fn late_slide_keeps_the_schedule_and_a_pause_saves_up_none() {
    let (policy, mut line) = (policy(10, 1), line(50, 0));
    line.slide(10, &policy, after(11));
    assert_eq!(line.slide_time, Some(after(10)));
    line.slide(10, &policy, after(95));
    assert_eq!(line.slide_time, Some(after(95)));
}

#[test]
fn final_close_ends_waiting_entries_and_keeps_active_ones() {
    let mut queue = open();
    queue.policy = policy(10, 1);
    queue.ended(9, after(5));
    let line = line(20, 10);
    let (waited, position) = windowed(11).entry(&queue, &line, after(6));
    assert_eq!((waited.state, waited.expire_reason), (EntryState::Expired, Some(ExpireReason::QueueClosed)));
    assert_eq!((waited.end_time, position), (Some(after(5)), None));
    assert_eq!(windowed(10).entry(&queue, &line, after(6)).0.state, EntryState::Admitted);
}

#[test]
fn turn_lasts_for_its_remaining_slides_and_at_least_one_interval() {
    let mut queue = open();
    queue.policy = policy(10, 3);
    let line = line(100, 50);
    let end = |seq, now| windowed(seq).entry(&queue, &line, now).0.turn.unwrap().expire_time;
    // Three slides of ten push out the newest, one the oldest.
    assert_eq!(end(50, START), after(30));
    assert_eq!(end(21, START), after(10));
    assert_eq!(end(21, after(9)), after(19));
}

#[test]
fn entry_is_used_once_and_may_complete_after_its_window() {
    let mut queue = open();
    queue.policy = policy(10, 1);
    let (line, policy) = (line(30, 20), queue.policy);
    let (claim, other) = (ClaimId::generate(), ClaimId::generate());
    let holds = |seq, used_by| windowed(seq).validate(&queue, &line, used_by, after(1));
    let turn = holds(20, None).unwrap();
    assert_eq!((turn.turn.fencing_number, turn.turn.expire_time), (20, after(61)));
    assert!(matches!(holds(21, None), Err(Refusal::EntryNotFound { .. })));
    assert!(matches!(holds(31, None), Err(Refusal::EntryNotFound { .. })));
    assert_eq!(holds(10, None), Err(Refusal::TurnExpired { expire_time: START }));
    assert_eq!(holds(20, Some(claim)), Err(Refusal::TurnEnded { state: EntryState::Completed }));
    let completes = |seq, used_by| windowed(seq).complete(&policy, &line, used_by, claim);
    for seq in [20, 10] {
        assert_eq!(completes(seq, None), Ok(WindowedCompletion::MarkUsed));
        assert_eq!(completes(seq, Some(claim)), Ok(WindowedCompletion::Done));
        assert!(matches!(completes(seq, Some(other)), Err(Refusal::TurnEnded { .. })));
    }
    assert!(matches!(completes(21, None), Err(Refusal::EntryNotFound { .. })));
}

proptest! {
    #[test]
    fn entries_advance_in_order_and_never_go_back(
        window_size in 1_u32..20, active_windows in 1_u32..5, rate in 1_u32..200,
        steps in proptest::collection::vec((0_u64..30, 1_u64..40), 1..60),
    ) {
        let policy = Policy { admissions_per_minute: rate, ..policy(window_size, active_windows) };
        let mut line = Line { bucket: Bucket { level: 0, time: START }, slide_time: None, ..line(0, 0) };
        let (mut now, mut stages) = (0, Vec::<u8>::new());
        for (joined, seconds) in steps {
            line.join(joined);
            stages.resize(usize::try_from(line.last_seq).unwrap(), 0);
            now += seconds;
            line.bucket = line.bucket.filled_over(rate, policy.slide_interval, after(now));
            let before = line.last_admitted_seq;
            let count = line.slide_count(QueueState::Open, &policy, true, after(now));
            if count > 0 {
                line.slide(count, &policy, after(now));
            }
            prop_assert!(line.last_admitted_seq <= line.last_seq);
            prop_assert!(line.last_admitted_seq - before <= u64::from(window_size));
            prop_assert_eq!(line.waiting_count, line.last_seq - line.last_admitted_seq);
            prop_assert_eq!(line.last_fencing_number, line.last_admitted_seq);
            let window = Window::of(&policy, &line);
            for (seq, known) in (1_u64..).zip(&mut stages) {
                let now = stage(window.state(seq));
                prop_assert_eq!(window.state(seq), window.state(seq));
                prop_assert!(now >= *known && now <= known.saturating_add(1), "{} went from {} to {}", seq, known, now);
                *known = now;
            }
            prop_assert!(stages.is_sorted_by(|before, after| before >= after));
        }
        // With time alone the window reaches every number.
        for _ in 0..line.waiting_count * 60 {
            now += 60;
            line.bucket = line.bucket.filled_over(rate, policy.slide_interval, after(now));
            let count = line.slide_count(QueueState::Open, &policy, true, after(now));
            if count > 0 {
                line.slide(count, &policy, after(now));
            }
        }
        prop_assert_eq!(line.waiting_count, 0);
    }

    #[test]
    fn active_entry_outlives_its_remaining_slides(
        window_size in 1_u32..50, active_windows in 1_u32..6, age in 0_u64..300,
    ) {
        let (policy, mut line) = (policy(window_size, active_windows), line(10_000, 1_000));
        let seq = 1_000 - age;
        let window = Window::of(&policy, &line);
        prop_assume!(window.state(seq) == WindowedEntryState::Active);
        let slides = window.slides_left(seq);
        prop_assert!(slides >= 1);
        for slide in 1..=slides {
            line.slide(u64::from(window_size), &policy, after(slide * 10));
            let is_active = Window::of(&policy, &line).state(seq) == WindowedEntryState::Active;
            prop_assert_eq!(is_active, slide < slides);
        }
    }
}
