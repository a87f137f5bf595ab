//! What Notification reports. Templates and outcomes are few and constant.

use std::time::Duration;

use crate::domain::content::Template;

const ENDED: &str = "notification_attempts_total";
const SEND_SECONDS: &str = "notification_send_seconds";
const DEAD: &str = "notification_dead_letters";
const OPEN: &str = "notification_deliveries_open";
const WAITING: &str = "notification_orders_waiting";

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The provider took it.
    Delivered,
    /// It failed and is tried again.
    Retried,
    /// It failed for good.
    Dead,
    /// It was not sent: too late.
    Skipped,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retried => "retried",
            Self::Dead => "dead",
            Self::Skipped => "skipped",
        }
    }
}

/// Says what each metric is.
pub(crate) fn describe() {
    metrics::describe_counter!(ENDED, "attempts by template and outcome: delivered, retried, dead, skipped");
    metrics::describe_histogram!(
        SEND_SECONDS,
        metrics::Unit::Seconds,
        "time the mail server took for a mail"
    );
    metrics::describe_gauge!(DEAD, "deliveries in the dead letters: each waits for a person");
    metrics::describe_gauge!(OPEN, "deliveries that are queued or being sent");
    metrics::describe_gauge!(WAITING, "orders whose tickets, or whose order, have not come for 10 minutes");
}

pub(crate) fn ended(template: Template, outcome: Outcome) {
    metrics::counter!(ENDED, "template" => template.name(), "outcome" => outcome.name()).increment(1);
}

pub(crate) fn sent_in(span: Duration) {
    metrics::histogram!(SEND_SECONDS).record(span.as_secs_f64());
}

pub(crate) fn counts(dead: i64, open: i64, waiting: i64) {
    metrics::gauge!(DEAD).set(gauge_value(dead));
    metrics::gauge!(OPEN).set(gauge_value(open));
    metrics::gauge!(WAITING).set(gauge_value(waiting));
}

#[expect(
    clippy::as_conversions,
    reason = "a gauge is a float, and a rounded count is good enough to look at"
)]
fn gauge_value(count: i64) -> f64 {
    count as f64
}
