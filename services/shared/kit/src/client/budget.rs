//! How many retries a channel may make: a share of its calls, and a few besides.
//!
//! Retries help against the odd failure; in an outage they multiply the load on whatever is trying to come back. Every
//! call pays a part of a retry into the budget and every retry takes a whole one out, so that over any stretch of time
//! retries stay within that share of the calls plus what the budget can hold.

use std::sync::atomic::{AtomicU64, Ordering};

/// One retry costs this much; so `percent` of it is what a call pays in.
const RETRY: u64 = 100;

#[derive(Debug)]
pub(super) struct RetryBudget {
    percent: u64,
    balance_max: u64,
    balance: AtomicU64,
}

impl RetryBudget {
    /// Allows `percent` retries for every hundred calls, and `floor` (at least 1) on top.
    pub(super) fn new(percent: u32, floor: u32) -> Self {
        let balance_max = u64::from(floor.max(1)).saturating_mul(RETRY);
        Self { percent: u64::from(percent), balance_max, balance: AtomicU64::new(balance_max) }
    }

    /// A call was made.
    pub(super) fn deposit(&self) {
        self.change(|balance| Some(balance.saturating_add(self.percent).min(self.balance_max)));
    }

    /// Whether a retry may be made; if so, it is paid for.
    pub(super) fn withdraw(&self) -> bool {
        self.change(|balance| balance.checked_sub(RETRY))
    }

    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> bool {
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_budget_holds_its_floor() {
        let budget = RetryBudget::new(10, 3);
        assert!((0..3).all(|_| budget.withdraw()));
        assert!(!budget.withdraw());
    }

    #[test]
    fn ten_calls_pay_for_one_retry_at_ten_percent() {
        let budget = RetryBudget::new(10, 1);
        assert!(budget.withdraw());
        for _ in 0..9 {
            budget.deposit();
            assert!(!budget.withdraw());
        }
        budget.deposit();
        assert!(budget.withdraw());
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_share_of_the_calls_plus_the_floor(
            percent in 0_u32..100,
            floor in 1_u32..20,
            steps in prop::collection::vec(any::<bool>(), 0..500),
        ) {
            let budget = RetryBudget::new(percent, floor);
            let (mut calls, mut retries) = (0_u64, 0_u64);
            for is_call in steps {
                if is_call {
                    budget.deposit();
                    calls += 1;
                } else if budget.withdraw() {
                    retries += 1;
                }
                prop_assert!(retries * 100 <= calls * u64::from(percent) + u64::from(floor) * 100);
            }
        }
    }
}
