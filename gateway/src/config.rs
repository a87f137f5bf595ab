//! Settings of the gateway; `config.default.toml` describes each key.

use std::{net::SocketAddr, time::Duration};

use http::HeaderValue;
use onsale_kit::{
    auth::{MESH, SigningKey},
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig, optional},
};
use serde::Deserialize;

/// Largest webhook that Payment accepts.
const WEBHOOK_BYTES_MAX: usize = 1024 * 1024;

/// Upper bound of `http.requests_in_flight_max`.
const REQUESTS_IN_FLIGHT_MAX: usize = 1_000_000;

/// All settings except those of the chassis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) environment: Environment,
    pub(crate) http: HttpConfig,
    #[serde(rename = "neighbours")]
    pub(crate) neighbors: NeighborsConfig,
    pub(crate) development: DevelopmentConfig,
}

/// Kind of deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Environment {
    /// Refuses settings that are only for development.
    Production,
    Development,
}

/// Settings of the HTTP port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) connections_max: usize,
    #[serde(with = "humantime_serde")]
    pub(crate) header_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) request_timeout: Duration,
    pub(crate) requests_in_flight_max: usize,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) webhook_bytes_max: usize,
}

/// Addresses and deadlines of the services.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborsConfig {
    pub(crate) queue: ClientConfig,
    pub(crate) inventory: ClientConfig,
    pub(crate) claim: ClientConfig,
    pub(crate) payment: ClientConfig,
    pub(crate) ticketing: ClientConfig,
    pub(crate) notification: ClientConfig,
}

/// Settings of the development sign-in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DevelopmentConfig {
    pub(crate) sign_in: bool,
    pub(crate) issuer: String,
    pub(crate) audience: String,
    #[serde(deserialize_with = "optional")]
    pub(crate) signing_key: Option<Secret>,
    #[serde(with = "humantime_serde")]
    pub(crate) token_lifetime: Duration,
}

impl ServiceConfig for Config {
    fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = self.http.validate();
        if self.development.sign_in {
            problems.extend(self.development.validate(self.environment));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl HttpConfig {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |bad: bool, key: &str, message: &str| {
            if bad {
                problems.push(Problem::new(format!("http.{key}"), message));
            }
        };
        refuse(self.connections_max == 0, "connections_max", "must be at least 1");
        refuse(self.header_timeout.is_zero(), "header_timeout", "must be above zero");
        refuse(self.request_timeout.is_zero(), "request_timeout", "must be above zero");
        let is_in_range = (1..=REQUESTS_IN_FLIGHT_MAX).contains(&self.requests_in_flight_max);
        refuse(!is_in_range, "requests_in_flight_max", "must be from 1 to 1000000");
        let is_origin = |origin: &String| !origin.is_empty() && HeaderValue::from_str(origin).is_ok();
        refuse(!self.cors_origins.iter().all(is_origin), "cors_origins", "must be origins, or \"*\"");
        let is_bounded = (1..=WEBHOOK_BYTES_MAX).contains(&self.webhook_bytes_max);
        refuse(!is_bounded, "webhook_bytes_max", "must be from 1 to 1048576");
        problems
    }
}

impl DevelopmentConfig {
    fn validate(&self, environment: Environment) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |bad: bool, key: &str, message: &str| {
            if bad {
                problems.push(Problem::new(format!("development.{key}"), message));
            }
        };
        refuse(
            environment == Environment::Production,
            "sign_in",
            "lets any caller sign in as any user and is refused while environment is \"production\": switch it off, or \
             set environment to \"development\"",
        );
        refuse(
            self.issuer.is_empty() || self.issuer == MESH,
            "issuer",
            "must not be empty or that of the mesh",
        );
        refuse(
            self.audience.is_empty() || self.audience == MESH,
            "audience",
            "must not be empty or that of the mesh",
        );
        let is_usable = |key: &Secret| SigningKey::parse(key.expose()).is_ok();
        refuse(
            !self.signing_key.as_ref().is_some_and(is_usable),
            "signing_key",
            "must be an Ed25519 private key in PKCS#8 (PEM or base64)",
        );
        refuse(self.token_lifetime < Duration::from_secs(1), "token_lifetime", "must be at least 1s");
        problems
    }
}
