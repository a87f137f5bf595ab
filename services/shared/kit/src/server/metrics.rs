//! Metrics of served calls; the call pipeline counts them.
//!
//! A method's handles are created at start, so that a call only adds to them. The counter of each code is created at its
//! first use, so that `/metrics` lists no code that never occurred.

use std::{sync::OnceLock, time::Duration};

use metrics::{Counter, Gauge, Histogram, Unit};
use tonic::Code;

use crate::contract::Method;

const REQUESTS: &str = "rpc_server_requests_total";
const DURATION: &str = "rpc_server_duration_seconds";
const IN_FLIGHT: &str = "rpc_server_requests_in_flight";
const STREAMS: &str = "rpc_server_streams_open";
const CONNECTIONS: &str = "rpc_server_connections_open";
const CONNECTIONS_REFUSED: &str = "rpc_server_connections_refused_total";
const PANICS: &str = "rpc_server_panics_total";

/// gRPC codes are 0 to 16.
const CODES: usize = 17;

/// Describes the metrics of this file. Called once at start.
pub(crate) fn describe() {
    metrics::describe_counter!(REQUESTS, Unit::Count, "Finished calls, by method and gRPC code.");
    metrics::describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Time to the response, or until the caller gave up; for streams, to their start."
    );
    metrics::describe_gauge!(IN_FLIGHT, Unit::Count, "Running unary calls.");
    metrics::describe_gauge!(STREAMS, Unit::Count, "Open server streams.");
    metrics::describe_gauge!(CONNECTIONS, Unit::Count, "Open connections.");
    metrics::describe_counter!(
        CONNECTIONS_REFUSED,
        Unit::Count,
        "Connections refused at server.connections_max."
    );
    metrics::describe_counter!(PANICS, Unit::Count, "Panics in handlers. Each needs a person's attention.");
}

/// The metrics of one method.
#[derive(Debug)]
pub(crate) struct MethodMetrics {
    service: String,
    method: String,
    requests: [OnceLock<Counter>; CODES],
    duration: Histogram,
}

impl MethodMetrics {
    pub(crate) fn new(method: &Method) -> Self {
        let labels = [("service", method.service.clone()), ("method", method.name.clone())];
        Self {
            service: method.service.clone(),
            method: method.name.clone(),
            requests: std::array::from_fn(|_| OnceLock::new()),
            duration: metrics::histogram!(DURATION, &labels),
        }
    }

    /// Records the time until a call's response, or until a stream's start.
    pub(crate) fn record_duration(&self, elapsed: Duration) {
        self.duration.record(elapsed);
    }

    /// Counts a call or stream that ended with `code`.
    pub(crate) fn record_code(&self, code: Code) {
        let slot = usize::try_from(i32::from(code)).ok().and_then(|index| self.requests.get(index));
        if let Some(slot) = slot {
            slot.get_or_init(|| self.counter(code)).increment(1);
        }
    }

    fn counter(&self, code: Code) -> Counter {
        let labels = [
            ("service", self.service.clone()),
            ("method", self.method.clone()),
            ("code", code_name(code).to_owned()),
        ];
        metrics::counter!(REQUESTS, &labels)
    }
}

/// The metrics of the whole server. The gauges are set when `/metrics` is read, so that calls need not update them.
#[derive(Clone, Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) in_flight: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) panics: Counter,
}

impl ServerMetrics {
    pub(crate) fn new() -> Self {
        Self {
            in_flight: metrics::gauge!(IN_FLIGHT),
            streams: metrics::gauge!(STREAMS),
            connections: metrics::gauge!(CONNECTIONS),
            connections_refused: metrics::counter!(CONNECTIONS_REFUSED),
            panics: metrics::counter!(PANICS),
        }
    }
}

/// Counts a panic of a stream, which has no [`ServerMetrics`] at hand.
pub(super) fn count_panic() {
    metrics::counter!(PANICS).increment(1);
}

/// Returns the code's name in the gRPC specification.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
