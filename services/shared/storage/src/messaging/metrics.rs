//! Metrics of the relay, the consumers and the dead letters. The values of the labels `topic` and `group` come from the
//! contract, so they are few.

const PUBLISHED: &str = "messaging_published_position";
const RELAY_FAILURES: &str = "messaging_relay_failures_total";
const LAG: &str = "messaging_lag_events";
const STREAM_LENGTH: &str = "messaging_stream_length_entries";
const HANDLED: &str = "messaging_handled_total";
const RETRIES: &str = "messaging_handler_retries_total";
const DEAD: &str = "messaging_dead_letters_total";

pub(super) fn describe() {
    metrics::describe_gauge!(PUBLISHED, "last position in the stream of a topic");
    metrics::describe_counter!(RELAY_FAILURES, "failed rounds of the outbox relay");
    metrics::describe_gauge!(LAG, "events of a topic that a group has not acknowledged");
    metrics::describe_gauge!(STREAM_LENGTH, "entries in a topic's stream");
    metrics::describe_counter!(HANDLED, "events by outcome: applied, repeated (handled before), dead");
    metrics::describe_counter!(RETRIES, "retries of events after a failed handler");
    metrics::describe_counter!(DEAD, "events moved to the dead letters");
}

pub(super) fn published(topic: &str, position: i64) {
    metrics::gauge!(PUBLISHED, "topic" => topic.to_owned()).set(gauge_value(position));
}

pub(super) fn relay_failed() {
    metrics::counter!(RELAY_FAILURES).increment(1);
}

pub(super) fn lag(topic: &str, group: &str, events: i64) {
    metrics::gauge!(LAG, "topic" => topic.to_owned(), "group" => group.to_owned()).set(gauge_value(events));
}

pub(super) fn stream_length(topic: &str, entries: u64) {
    let entries = i64::try_from(entries).unwrap_or(i64::MAX);
    metrics::gauge!(STREAM_LENGTH, "topic" => topic.to_owned()).set(gauge_value(entries));
}

pub(super) fn handled(topic: &str, group: &str, outcome: &'static str) {
    let labels = [("topic", topic.to_owned()), ("group", group.to_owned()), ("outcome", outcome.to_owned())];
    metrics::counter!(HANDLED, &labels).increment(1);
}

pub(super) fn retried(topic: &str, group: &str) {
    metrics::counter!(RETRIES, "topic" => topic.to_owned(), "group" => group.to_owned()).increment(1);
}

pub(super) fn record_dead_letter(topic: &str, group: &str) {
    metrics::counter!(DEAD, "topic" => topic.to_owned(), "group" => group.to_owned()).increment(1);
}

#[expect(
    clippy::as_conversions,
    reason = "a gauge is a float, and a rounded position is good enough to look at"
)]
fn gauge_value(count: i64) -> f64 {
    count as f64
}
