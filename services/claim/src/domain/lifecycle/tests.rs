//! Any order of events, on a claim and an Inventory of one hold at a time.

use std::time::Duration;

use onsale_types::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::domain::{Allowance, CooldownRule, Lifetime};

const UNITS: u32 = 2;
const WINDOW: Duration = Duration::from_secs(600);
const RULE: CooldownRule = CooldownRule { claims: 2, within: WINDOW, lasts: WINDOW };

/// What can happen, as the service sees it.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Release(ReleaseReason),
    Pay {
        by: usize,
        has_room: bool,
    },
    /// The settlement takes its next step; `is_had` is what Inventory answers when it is asked for units.
    Settle {
        is_had: bool,
    },
    /// The release that is to be done is done.
    FinishRelease,
    /// Inventory releases a hold by itself.
    HoldExpires,
    /// A payment has begun, so many seconds after the claim was made.
    Extend {
        seconds: u64,
    },
}

/// A hold at Inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stock {
    Held,
    Committed,
    Free,
}

struct World {
    life: Life,
    stock: Stock,
    payments: [PaymentId; 2],
    history: Vec<Stage>,
    lifetime: Lifetime,
    allowance: Allowance,
}

impl World {
    fn new() -> Self {
        Self {
            life: Life::BEGIN,
            stock: Stock::Held,
            payments: [PaymentId::generate(), PaymentId::generate()],
            history: vec![Stage::Claimed],
            lifetime: Lifetime::begin(Timestamp::EPOCH, None, WINDOW).unwrap(),
            allowance: Allowance::of_new_customer(UNITS).with(UNITS),
        }
    }

    fn go(&mut self, life: Life) {
        if life.stage() != self.history.last().copied().unwrap() {
            self.history.push(life.stage());
        }
        self.allowance = self.allowance.after(self.life, life, UNITS, Timestamp::EPOCH, RULE);
        self.life = life;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Release(reason) => {
                if let Ok(life) = self.life.release(reason) {
                    self.go(life);
                }
            }
            Happening::Pay { by, has_room } => {
                if let Ok(life) = self.life.pay(self.payments[by], has_room) {
                    self.go(life);
                }
            }
            Happening::Settle { is_had } => self.settle(is_had),
            Happening::FinishRelease => self.finish_release(),
            Happening::Extend { seconds } => {
                let now = Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap();
                if let Some(lifetime) = self.lifetime.extend(now, WINDOW, WINDOW) {
                    self.lifetime = lifetime;
                }
            }
            Happening::HoldExpires => {
                if self.stock == Stock::Held {
                    self.stock = Stock::Free;
                }
            }
        }
    }

    fn settle(&mut self, is_had: bool) {
        let next = match self.life.next_step() {
            Step::Done => None,
            Step::Commit if self.stock == Stock::Free => self.life.lose_hold(),
            Step::Commit => {
                self.stock = Stock::Committed;
                self.life.complete()
            }
            Step::FinishRelease => {
                self.finish_release();
                None
            }
            Step::Reserve if is_had => {
                self.stock = Stock::Held;
                self.life.replace_hold()
            }
            Step::Reserve => self.life.reject(),
        };
        if let Some(life) = next {
            self.go(life);
        }
    }

    fn finish_release(&mut self) {
        if self.life.hold == HoldState::Releasing {
            assert_ne!(self.stock, Stock::Committed, "what is to be released was never committed");
            self.stock = Stock::Free;
            self.life.hold = HoldState::Released;
        }
    }

    fn check(&self) {
        match self.life.state {
            State::Confirmed { .. } => {
                assert_eq!((self.stock, self.life.hold), (Stock::Committed, HoldState::Committed));
            }
            State::Rejected { .. } => assert_ne!(self.stock, Stock::Committed, "rejected, and sold"),
            State::Claimed { .. } | State::Released { .. } => assert_ne!(self.stock, Stock::Committed),
        }
        if self.life.hold == HoldState::Released {
            assert_eq!(self.stock, Stock::Free, "units leaked");
        }
        let last = self.history.last().copied().unwrap();
        assert_eq!(last, self.life.stage());
        assert_eq!(self.allowance.units_taken, if self.life.is_counted() { UNITS } else { 0 });
        assert!(self.lifetime.expire_time <= Timestamp::EPOCH.checked_add(WINDOW * 2).unwrap());
    }
}

