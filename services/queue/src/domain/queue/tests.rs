//! The state of a queue does not depend on the order in which its updates arrive.

use proptest::prelude::*;

use super::*;
use crate::domain::policy::tests::some;

const START: Timestamp = Timestamp::from_secs(1_000);

fn fresh() -> Queue {
    Queue {
        event_id: EventId::generate(),
        organizer_id: None,
        created_revision: 0,
        summary: EventSummary::default(),
        sectors: Vec::new(),
        life_revision: 0,
        is_active: false,
        stock_revision: 0,
        is_sold_out: false,
        state: QueueState::Scheduled,
        open_time: None,
        pause_time: None,
        joins_paused: false,
        close: None,
        notice: String::new(),
        overrides: PolicyOverrides::default(),
        policy: some(),
        update_time: START,
    }
}

fn creation(revision: u64) -> EventDetails {
    EventDetails {
        revision,
        organizer_id: OrganizerId::from_uuid(uuid::Uuid::from_u128(7)),
        summary: EventSummary::default(),
        sectors: Vec::new(),
    }
}

/// Returns an open queue.
pub(in crate::domain) fn open() -> Queue {
    let mut queue = fresh();
    assert!(queue.created(creation(1), START));
    assert!(queue.activated(2, None, START));
    assert_eq!(queue.state, QueueState::Open);
    queue
}

/// Asserts the invariants of a queue, which the database checks too.
fn assert_sound(queue: &Queue) {
    assert_eq!(queue.state == QueueState::Closed, queue.close.is_some());
    assert!(queue.state != QueueState::Paused || queue.pause_time.is_some());
    if matches!(queue.state, QueueState::Open | QueueState::Paused) {
        assert!(queue.is_active && queue.organizer_id.is_some());
    }
}

#[derive(Clone, Copy, Debug)]
enum Fact {
    Created,
    Activated,
    SoldOut,
    Available,
    Ended,
}

fn apply(queue: &mut Queue, fact: Fact) -> bool {
    match fact {
        Fact::Created => queue.created(creation(1), START),
        Fact::Activated => queue.activated(2, None, START),
        Fact::SoldOut => queue.sold_out(5, START),
        Fact::Available => queue.available(6, START),
        Fact::Ended => queue.ended(3, START),
    }
}

#[test]
fn queue_opens_once_both_creation_and_activation_are_known() {
    let mut queue = fresh();
    queue.activated(2, None, START);
    assert_eq!(queue.state, QueueState::Scheduled);
    queue.created(creation(1), START);
    assert_eq!(queue.state, QueueState::Open);
}

#[test]
fn due_opening_counts_before_it_is_stored() {
    let mut queue = fresh();
    queue.created(creation(1), START);
    let opens = Timestamp::from_secs(2_000);
    queue.activated(2, Some(opens), START);
    let now = Timestamp::from_secs(1_999);
    let early = queue.clone().settled_at(now).check_join(now, 0);
    assert_eq!(early, Err(Refusal::QueueNotOpen { open_time: Some(opens), now }));
    assert_eq!(queue.settled_at(opens).check_join(opens, 0), Ok(()));
}

#[test]
fn sell_out_before_the_opening_closes_the_queue_at_it() {
    let mut queue = fresh();
    queue.created(creation(1), START);
    let opens = Timestamp::from_secs(2_000);
    queue.activated(2, Some(opens), START);
    queue.sold_out(5, START);
    assert_eq!(queue.state, QueueState::Scheduled);
    assert_eq!(queue.settled_at(opens).check_join(opens, 0), Err(Refusal::SoldOut { remaining: Vec::new() }));
}

#[test]
fn opening_time_of_a_draft_is_not_revealed() {
    let mut queue = fresh();
    queue.created(creation(1), START);
    queue.open_time = Some(START);
    assert_eq!(queue.check_join(START, 0), Err(Refusal::QueueNotOpen { open_time: None, now: START }));
}

#[test]
fn pause_outlives_a_sell_out() {
    let mut queue = open();
    queue.pause(true, "wait".to_owned(), START).unwrap();
    queue.sold_out(5, START);
    assert_eq!(queue.state, QueueState::Closed);
    queue.available(6, START);
    assert_eq!(queue.state, QueueState::Paused);
    assert!(queue.joins_paused);
}

#[test]
fn older_update_changes_nothing() {
    let mut queue = open();
    assert!(queue.available(6, START));
    assert!(!queue.sold_out(5, START));
    assert_eq!(queue.state, QueueState::Open);
    assert!(queue.ended(4, START));
    assert!(!queue.activated(3, None, START));
    assert_eq!(queue.close_reason(), Some(CloseReason::Ended));
}

#[test]
fn ended_queue_never_opens_again() {
    let mut queue = open();
    queue.ended(9, START);
    assert_eq!(queue.open(None, START), Err(Refusal::TransitionInvalid { state: QueueState::Closed }));
    queue.available(7, START);
    assert_eq!(queue.close_reason(), Some(CloseReason::Ended));
}

#[test]
fn queue_closed_by_its_organizer_opens_again() {
    let mut queue = open();
    queue.close(CloseReason::Organizer, Vec::new(), "back soon".to_owned(), START).unwrap();
    let later = Timestamp::from_secs(5_000);
    queue.open(Some(later), START).unwrap();
    assert_eq!((queue.state, queue.open_time), (QueueState::Scheduled, Some(later)));
    queue.open(None, START).unwrap();
    assert_eq!(queue.state, QueueState::Open);
    assert!(queue.notice.is_empty());
}

#[test]
fn second_close_needs_the_same_reason() {
    let mut queue = open();
    queue.close(CloseReason::SoldOut, Vec::new(), String::new(), START).unwrap();
    queue.close(CloseReason::SoldOut, Vec::new(), "really".to_owned(), START).unwrap();
    let other = queue.close(CloseReason::Ended, Vec::new(), String::new(), START);
    assert_eq!(other, Err(Refusal::TransitionInvalid { state: QueueState::Closed }));
}

#[test]
fn full_queue_refuses_joins() {
    let queue = open();
    assert_eq!(queue.check_join(START, 1), Ok(()));
    assert_eq!(queue.check_join(START, 2), Err(Refusal::QueueFull { waiting_max: 2 }));
}

#[test]
fn foreign_draft_is_not_found_and_foreign_event_is_not_owned() {
    let other = OrganizerId::generate();
    let mut queue = fresh();
    queue.created(creation(1), START);
    assert!(matches!(queue.check_owner(other), Err(Refusal::EventNotFound { .. })));
    queue.activated(2, None, START);
    assert!(matches!(queue.check_owner(other), Err(Refusal::EventNotOwned { .. })));
}

proptest! {
    #[test]
    fn updates_reach_the_same_state_in_any_order(
        order in Just([Fact::Created, Fact::Activated, Fact::SoldOut, Fact::Available]).prop_shuffle(),
        repeats in 1_usize..3,
    ) {
        let mut queue = fresh();
        for fact in order.iter().cycle().take(order.len() * repeats) {
            apply(&mut queue, *fact);
            assert_sound(&queue);
        }
        prop_assert_eq!(queue.state, QueueState::Open);
    }

    #[test]
    fn end_is_final_in_any_order(
        order in Just([Fact::Created, Fact::Activated, Fact::SoldOut, Fact::Available, Fact::Ended]).prop_shuffle(),
    ) {
        let mut queue = fresh();
        for fact in order {
            apply(&mut queue, fact);
            assert_sound(&queue);
        }
        prop_assert_eq!(queue.close_reason(), Some(CloseReason::Ended));
    }
}
