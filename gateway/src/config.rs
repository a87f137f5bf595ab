//! The settings of the gateway; `config.default.toml` says what each is for.

use std::{net::SocketAddr, time::Duration};

use http::HeaderValue;
use onsale_kit::{
    auth::{MESH, SigningKey},
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig, optional},
};
use serde::Deserialize;

/// Payment reads no longer webhook.
const WEBHOOK_BYTES_MAX: usize = 1024 * 1024;

/// More would be no bound.
const IN_FLIGHT_MAX: usize = 1_000_000;

/// All settings but the chassis' own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What this process is part of.
    pub environment: Environment,
    /// Plain HTTP.
    pub http: HttpConfig,
    /// Where the services are.
    #[serde(rename = "neighbours")]
    pub neighbors: NeighborsConfig,
    /// What only development may have.
    pub development: DevelopmentConfig,
}

/// Real or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// Real customers, real money.
    Production,
    /// Everything else.
    Development,
}

/// The HTTP port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct HttpConfig {
    pub listen: SocketAddr,
    pub connections_max: usize,
    #[serde(with = "humantime_serde")]
    pub header_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub request_timeout: Duration,
    pub requests_in_flight_max: usize,
    pub cors_origins: Vec<String>,
    pub webhook_bytes_max: usize,
}

/// Where the services are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each is named after the service it reaches")]
pub struct NeighborsConfig {
    pub queue: ClientConfig,
    pub inventory: ClientConfig,
    pub claim: ClientConfig,
    pub payment: ClientConfig,
    pub ticketing: ClientConfig,
    pub notification: ClientConfig,
}

/// The issuer for development.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct DevelopmentConfig {
    pub sign_in: bool,
    pub issuer: String,
    pub audience: String,
    #[serde(deserialize_with = "optional")]
    pub signing_key: Option<Secret>,
    #[serde(with = "humantime_serde")]
    pub token_lifetime: Duration,
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
        let is_count = (1..=IN_FLIGHT_MAX).contains(&self.requests_in_flight_max);
        refuse(!is_count, "requests_in_flight_max", "must be from 1 to 1000000");
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
            "lets anybody sign in as anybody and is refused while environment is \"production\": switch it off, or set \
             environment to \"development\"",
        );
        refuse(
            self.issuer.is_empty() || self.issuer == MESH,
            "issuer",
            "must not be empty or the mesh's own",
        );
        refuse(
            self.audience.is_empty() || self.audience == MESH,
            "audience",
            "must not be empty or the mesh's own",
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
