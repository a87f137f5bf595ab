//! Settings of Ticketing. `config.default.toml` describes each key.

use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use onsale_kit::{
    auth::{KeyError, KeySet, SigningKey},
    backoff::BackoffConfig,
    config::{Problem, Secret, ServiceConfig, Text},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::code::Codes;

/// More generators would wait for each other's connections to Postgres.
const WORKERS_MAX: u16 = 64;
/// A larger batch would hold its transaction and its sector's lock for seconds.
const BATCH_SIZE_MAX: u32 = 50_000;

/// Settings besides those of the chassis.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) stores: StoresConfig,
    pub(crate) codes: CodesConfig,
    pub(crate) generation: GenerationConfig,
    pub(crate) issuing: IssuingConfig,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodesConfig {
    pub(crate) signing_key: Secret,
    pub(crate) retired_jwks: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerationConfig {
    pub(crate) batch_size: NonZeroU32,
    pub(crate) workers: NonZeroU16,
    #[serde(with = "humantime_serde")]
    pub(crate) poll_every: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) watch_every: Duration,
    pub(crate) retry: BackoffConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IssuingConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) poll_every: Duration,
    pub(crate) round_max: NonZeroU16,
    #[serde(with = "humantime_serde")]
    pub(crate) pause_max: Duration,
}

impl CodesConfig {
    /// Parses the keys.
    pub(crate) fn codes(&self) -> Result<Codes, Problem> {
        let key = SigningKey::parse(self.signing_key.expose()).map_err(problem("codes.signing_key"))?;
        let retired = match self.retired_jwks.as_str() {
            "" => None,
            jwks => Some(KeySet::parse(jwks).map_err(problem("codes.retired_jwks"))?),
        };
        Codes::new(key, retired).map_err(problem("codes.signing_key"))
    }
}

fn problem(key: &'static str) -> impl Fn(KeyError) -> Problem {
    move |error| Problem::new(key, error.to_string())
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems: Vec<_> = self.codes.codes().err().into_iter().collect();
        let durations = [
            ("generation.poll_every", self.generation.poll_every),
            ("generation.watch_every", self.generation.watch_every),
            ("issuing.poll_every", self.issuing.poll_every),
            ("issuing.pause_max", self.issuing.pause_max),
        ];
        for (key, _) in durations.iter().filter(|(_, duration)| duration.is_zero()) {
            problems.push(Problem::new(*key, "must not be 0"));
        }
        if self.generation.workers.get() > WORKERS_MAX {
            problems.push(Problem::new("generation.workers", format!("must be at most {WORKERS_MAX}")));
        }
        if self.generation.batch_size.get() > BATCH_SIZE_MAX {
            problems.push(Problem::new("generation.batch_size", format!("must be at most {BATCH_SIZE_MAX}")));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
