//! Storage of queues. Postgres is the source of truth; Redis holds copies for quick reads and hints. Functions take and return
//! domain types.

// Columns are listed one by one: with `*`, a migration that adds a column would break statements that running pods have
// prepared.
macro_rules! queue_columns {
    () => {
        "event_id, organizer_id, created_revision, summary, sectors, life_revision, is_active, stock_revision, is_sold_out,
        state, open_time, pause_time, joins_paused, close_reason, close_time, remaining_sectors, notice,
        admissions_per_minute, open_turns_max, turn_seconds, idle_seconds, waiting_max, update_time, mode, milestones,
        window_size, active_windows, slide_seconds"
    };
}
macro_rules! line_columns {
    () => {
        "revision, last_seq, last_admitted_seq, last_fencing_number, waiting_count, open_turn_count, bucket_level,
        bucket_time, service_micros, shown_service_micros, completed_count, expired_count, left_count, slide_time"
    };
}
macro_rules! entry_columns {
    () => {
        "entry_id, event_id, customer_id, seq, state, join_time, display_name, avatar_url, fencing_number, grant_time,
        expire_time, end_time, expire_reason, claim_id"
    };
}

pub(crate) mod blocked_customers;
pub(crate) mod breaker;
pub(crate) mod entries;
pub mod keys;
pub(crate) mod line_copies;
pub(crate) mod lines;
pub(crate) mod milestones;
pub(crate) mod move_log;
pub(crate) mod neighbors;
pub(crate) mod pods;
pub mod presence;
pub(crate) mod queues;
pub(crate) mod ranks;
pub(crate) mod stats;
pub(crate) mod windows;

use std::time::Duration;

use onsale_types::EntryId;

/// Formats ids as arguments of a Redis command.
fn texts(entries: &[EntryId]) -> Vec<String> {
    entries.iter().map(ToString::to_string).collect()
}

/// Returns a span in whole milliseconds, as an argument of a Redis command.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
