//! Metrics of the Postgres client: pool usage, durations by label, and retries.

use std::time::Instant;

use deadpool_postgres::Status;

const DURATION: &str = "postgres_call_duration_seconds";
const RETRIES: &str = "postgres_transaction_retries_total";
const IN_USE: &str = "postgres_pool_connections_in_use";
const WAITING: &str = "postgres_pool_waiting";

pub(super) fn describe() {
    metrics::describe_histogram!(
        DURATION,
        metrics::Unit::Seconds,
        "duration of statements and transactions with their waits and retries"
    );
    metrics::describe_counter!(RETRIES, "restarts of transactions after a lost race or a broken connection");
    metrics::describe_gauge!(IN_USE, "pooled connections in use");
    metrics::describe_gauge!(WAITING, "callers that wait for a pooled connection");
}

pub(super) fn retried(label: &'static str) {
    metrics::counter!(RETRIES, "label" => label).increment(1);
}

pub(super) fn pool(schema: &str, status: &Status) {
    let in_use = status.size.saturating_sub(status.available);
    metrics::gauge!(IN_USE, "schema" => schema.to_owned()).set(gauge_value(in_use));
    metrics::gauge!(WAITING, "schema" => schema.to_owned()).set(gauge_value(status.waiting));
}

/// Measures until it is dropped, so that cancelled calls are included.
pub(super) struct CallTimer {
    label: &'static str,
    started: Instant,
    outcome: &'static str,
}

impl CallTimer {
    pub(super) fn start(label: &'static str) -> Self {
        Self { label, started: Instant::now(), outcome: "failed" }
    }

    pub(super) fn succeeded(&mut self) {
        self.outcome = "ok";
    }
}

impl Drop for CallTimer {
    fn drop(&mut self) {
        metrics::histogram!(DURATION, "label" => self.label, "outcome" => self.outcome)
            .record(self.started.elapsed());
    }
}

/// Converts to the float of a gauge; pools are far smaller than `u32::MAX`.
fn gauge_value(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
