//! Random sequences of events on a claim and on an Inventory that has one hold at a time.

use std::time::Duration;

use onsale_types::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::domain::{Allowance, ClaimExpiry, CooldownRule};

const UNITS: u32 = 2;
const WINDOW: Duration = Duration::from_secs(600);
const RULE: CooldownRule = CooldownRule { claims: 2, max_gap: WINDOW, duration: WINDOW };

/// Event that the service may observe.
#[derive(Clone, Copy, Debug)]
enum Event {
    Release(ReleaseReason),
    Pay {
        by: usize,
        has_room: bool,
    },
    /// The settlement takes its next step. `has_units`: Inventory can reserve units again.
    Settle {
        has_units: bool,
    },
    /// The releaser releases a hold that is due.
    FinishRelease,
    /// Inventory releases a hold by itself.
    HoldExpires,
    /// A payment begins this many seconds after the claim was created.
    Extend {
        seconds: u64,
    },
}

/// State of the hold at Inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stock {
    Held,
    Committed,
    Free,
}

struct Model {
    lifecycle: ClaimLifecycle,
    stock: Stock,
    payments: [PaymentId; 2],
    history: Vec<Stage>,
    expiry: ClaimExpiry,
    allowance: Allowance,
}

impl Model {
    fn new() -> Self {
        Self {
            lifecycle: ClaimLifecycle::NEW,
            stock: Stock::Held,
            payments: [PaymentId::generate(), PaymentId::generate()],
            history: vec![Stage::Claimed],
            expiry: ClaimExpiry::begin(Timestamp::EPOCH, None, WINDOW).unwrap(),
            allowance: Allowance::of_new_customer(UNITS).with(UNITS),
        }
    }

    fn change(&mut self, lifecycle: ClaimLifecycle) {
        if lifecycle.stage() != self.history.last().copied().unwrap() {
            self.history.push(lifecycle.stage());
        }
        self.allowance = self.allowance.after(self.lifecycle, lifecycle, UNITS, Timestamp::EPOCH, RULE);
        self.lifecycle = lifecycle;
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Release(reason) => {
                if let Ok(lifecycle) = self.lifecycle.release(reason) {
                    self.change(lifecycle);
                }
            }
            Event::Pay { by, has_room } => {
                if let Ok(lifecycle) = self.lifecycle.record_payment(self.payments[by], has_room) {
                    self.change(lifecycle);
                }
            }
            Event::Settle { has_units } => self.settle(has_units),
            Event::FinishRelease => self.finish_release(),
            Event::Extend { seconds } => {
                let now = Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap();
                if let Some(expiry) = self.expiry.extend(now, WINDOW, WINDOW) {
                    self.expiry = expiry;
                }
            }
            Event::HoldExpires => {
                if self.stock == Stock::Held {
                    self.stock = Stock::Free;
                }
            }
        }
    }

    fn settle(&mut self, has_units: bool) {
        let next = match self.lifecycle.next_step() {
            SettlementStep::Done => None,
            SettlementStep::CommitHold if self.stock == Stock::Free => self.lifecycle.lose_hold(),
            SettlementStep::CommitHold => {
                self.stock = Stock::Committed;
                self.lifecycle.confirm()
            }
            SettlementStep::ReleaseHold => {
                self.finish_release();
                None
            }
            SettlementStep::ReserveUnits if has_units => {
                self.stock = Stock::Held;
                self.lifecycle.replace_hold()
            }
            SettlementStep::ReserveUnits => self.lifecycle.reject(),
        };
        if let Some(lifecycle) = next {
            self.change(lifecycle);
        }
    }

    fn finish_release(&mut self) {
        if self.lifecycle.hold == HoldState::Releasing {
            assert_ne!(self.stock, Stock::Committed, "a hold due for release is never committed");
            self.stock = Stock::Free;
            self.lifecycle.hold = HoldState::Released;
        }
    }

    fn check(&self) {
        match self.lifecycle.state {
            State::Confirmed { .. } => {
                assert_eq!((self.stock, self.lifecycle.hold), (Stock::Committed, HoldState::Committed));
            }
            State::Rejected { .. } => assert_ne!(self.stock, Stock::Committed, "rejected, but sold"),
            State::Claimed { .. } | State::Released { .. } => assert_ne!(self.stock, Stock::Committed),
        }
        if self.lifecycle.hold == HoldState::Released {
            assert_eq!(self.stock, Stock::Free, "units leaked");
        }
        let last = self.history.last().copied().unwrap();
        assert_eq!(last, self.lifecycle.stage());
        assert_eq!(self.allowance.units_taken, if self.lifecycle.counts_against_limit() { UNITS } else { 0 });
        assert!(self.expiry.expire_time <= Timestamp::EPOCH.checked_add(WINDOW * 2).unwrap());
    }
}

