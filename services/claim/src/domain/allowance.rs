//! A customer's allowance of one event: the limit of units over all claims, and the cooldown after abandoned claims, which keeps
//! customers from holding stock that they do not buy.

use std::time::Duration;

use onsale_types::Timestamp;

use super::{ClaimLifecycle, Refusal, ReleaseReason, Stage};

/// Limit of units, units in use, and abandoned claims of one customer in one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) units_max: u32,
    /// Units of all claims that count against the limit; never more than `units_max`.
    pub(crate) units_taken: u32,
    pub(crate) abandoned: AbandonedStreak,
}

/// Refusal of units beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded {
    pub(crate) units_max: u32,
    /// Units that the customer may still claim.
    pub(crate) units_left: u32,
}

/// Condition and length of the cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CooldownRule {
    /// Number of consecutive abandoned claims that starts a cooldown. 0: no cooldown.
    pub(crate) claims: u32,
    /// Longest gap between two abandoned claims that still counts as consecutive.
    pub(crate) max_gap: Duration,
    /// Length of the cooldown, counted from the last abandoned claim.
    pub(crate) duration: Duration,
}

/// Consecutive abandoned claims of one customer in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AbandonedStreak {
    pub(crate) count: u32,
    /// Time of the last abandoned claim; `None` while `count` is 0.
    pub(crate) last: Option<Timestamp>,
}

impl Allowance {
    /// Returns the allowance of a customer without claims.
    pub(crate) fn of_new_customer(units_max: u32) -> Self {
        Self { units_max, units_taken: 0, abandoned: AbandonedStreak::default() }
    }

    /// Returns the row to insert for a customer's first claim. It counts the claim's units already if the limit admits them, so
    /// that the row is usually written once.
    pub(crate) fn of_first_claim(units_max: u32, unit_count: u32) -> Self {
        let none = Self::of_new_customer(units_max);
        if none.check_limit(unit_count).is_ok() { none.with(unit_count) } else { none }
    }

    /// Adds units without checking the limit.
    pub(crate) fn with(self, unit_count: u32) -> Self {
        Self { units_taken: self.units_taken.saturating_add(unit_count), ..self }
    }

    /// Returns the allowance after a claim of `unit_count` units went from `before` to `after` at `now`. A claim released by its
    /// customer or by expiry counts as abandoned; a failed payment or a rejection does not. A purchase resets the streak.
    pub(crate) fn after(
        self,
        before: ClaimLifecycle,
        after: ClaimLifecycle,
        unit_count: u32,
        now: Timestamp,
        rule: CooldownRule,
    ) -> Self {
        let units_taken = match (before.counts_against_limit(), after.counts_against_limit()) {
            (false, true) => self.units_taken.saturating_add(unit_count),
            (true, false) => self.units_taken.saturating_sub(unit_count),
            (true, true) | (false, false) => self.units_taken,
        };
        let abandoned = match (before.stage(), after.stage()) {
            (Stage::Claimed, Stage::Released(ReleaseReason::Customer | ReleaseReason::Expired)) => {
                self.abandoned.increment(now, rule)
            }
            (Stage::Claimed | Stage::Released(_), Stage::Confirmed) => AbandonedStreak::default(),
            (_, Stage::Claimed | Stage::Confirmed | Stage::Released(_) | Stage::Rejected) => self.abandoned,
        };
        Self { units_taken, abandoned, ..self }
    }

    /// Refuses a new claim of `unit_count` units during a cooldown or beyond the limit.
    pub(crate) fn check_claim(
        self,
        unit_count: u32,
        now: Timestamp,
        rule: CooldownRule,
    ) -> Result<(), Refusal> {
        if let Some(retry_time) = self.abandoned.cooldown_until(now, rule) {
            return Err(Refusal::Cooldown { retry_time, wait: retry_time.saturating_since(now) });
        }
        self.check_limit(unit_count).map_err(Refusal::LimitExceeded)
    }

    /// Refuses `unit_count` more units if they exceed the limit.
    pub(crate) fn check_limit(self, unit_count: u32) -> Result<(), LimitExceeded> {
        let units_left = self.units_max.saturating_sub(self.units_taken);
        if unit_count <= units_left {
            Ok(())
        } else {
            Err(LimitExceeded { units_max: self.units_max, units_left })
        }
    }
}

impl AbandonedStreak {
    /// Adds a claim abandoned at `now`. A longer gap than `rule.max_gap` starts a new streak.
    pub(crate) fn increment(self, now: Timestamp, rule: CooldownRule) -> Self {
        let is_consecutive = self.last.is_some_and(|last| now.saturating_since(last) <= rule.max_gap);
        let before = if is_consecutive { self.count } else { 0 };
        Self { count: before.saturating_add(1), last: Some(now) }
    }

    /// Returns the end of the cooldown that is running at `now`, if there is one.
    pub(crate) fn cooldown_until(self, now: Timestamp, rule: CooldownRule) -> Option<Timestamp> {
        if rule.claims == 0 || self.count < rule.claims {
            return None;
        }
        self.last.and_then(|last| last.checked_add(rule.duration)).filter(|end| *end > now)
    }
}

#[cfg(test)]
mod tests;
