//! The settings of Claim; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::{
    auth::{KeyError, KeySet},
    batcher::BatcherConfig,
    client::ClientConfig,
    config::{Problem, ServiceConfig, Text},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::CooldownRule;

/// What the contract allows for `release_after`.
const RELEASE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
    /// Where the neighbors are.
    #[serde(rename = "neighbours")]
    pub neighbors: NeighborsConfig,
    /// Turn tokens.
    pub turns: TurnsConfig,
    /// How claims that come together are made.
    pub create: CreateConfig,
    /// How long claims live.
    pub claims: ClaimsConfig,
    /// Who has to wait before the next claim.
    pub cooldown: CooldownConfig,
    /// How holds are kept tidy.
    pub holds: HoldsConfig,
    /// How events are handled.
    pub consumers: ConsumersConfig,
}

/// Section `neighbours`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborsConfig {
    /// Who knows turns.
    pub queue: ClientConfig,
    /// Who keeps units.
    pub inventory: ClientConfig,
}

/// Section `turns`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnsConfig {
    /// Queue's public keys.
    pub jwks: Text,
}

impl TurnsConfig {
    /// The keys that may sign turn tokens.
    pub fn keys(&self) -> Result<KeySet, KeyError> {
        KeySet::parse(self.jwks.as_str())
    }
}

/// Section `create`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateConfig {
    /// Requests that wait for each of the two steps.
    pub queue_max: usize,
    /// Requests that take a step together.
    pub batch_max: usize,
    /// Such batches at the same time.
    pub concurrency: usize,
}

impl CreateConfig {
    /// The bounds of each step.
    #[must_use]
    pub fn batcher(&self) -> BatcherConfig {
        BatcherConfig {
            queue_max: self.queue_max,
            batch_max: self.batch_max,
            concurrency: self.concurrency,
            ..BatcherConfig::default()
        }
    }
}

/// Section `cooldown`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CooldownConfig {
    /// Claims given up before a customer has to wait.
    pub claims: u32,
    /// How soon after the one before each of them was given up.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
    /// How long the customer has to wait.
    #[serde(with = "humantime_serde")]
    pub lasts: Duration,
}

impl CooldownConfig {
    /// The rule it means.
    #[must_use]
    pub fn rule(&self) -> CooldownRule {
        CooldownRule { claims: self.claims, within: self.within, lasts: self.lasts }
    }
}

/// Section `claims`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimsConfig {
    /// How long a claim may stay unpaid.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// How much longer a payment in progress makes it.
    #[serde(with = "humantime_serde")]
    pub extension: Duration,
    /// How often unpaid claims are looked for.
    #[serde(with = "humantime_serde")]
    pub expire_every: Duration,
    /// How many are given up in one transaction.
    pub expire_batch_max: u32,
}

impl ClaimsConfig {
    /// The longest a claim may stay unpaid.
    #[must_use]
    pub fn lifetime_max(&self) -> Duration {
        self.window.saturating_add(self.extension)
    }
}

/// Section `holds`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldsConfig {
    /// How much longer than a claim's window Inventory keeps a hold.
    #[serde(with = "humantime_serde")]
    pub keep_longer: Duration,
    /// After how long an attempt that became no claim is given up.
    #[serde(with = "humantime_serde")]
    pub abandon_after: Duration,
    /// How often holds to be given back are looked for.
    #[serde(with = "humantime_serde")]
    pub release_every: Duration,
    /// How long a hold that could not be given back waits.
    #[serde(with = "humantime_serde")]
    pub retry_after: Duration,
    /// How many are taken at once.
    pub batch_max: u32,
    /// How many are given back side by side.
    pub concurrency: usize,
}

/// Section `consumers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumersConfig {
    /// Events of one topic handled side by side.
    pub concurrency: usize,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        if let Err(error) = self.turns.keys() {
            problems.push(Problem::new("turns.jwks", error.to_string()));
        }
        let (claims, holds) = (&self.claims, &self.holds);
        for (key, span) in [
            ("claims.window", claims.window),
            ("claims.extension", claims.extension),
            ("cooldown.within", self.cooldown.within),
            ("cooldown.lasts", self.cooldown.lasts),
            ("claims.expire_every", claims.expire_every),
            ("holds.keep_longer", holds.keep_longer),
            ("holds.abandon_after", holds.abandon_after),
            ("holds.release_every", holds.release_every),
            ("holds.retry_after", holds.retry_after),
        ] {
            if span.is_zero() {
                problems.push(Problem::new(key, "must not be 0"));
            }
        }
        for (key, is_zero) in [
            ("claims.expire_batch_max", claims.expire_batch_max == 0),
            ("create.queue_max", self.create.queue_max == 0),
            ("create.batch_max", self.create.batch_max == 0),
            ("create.concurrency", self.create.concurrency == 0),
            ("holds.batch_max", holds.batch_max == 0),
            ("holds.concurrency", holds.concurrency == 0),
            ("consumers.concurrency", self.consumers.concurrency == 0),
        ] {
            if is_zero {
                problems.push(Problem::new(key, "must be at least 1"));
            }
        }
        if claims.lifetime_max().saturating_add(holds.keep_longer) > RELEASE_AFTER_MAX {
            let message = "claims.window, claims.extension and this together must be at most 24h";
            problems.push(Problem::new("holds.keep_longer", message));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
