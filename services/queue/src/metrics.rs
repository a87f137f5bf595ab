//! Metrics of Queue.

use std::{sync::LazyLock, time::Duration};

use metrics::{Counter, Unit, counter, describe_counter, describe_histogram, histogram};

// Looked up once, because it counts every message of every stream.
static UPDATES_SENT: LazyLock<Counter> = LazyLock::new(|| counter!("queue_updates_sent_total"));

/// Cause for which an update was not sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UpdateSaved {
    /// The position changed too little.
    Significance,
    /// A newer update replaced it before the client read it.
    Coalescing,
}

/// Describes every metric. Call it once at start.
pub(crate) fn describe() {
    describe_counter!("queue_joined_total", "Entries created by joins.");
    describe_counter!("queue_admitted_total", "Turns granted.");
    describe_counter!("queue_milestones_passed_total", "Pushes to customers who passed a milestone.");
    describe_counter!("queue_ended_total", "Entries ended, by reason.");
    describe_counter!(
        "queue_positions_counted_total",
        "Positions counted in Postgres because Redis did not have them."
    );
    describe_counter!("queue_updates_sent_total", "Messages sent to streams.");
    describe_counter!(
        "queue_updates_saved_total",
        "Positions not sent because they changed too little, or because a newer one replaced them before they were read."
    );
    describe_counter!(
        "queue_watchers_too_slow_total",
        "Streams ended because their clients did not read them."
    );
    describe_counter!(
        "queue_line_mended_total",
        "Catch-ups of a line replica from Postgres because changes were missing."
    );
    describe_histogram!("queue_line_load_seconds", Unit::Seconds, "Time to load a whole line from Postgres.");
    describe_counter!("queue_line_corrections_total", "Entries of a line corrected in Redis.");
}

pub(crate) fn joined(count: u64) {
    counter!("queue_joined_total").increment(count);
}

pub(crate) fn admitted(count: u64) {
    counter!("queue_admitted_total").increment(count);
}

pub(crate) fn milestone_passed(count: usize) {
    counter!("queue_milestones_passed_total").increment(number(count));
}

pub(crate) fn ended(reason: &'static str) {
    counter!("queue_ended_total", "reason" => reason).increment(1);
}

pub(crate) fn counted_in_postgres(count: usize) {
    counter!("queue_positions_counted_total").increment(number(count));
}

pub(crate) fn line_corrected(count: u64) {
    counter!("queue_line_corrections_total").increment(count);
}

pub(crate) fn update_sent() {
    UPDATES_SENT.increment(1);
}

pub(crate) fn update_saved(by: UpdateSaved, count: u64) {
    let by = match by {
        UpdateSaved::Significance => "significance",
        UpdateSaved::Coalescing => "coalescing",
    };
    counter!("queue_updates_saved_total", "by" => by).increment(count);
}

pub(crate) fn watcher_too_slow() {
    counter!("queue_watchers_too_slow_total").increment(1);
}

pub(crate) fn line_repaired() {
    counter!("queue_line_mended_total").increment(1);
}

pub(crate) fn line_loaded(elapsed: Duration) {
    histogram!("queue_line_load_seconds").record(elapsed);
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
