//! What Queue counts.

use std::{sync::LazyLock, time::Duration};

use metrics::{Counter, Unit, counter, describe_counter, describe_histogram, histogram};

// Looked up once: it counts every message of every stream.
static UPDATES_SENT: LazyLock<Counter> = LazyLock::new(|| counter!("queue_updates_sent_total"));

/// Why an update was not sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UpdateSaved {
    /// Too small a step.
    Significance,
    /// A newer one came before it was read.
    Coalescing,
}

/// Says what each metric means. To be called once, at start.
pub(crate) fn describe() {
    describe_counter!("queue_joined_total", "Entries made.");
    describe_counter!("queue_admitted_total", "Turns granted.");
    describe_counter!("queue_milestones_passed_total", "Customers told that they passed a milestone.");
    describe_counter!("queue_ended_total", "Entries ended, by reason.");
    describe_counter!(
        "queue_positions_counted_total",
        "Positions counted in Postgres because Redis did not know them."
    );
    describe_counter!("queue_updates_sent_total", "Messages to watchers.");
    describe_counter!(
        "queue_updates_saved_total",
        "Positions not sent: too small a step, or replaced by a newer one before it was read."
    );
    describe_counter!("queue_watchers_too_slow_total", "Streams ended because their clients did not read.");
    describe_counter!("queue_line_mended_total", "Steps of a line that had to be read from Postgres.");
    describe_histogram!("queue_line_load_seconds", Unit::Seconds, "Time to read a whole line from Postgres.");
    describe_counter!("queue_line_corrections_total", "Entries of a line corrected in Redis.");
}

pub(crate) fn joined(count: usize) {
    counter!("queue_joined_total").increment(number(count));
}

pub(crate) fn admitted(count: usize) {
    counter!("queue_admitted_total").increment(number(count));
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

pub(crate) fn healed(count: u64) {
    counter!("queue_line_corrections_total").increment(count);
}

pub(crate) fn update_sent() {
    UPDATES_SENT.increment(1);
}

pub(crate) fn saved(by: UpdateSaved, count: u64) {
    let by = match by {
        UpdateSaved::Significance => "significance",
        UpdateSaved::Coalescing => "coalescing",
    };
    counter!("queue_updates_saved_total", "by" => by).increment(count);
}

pub(crate) fn too_slow() {
    counter!("queue_watchers_too_slow_total").increment(1);
}

pub(crate) fn mended() {
    counter!("queue_line_mended_total").increment(1);
}

pub(crate) fn line_loaded(elapsed: Duration) {
    histogram!("queue_line_load_seconds").record(elapsed);
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
