//! The settings of Ticketing; `config.default.toml` says what each is for.

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

/// More workers than this only wait for each other's connections.
const WORKERS_MAX: u16 = 64;
/// A larger batch would hold its transaction, and a sector's row, for seconds.
const BATCH_SIZE_MAX: u32 = 50_000;

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
    /// How codes are signed.
    pub codes: CodesConfig,
    /// How tickets are made.
    pub generation: GenerationConfig,
    /// How orders that came too early are served.
    pub issuing: IssuingConfig,
}

/// The section `[codes]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodesConfig {
    /// The key that signs.
    pub signing_key: Secret,
    /// Keys that signed before; empty when there are none.
    pub retired_jwks: Text,
}

/// The section `[generation]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationConfig {
    /// Tickets made in one transaction.
    pub batch_size: NonZeroU32,
    /// Jobs worked on side by side.
    pub workers: NonZeroU16,
    /// How often a worker looks for a job.
    #[serde(with = "humantime_serde")]
    pub poll_every: Duration,
    /// How often a watched job is looked at.
    #[serde(with = "humantime_serde")]
    pub watch_every: Duration,
    /// The pauses between failures, and after how many a job has failed.
    pub retry: BackoffConfig,
}

/// The section `[issuing]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuingConfig {
    /// How often orders that wait are looked at.
    #[serde(with = "humantime_serde")]
    pub poll_every: Duration,
    /// How many in one round.
    pub round_max: NonZeroU16,
    /// The longest pause between two looks at one order.
    #[serde(with = "humantime_serde")]
    pub pause_max: Duration,
}

impl CodesConfig {
    /// The keys in them.
    pub fn codes(&self) -> Result<Codes, Problem> {
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
        let spans = [
            ("generation.poll_every", self.generation.poll_every),
            ("generation.watch_every", self.generation.watch_every),
            ("issuing.poll_every", self.issuing.poll_every),
            ("issuing.pause_max", self.issuing.pause_max),
        ];
        for (key, _) in spans.iter().filter(|(_, span)| span.is_zero()) {
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
