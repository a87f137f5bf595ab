//! Metrics of Claim's own. The kit and the storage crate measure calls, stores and events.

const TRANSITIONS: &str = "claim_transitions_total";
const COOLDOWNS: &str = "claim_cooldowns_total";
const EXTENSIONS: &str = "claim_extensions_total";
const HOLDS_RELEASED: &str = "claim_holds_released_total";
const HOLDS_ABANDONED: &str = "claim_holds_abandoned_total";

/// Registers the help text of each metric.
pub(crate) fn describe() {
    metrics::describe_counter!(
        TRANSITIONS,
        "claims that entered a stage: claimed, confirmed, released_customer, released_expired, \
         released_payment_failed, rejected"
    );
    metrics::describe_counter!(COOLDOWNS, "claims refused because the customer abandoned several claims");
    metrics::describe_counter!(EXTENSIONS, "claims that a payment in progress extended");
    metrics::describe_counter!(HOLDS_RELEASED, "holds released at Inventory");
    metrics::describe_counter!(HOLDS_ABANDONED, "hold attempts abandoned because no claim used them in time");
}

/// Counts a claim that entered the stage `to`. The count happens inside the transaction, so a transaction that is retried counts
/// twice.
pub(crate) fn stage_entered(to: &'static str) {
    metrics::counter!(TRANSITIONS, "to" => to).increment(1);
}

pub(crate) fn holds_released(count: usize) {
    metrics::counter!(HOLDS_RELEASED).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

pub(crate) fn cooldown_refusal() {
    metrics::counter!(COOLDOWNS).increment(1);
}

pub(crate) fn extended() {
    metrics::counter!(EXTENSIONS).increment(1);
}

pub(crate) fn holds_abandoned(count: u64) {
    metrics::counter!(HOLDS_ABANDONED).increment(count);
}
