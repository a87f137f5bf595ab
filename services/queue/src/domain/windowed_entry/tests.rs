//! A ticket waits, is active, expires, in the order of the numbers and never back; and nobody is stranded.

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

/// A line of so many tickets of which some have been active, with a bucket that bounds nothing.
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

fn ticket(seq: u64) -> WindowedEntry {
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

/// How far a ticket has come.
fn stage(state: WindowedEntryState) -> u8 {
    match state {
        WindowedEntryState::Waiting { .. } => 0,
        WindowedEntryState::Active => 1,
        WindowedEntryState::Expired => 2,
    }
}

#[test]
fn the_newest_windows_are_active_and_older_ones_have_expired() {
    let window = Window { last_active_seq: 100, window_size: 10, active_windows: 3 };
    assert_eq!(window.state(101), WindowedEntryState::Waiting { position: 1 });
    assert_eq!(window.state(100), WindowedEntryState::Active);
    assert_eq!(window.state(71), WindowedEntryState::Active);
    assert_eq!(window.state(70), WindowedEntryState::Expired);
    assert_eq!(Window { last_active_seq: 5, ..window }.state(1), WindowedEntryState::Active);
}

#[test]
fn the_tail_of_the_line_is_not_stranded_and_without_anybody_new_nothing_slides() {
    let (policy, mut line) = (policy(10, 1), line(13, 0));
    for (seconds, expected) in [(10, 10), (20, 13), (30, 13), (40, 13)] {
        let count = line.slide_count(QueueState::Open, &policy, true, after(seconds));
        if count > 0 {
            line.slid(count, &policy, after(seconds));
        }
        assert_eq!(line.last_admitted_seq, expected);
    }
    // The slide at 30 s was skipped: those who are active stay so.
    let window = Window::of(&policy, &line);
    assert_eq!((window.state(13), window.state(4)), (WindowedEntryState::Active, WindowedEntryState::Active));
}

#[test]
fn only_an_open_queue_with_stock_and_a_rate_slides_and_only_when_it_is_time() {
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
fn a_late_slide_does_not_put_off_the_next_and_a_long_pause_does_not_bring_many() {
    let (policy, mut line) = (policy(10, 1), line(50, 0));
    line.slid(10, &policy, after(11));
    assert_eq!(line.slide_time, Some(after(10)));
    line.slid(10, &policy, after(95));
    assert_eq!(line.slide_time, Some(after(95)));
}

#[test]
fn a_ticket_that_waits_when_the_queue_closes_for_good_has_ended_and_an_active_one_runs_on() {
    let mut queue = open();
    queue.policy = policy(10, 1);
    queue.ended(9, after(5));
    let line = line(20, 10);
    let (waited, position) = ticket(11).entry(&queue, &line, after(6));
    assert_eq!((waited.state, waited.expire_reason), (EntryState::Expired, Some(ExpireReason::QueueClosed)));
    assert_eq!((waited.end_time, position), (Some(after(5)), None));
    assert_eq!(ticket(10).entry(&queue, &line, after(6)).0.state, EntryState::Admitted);
}

#[test]
fn a_turn_lasts_as_long_as_is_certain_and_for_one_interval_at_least() {
    let mut queue = open();
    queue.policy = policy(10, 3);
    let line = line(100, 50);
    let end = |seq, now| ticket(seq).entry(&queue, &line, now).0.turn.unwrap().expire_time;
    // Three slides of ten push out the newest, one the oldest.
    assert_eq!(end(50, START), after(30));
    assert_eq!(end(21, START), after(10));
    assert_eq!(end(21, after(9)), after(19));
}

#[test]
fn a_ticket_buys_once_while_it_is_active_and_what_was_begun_may_end_later() {
    let mut queue = open();
    queue.policy = policy(10, 1);
    let (line, policy) = (line(30, 20), queue.policy);
    let (claim, other) = (ClaimId::generate(), ClaimId::generate());
    let holds = |seq, used_by| ticket(seq).holds(&queue, &line, used_by, after(1));
    let turn = holds(20, None).unwrap();
    assert_eq!((turn.fencing_number, turn.expire_time), (20, after(61)));
    assert!(matches!(holds(21, None), Err(Refusal::EntryNotFound { .. })));
    assert!(matches!(holds(31, None), Err(Refusal::EntryNotFound { .. })));
    assert_eq!(holds(10, None), Err(Refusal::TurnExpired { expire_time: START }));
    assert_eq!(holds(20, Some(claim)), Err(Refusal::TurnEnded { state: EntryState::Completed }));
    let completes = |seq, used_by| ticket(seq).completes(&policy, &line, used_by, claim);
    for seq in [20, 10] {
        assert_eq!(completes(seq, None), Ok(WindowedCompletion::Use));
        assert_eq!(completes(seq, Some(claim)), Ok(WindowedCompletion::Done));
        assert!(matches!(completes(seq, Some(other)), Err(Refusal::TurnEnded { .. })));
    }
    assert!(matches!(completes(21, None), Err(Refusal::EntryNotFound { .. })));
}

proptest! {
    #[test]
    fn tickets_go_on_in_the_order_of_their_numbers_and_never_back(
        window_size in 1_u32..20, active_windows in 1_u32..5, rate in 1_u32..200,
        steps in proptest::collection::vec((0_u64..30, 1_u64..40), 1..60),
    ) {
        let policy = Policy { admissions_per_minute: rate, ..policy(window_size, active_windows) };
        let mut line = Line { bucket: Bucket { level: 0, time: START }, slide_time: None, ..line(0, 0) };
        let (mut now, mut stages) = (0, Vec::<u8>::new());
        for (joined, seconds) in steps {
            line.joined(joined);
            stages.resize(usize::try_from(line.last_seq).unwrap(), 0);
            now += seconds;
            line.bucket = line.bucket.filled_over(rate, policy.slide_interval, after(now));
            let before = line.last_admitted_seq;
            let count = line.slide_count(QueueState::Open, &policy, true, after(now));
            if count > 0 {
                line.slid(count, &policy, after(now));
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
        // Nobody is stranded: with time alone, everybody's number comes.
        for _ in 0..line.waiting_count * 60 {
            now += 60;
            line.bucket = line.bucket.filled_over(rate, policy.slide_interval, after(now));
            let count = line.slide_count(QueueState::Open, &policy, true, after(now));
            if count > 0 {
                line.slid(count, &policy, after(now));
            }
        }
        prop_assert_eq!(line.waiting_count, 0);
    }

    #[test]
    fn an_active_ticket_lives_for_the_slides_it_is_told(
        window_size in 1_u32..50, active_windows in 1_u32..6, age in 0_u64..300,
    ) {
        let (policy, mut line) = (policy(window_size, active_windows), line(10_000, 1_000));
        let seq = 1_000 - age;
        let window = Window::of(&policy, &line);
        prop_assume!(window.state(seq) == WindowedEntryState::Active);
        let slides = window.slides_left(seq);
        prop_assert!(slides >= 1);
        for slide in 1..=slides {
            line.slid(u64::from(window_size), &policy, after(slide * 10));
            let is_active = Window::of(&policy, &line).state(seq) == WindowedEntryState::Active;
            prop_assert_eq!(is_active, slide < slides);
        }
    }
}