fn reason() -> impl Strategy<Value = ReleaseReason> {
    prop_oneof![
        Just(ReleaseReason::Customer),
        Just(ReleaseReason::Expired),
        Just(ReleaseReason::PaymentFailed)
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => reason().prop_map(Event::Release),
        2 => (0_usize..2, prop::bool::weighted(0.8)).prop_map(|(by, has_room)| Event::Pay { by, has_room }),
        4 => any::<bool>().prop_map(|has_units| Event::Settle { has_units }),
        1 => Just(Event::FinishRelease),
        1 => Just(Event::HoldExpires),
        1 => (0_u64..1_000).prop_map(|seconds| Event::Extend { seconds }),
    ]
}

proptest! {
    #[test]
    fn units_are_sold_only_with_a_confirmed_claim_and_never_leak(
        events in prop::collection::vec(event(), 0..40),
    ) {
        let mut model = Model::new();
        for event in events {
            let (before, end) = (model.lifecycle, model.expiry);
            model.apply(event);
            model.check();
            if before.is_final() {
                prop_assert_eq!(model.lifecycle.state, before.state, "{:?} changed a final state", event);
            }
            if let Some(extend_time) = end.extend_time {
                prop_assert_eq!(model.expiry.extend_time, Some(extend_time), "a claim is extended once");
                prop_assert_eq!(model.expiry.expire_time, end.expire_time);
            }
            if let Some(payment) = before.payment_id() {
                prop_assert_eq!(model.lifecycle.payment_id(), Some(payment), "a claim has one payment");
            }
        }
    }

    #[test]
    fn paid_claim_ends_confirmed_or_rejected_whatever_releases_it(
        before in prop::collection::vec(event(), 0..20),
        noise in prop::collection::vec(reason(), 0..4),
        has_units: bool,
    ) {
        let mut model = Model::new();
        for event in before {
            model.apply(event);
        }
        model.apply(Event::Pay { by: 0, has_room: true });
        for reason in noise {
            model.apply(Event::Release(reason));
        }
        // The longest settlement has four steps: commit, lose the hold, reserve, commit.
        for _ in 0..5 {
            model.apply(Event::Settle { has_units });
        }
        model.check();
        prop_assert!(model.lifecycle.is_final(), "{:?}", model.lifecycle);
    }

    #[test]
    fn sold_claim_counts_against_the_limit_and_rejected_one_does_not(
        events in prop::collection::vec(event(), 0..40),
    ) {
        let mut model = Model::new();
        for event in events {
            model.apply(event);
            if model.stock == Stock::Committed {
                prop_assert!(model.lifecycle.counts_against_limit());
            }
            if model.lifecycle.stage() == Stage::Rejected {
                prop_assert!(!model.lifecycle.counts_against_limit());
            }
        }
    }
}

#[test]
fn late_payment_is_rejected_if_the_limit_leaves_no_room() {
    let payment_id = PaymentId::generate();
    let released = ClaimLifecycle::NEW.release(ReleaseReason::Expired).unwrap();
    assert_eq!(released.record_payment(payment_id, false).unwrap().state, State::Rejected { payment_id });
    assert_eq!(released.record_payment(payment_id, true).unwrap().next_step(), SettlementStep::ReleaseHold);
}

#[test]
fn second_payment_is_refused_with_the_first_payment_id() {
    let (first, second) = (PaymentId::generate(), PaymentId::generate());
    let paid = ClaimLifecycle::NEW.record_payment(first, true).unwrap();
    assert_eq!(paid.record_payment(second, true), Err(PaidByAnother(first)));
    assert_eq!(paid.record_payment(first, true), Ok(paid));
    assert_eq!(paid.release(ReleaseReason::Expired), Err(AlreadyPaid));
}
