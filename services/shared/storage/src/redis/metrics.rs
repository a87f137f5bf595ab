//! The metrics of the Redis door. Labels are names from our own code, so they are bounded.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

const DURATION: &str = "redis_command_duration_seconds";
const ERRORS: &str = "redis_command_errors_total";
const RETRIES: &str = "redis_command_retries_total";
const HINTS_DROPPED: &str = "redis_hints_dropped_total";

pub(super) fn describe() {
    describe_histogram!(DURATION, Unit::Seconds, "Time of a call to Redis with all its attempts");
    describe_counter!(ERRORS, Unit::Count, "Calls to Redis that failed, by what the failure says");
    describe_counter!(RETRIES, Unit::Count, "Attempts after the first of a call to Redis");
    describe_counter!(HINTS_DROPPED, Unit::Count, "Hints that a slow subscriber did not take in time");
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