fn reason() -> impl Strategy<Value = ReleaseReason> {
    prop_oneof![
        Just(ReleaseReason::Customer),
        Just(ReleaseReason::Expired),
        Just(ReleaseReason::PaymentFailed)
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => reason().prop_map(Happening::Release),
        2 => (0_usize..2, prop::bool::weighted(0.8)).prop_map(|(by, has_room)| Happening::Pay { by, has_room }),
        4 => any::<bool>().prop_map(|is_had| Happening::Settle { is_had }),
        1 => Just(Happening::FinishRelease),
        1 => Just(Happening::HoldExpires),
        1 => (0_u64..1_000).prop_map(|seconds| Happening::Extend { seconds }),
    ]
}

proptest! {
    #[test]
    fn units_are_sold_exactly_when_confirmed_and_never_leak(
        happenings in prop::collection::vec(happening(), 0..40),
    ) {
        let mut world = World::new();
        for happening in happenings {
            let (before, end) = (world.life, world.lifetime);
            world.happen(happening);
            world.check();
            if before.is_final() {
                prop_assert_eq!(world.life.state, before.state, "{:?} moved what is final", happening);
            }
            if let Some(extend_time) = end.extend_time {
                prop_assert_eq!(world.lifetime.extend_time, Some(extend_time), "a claim is extended once");
                prop_assert_eq!(world.lifetime.expire_time, end.expire_time);
            }
            if let Some(payment) = before.payment() {
                prop_assert_eq!(world.life.payment(), Some(payment), "a claim has one payment");
            }
        }
    }

    #[test]
    fn a_paid_claim_ends_confirmed_or_rejected_and_only_its_settlement_decides(
        before in prop::collection::vec(happening(), 0..20),
        noise in prop::collection::vec(reason(), 0..4),
        is_had: bool,
    ) {
        let mut world = World::new();
        for happening in before {
            world.happen(happening);
        }
        world.happen(Happening::Pay { by: 0, has_room: true });
        for reason in noise {
            world.happen(Happening::Release(reason));
        }
        // Commit, lose, reserve, commit: no settlement has more steps than that.
        for _ in 0..5 {
            world.happen(Happening::Settle { is_had });
        }
        world.check();
        prop_assert!(world.life.is_final(), "{:?}", world.life);
    }

    #[test]
    fn a_claim_counts_while_its_units_are_or_may_become_the_customers(
        happenings in prop::collection::vec(happening(), 0..40),
    ) {
        let mut world = World::new();
        for happening in happenings {
            world.happen(happening);
            if world.stock == Stock::Committed {
                prop_assert!(world.life.is_counted());
            }
            if world.life.stage() == Stage::Rejected {
                prop_assert!(!world.life.is_counted());
            }
        }
    }
}

#[test]
fn a_claim_that_was_given_up_and_paid_is_rejected_when_the_limit_leaves_no_room() {
    let payment = PaymentId::generate();
    let released = Life::BEGIN.release(ReleaseReason::Expired).unwrap();
    assert_eq!(released.pay(payment, false).unwrap().state, State::Rejected { payment });
    assert_eq!(released.pay(payment, true).unwrap().next_step(), Step::FinishRelease);
}

#[test]
fn a_second_payment_is_told_who_was_first() {
    let (first, second) = (PaymentId::generate(), PaymentId::generate());
    let paid = Life::BEGIN.pay(first, true).unwrap();
    assert_eq!(paid.pay(second, true), Err(PaidByAnother(first)));
    assert_eq!(paid.pay(first, true), Ok(paid));
    assert_eq!(paid.release(ReleaseReason::Expired), Err(Paid));
}
