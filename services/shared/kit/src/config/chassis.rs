//! Settings that all services share. The kit's `config.default.toml` documents each key and its default.

use std::{net::SocketAddr, time::Duration};

use serde::Deserialize;

use super::{Problem, optional};
use crate::auth::AuthConfig;

/// The sections that the kit reads itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChassisConfig {
    /// Ports, limits, deadlines and drain.
    pub server: ServerConfig,
    /// Logs and traces.
    pub telemetry: TelemetryConfig,
    /// Token issuers and keys.
    pub auth: AuthConfig,
}

/// Section `server`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "the kit's config.default.toml describes each key; twice would differ one day"
)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub connections_max: usize,
    pub streams_per_connection_max: u32,
    pub requests_in_flight_max: usize,
    pub streams_max: usize,
    pub request_bytes_max: usize,
    pub header_bytes_max: u32,
    #[serde(with = "humantime_serde")]
    pub keepalive_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub keepalive_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub connection_age_max: Duration,
    #[serde(with = "humantime_serde")]
    pub connection_age_grace: Duration,
    #[serde(with = "humantime_serde")]
    pub deadline_default: Duration,
    #[serde(with = "humantime_serde")]
    pub deadline_max: Duration,
    pub join_callers_trace: bool,
    pub drain: DrainConfig,
}

/// Section `server.drain`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "the kit's config.default.toml describes each key; twice would differ one day"
)]
pub struct DrainConfig {
    #[serde(with = "humantime_serde")]
    pub lame_duck: Duration,
    #[serde(with = "humantime_serde")]
    pub total: Duration,
    #[serde(with = "humantime_serde")]
    pub retry_after_max: Duration,
}

/// Section `telemetry`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "the kit's config.default.toml describes each key; twice would differ one day"
)]
pub struct TelemetryConfig {
    pub log_format: LogFormat,
    pub log_filter: String,
    #[serde(deserialize_with = "optional")]
    pub otlp_endpoint: Option<String>,
    pub trace_sample_ratio: f64,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text lines for a terminal.
    Human,
    /// One JSON object per line.
    Json,
}

impl ChassisConfig {
    /// Checks ranges and rules that the types cannot express.
    pub(super) fn validate(&self) -> Vec<Problem> {
        let server = &self.server;
        let mut problems = self.auth.validate();
        let mut refuse = |bad: bool, key: &str, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        refuse(server.connections_max == 0, "server.connections_max", "must be at least 1");
        refuse(
            server.streams_per_connection_max == 0,
            "server.streams_per_connection_max",
            "must be at least 1",
        );
        refuse(server.requests_in_flight_max == 0, "server.requests_in_flight_max", "must be at least 1");
        refuse(server.streams_max == 0, "server.streams_max", "must be at least 1");
        refuse(server.request_bytes_max == 0, "server.request_bytes_max", "must be at least 1");
        refuse(server.keepalive_interval.is_zero(), "server.keepalive_interval", "must be above zero");
        refuse(server.connection_age_max.is_zero(), "server.connection_age_max", "must be above zero");
        refuse(server.deadline_default.is_zero(), "server.deadline_default", "must be above zero");
        refuse(
            server.deadline_default > server.deadline_max,
            "server.deadline_default",
            "must not be above server.deadline_max",
        );
        refuse(
            server.drain.lame_duck >= server.drain.total,
            "server.drain.lame_duck",
            "must be below server.drain.total",
        );
        refuse(
            !(0.0..=1.0).contains(&self.telemetry.trace_sample_ratio),
            "telemetry.trace_sample_ratio",
            "must be from 0.0 to 1.0",
        );
        if let Err(error) = self.telemetry.log_filter.parse::<tracing_subscriber::EnvFilter>() {
            refuse(true, "telemetry.log_filter", &error.to_string());
        }
        problems
    }
}
