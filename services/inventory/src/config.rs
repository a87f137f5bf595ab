//! The settings of Inventory; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::config::{Problem, ServiceConfig};
use onsale_storage::StoresConfig;
use serde::Deserialize;

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
    /// The free units that Redis proposes.
    pub pool: PoolConfig,
    /// Units set aside.
    pub holds: HoldsConfig,
    /// What is told of what is free.
    pub availability: AvailabilityConfig,
}

/// The section `[pool]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// How long Redis may take to propose units before Postgres is asked instead.
    #[serde(with = "humantime_serde")]
    pub patience: Duration,
    /// How long Redis is left alone after it failed.
    #[serde(with = "humantime_serde")]
    pub away_for: Duration,
    /// How often Redis is compared with Postgres.
    #[serde(with = "humantime_serde")]
    pub reconcile_every: Duration,
}

/// The section `[holds]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldsConfig {
    /// How often holds past their time are looked for.
    #[serde(with = "humantime_serde")]
    pub expire_every: Duration,
    /// Most holds that one transaction releases.
    pub expire_batch_max: u32,
}

/// The section `[availability]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvailabilityConfig {
    /// How often a watched event is looked at, once for all its watchers.
    #[serde(with = "humantime_serde")]
    pub watch_every: Duration,
    /// When a client without a stream is asked to come back.
    #[serde(with = "humantime_serde")]
    pub poll_after: Duration,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let spans = [
            ("pool.patience", self.pool.patience),
            ("pool.reconcile_every", self.pool.reconcile_every),
            ("holds.expire_every", self.holds.expire_every),
            ("availability.watch_every", self.availability.watch_every),
        ];
        let mut problems: Vec<Problem> = spans
            .into_iter()
            .filter(|(_, span)| span.is_zero())
            .map(|(key, _)| Problem::new(key, "must be longer than 0"))
            .collect();
        if self.holds.expire_batch_max == 0 {
            problems.push(Problem::new("holds.expire_batch_max", "must be above 0"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
