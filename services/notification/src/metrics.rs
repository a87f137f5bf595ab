//! Metrics of Notification. The labels `template` and `outcome` have a small, fixed set of values.

use std::time::Duration;

use onsale_types::Named as _;

const ATTEMPTS: &str = "notification_attempts_total";
const SEND_SECONDS: &str = "notification_send_seconds";
const DEAD: &str = "notification_dead_letters";
const OPEN: &str = "notification_deliveries_open";
const WAITING: &str = "notification_orders_waiting";

/// Value of the label `outcome`.
#[derive(Clone, Copy, Debug, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Outcome {
    Delivered,
    Retried,
    Dead,
    /// Expired before an attempt.
    Skipped,
}

/// Registers the descriptions of all metrics.
pub(crate) fn describe() {
    metrics::describe_counter!(
        ATTEMPTS,
        "attempts by template and outcome: delivered, retried, dead, skipped"
    );
    metrics::describe_histogram!(
        SEND_SECONDS,
        metrics::Unit::Seconds,
        "time that composing a mail and sending it to the mail server took"
    );
    metrics::describe_gauge!(DEAD, "deliveries in the dead letters, each of which an organizer must retry");
    metrics::describe_gauge!(OPEN, "deliveries that are queued or being sent");
    metrics::describe_gauge!(
        WAITING,
        "orders that have waited for more than 10 minutes for their tickets, or tickets for their order"
    );
}

/// Counts the end of an attempt, or of a delivery without one.
pub(crate) fn attempt_ended(template: &'static str, outcome: Outcome) {
    metrics::counter!(ATTEMPTS, "template" => template, "outcome" => outcome.name()).increment(1);
}

pub(crate) fn attempt_took(span: Duration) {
    metrics::histogram!(SEND_SECONDS).record(span.as_secs_f64());
}

pub(crate) fn set_counts(dead: u64, open: u64, waiting_orders: u64) {
    metrics::gauge!(DEAD).set(gauge_value(dead));
    metrics::gauge!(OPEN).set(gauge_value(open));
    metrics::gauge!(WAITING).set(gauge_value(waiting_orders));
}

#[expect(clippy::as_conversions, reason = "a gauge is a float; counts above 2^53 are rounded")]
fn gauge_value(count: u64) -> f64 {
    count as f64
}
