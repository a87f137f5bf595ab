//! What Claim counts of its own; calls, stores and events are counted by the kit and the storage crate.

use crate::domain::{ReleaseReason, Stage};

const TRANSITIONS: &str = "claim_transitions_total";
const COOLDOWNS: &str = "claim_cooldowns_total";
const EXTENSIONS: &str = "claim_extensions_total";
const HOLDS_RELEASED: &str = "claim_holds_released_total";
const HOLDS_ABANDONED: &str = "claim_holds_abandoned_total";

/// Says what each is.
pub(crate) fn describe() {
    metrics::describe_counter!(
        TRANSITIONS,
        "claims that went to a state: claimed, confirmed, released_customer, released_expired, \
         released_payment_failed, rejected"
    );
    metrics::describe_counter!(COOLDOWNS, "claims refused because the customer let several go by unpaid");
    metrics::describe_counter!(EXTENSIONS, "claims that a payment in progress gave more time");
    metrics::describe_counter!(HOLDS_RELEASED, "holds given back to Inventory");
    metrics::describe_counter!(HOLDS_ABANDONED, "attempts that became no claim in time and were given up");
}

/// A claim went to `stage`. Counted inside of its transaction, so a repeated one counts twice.
pub(crate) fn changed(stage: Stage) {
    let to = match stage {
        Stage::Claimed => "claimed",
        Stage::Confirmed => "confirmed",
        Stage::Released(ReleaseReason::Customer) => "released_customer",
        Stage::Released(ReleaseReason::Expired) => "released_expired",
        Stage::Released(ReleaseReason::PaymentFailed) => "released_payment_failed",
        Stage::Rejected => "rejected",
    };
    metrics::counter!(TRANSITIONS, "to" => to).increment(1);
}

pub(crate) fn holds_released(count: usize) {
    metrics::counter!(HOLDS_RELEASED).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

/// A customer was told to wait.
pub(crate) fn cooled_down() {
    metrics::counter!(COOLDOWNS).increment(1);
}

/// A payment in progress gave a claim more time.
pub(crate) fn extended() {
    metrics::counter!(EXTENSIONS).increment(1);
}

pub(crate) fn holds_abandoned(count: u64) {
    metrics::counter!(HOLDS_ABANDONED).increment(count);
}
