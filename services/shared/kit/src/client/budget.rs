//! Retry budget of a channel: a share of its calls plus a small floor.
//!
//! Retries help against single failures, but in an outage they multiply the load on a service that tries to recover. Every
//! call deposits a fraction of a retry and every retry withdraws a whole one, so over any period retries stay within that
//! share of the calls plus the floor.

use std::sync::atomic::{AtomicU64, Ordering};

/// Cost of one retry, chosen so that a call deposits exactly `percent`.
const RETRY: u64 = 100;

#[derive(Debug)]
pub(super) struct RetryBudget {
    percent: u64,
    balance_max: u64,
    balance: AtomicU64,
}

impl RetryBudget {
    /// Allows `percent` retries per hundred calls plus `floor` (0 counts as 1).
    pub(super) fn new(percent: u32, floor: u32) -> Self {
        let balance_max = u64::from(floor.max(1)).saturating_mul(RETRY);
        Self { percent: u64::from(percent), balance_max, balance: AtomicU64::new(balance_max) }
    }

    /// Deposits the share of one call.
    pub(super) fn deposit(&self) {
        self.change(|balance| Some(balance.saturating_add(self.percent).min(self.balance_max)));
    }

    /// Withdraws the cost of one retry. Returns false if the balance is too low.
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
    fn new_budget_allows_its_floor() {
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
