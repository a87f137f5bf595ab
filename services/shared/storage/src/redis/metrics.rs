//! Metrics of the Redis client. Label values are constants of the code, so they are bounded.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

const DURATION: &str = "redis_command_duration_seconds";
const ERRORS: &str = "redis_command_errors_total";
const RETRIES: &str = "redis_command_retries_total";
const HINTS_DROPPED: &str = "redis_hints_dropped_total";

pub(super) fn describe() {
    describe_histogram!(DURATION, Unit::Seconds, "Duration of calls to Redis with all their attempts");
    describe_counter!(ERRORS, Unit::Count, "Failed calls to Redis, by error class");
    describe_counter!(RETRIES, Unit::Count, "Retries of calls to Redis");
    describe_counter!(HINTS_DROPPED, Unit::Count, "Hints dropped because a subscriber was slow");
}

pub(super) fn called(command: &'static str, took: Duration) {
    histogram!(DURATION, "command" => command).record(took);
}

pub(super) fn failed(command: &'static str, class: &'static str) {
    counter!(ERRORS, "command" => command, "class" => class).increment(1);
}

pub(super) fn retried(command: &'static str) {
    counter!(RETRIES, "command" => command).increment(1);
}

pub(super) fn hints_dropped(count: u64) {
    counter!(HINTS_DROPPED).increment(count);
}
