//! What Queue counts.

use metrics::{counter, describe_counter};

/// Says what each metric means. To be called once, at start.
pub fn describe() {
    describe_counter!("queue_joined_total", "Entries made.");
    describe_counter!("queue_admitted_total", "Turns granted.");
    describe_counter!("queue_ended_total", "Entries ended, by reason.");
    describe_counter!(
        "queue_positions_counted_total",
        "Positions counted in Postgres because Redis did not know them."
    );
    describe_counter!("queue_line_corrections_total", "Entries of a line corrected in Redis.");
}

pub(crate) fn joined(count: usize) {
    counter!("queue_joined_total").increment(number(count));
}

pub(crate) fn admitted(count: usize) {
    counter!("queue_admitted_total").increment(number(count));
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

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
