//! Settings of Claim. `config.default.toml` documents each of them.

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

/// Limit of `release_after` in Inventory's contract.
const RELEASE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of the service, apart from those of the chassis.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) stores: StoresConfig,
    #[serde(rename = "neighbours")]
    pub(crate) neighbors: NeighborsConfig,
    pub(crate) turns: TurnsConfig,
    pub(crate) create: CreateConfig,
    pub(crate) claims: ClaimsConfig,
    pub(crate) cooldown: CooldownConfig,
    pub(crate) holds: HoldsConfig,
    pub(crate) consumers: ConsumersConfig,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborsConfig {
    pub(crate) queue: ClientConfig,
    pub(crate) inventory: ClientConfig,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnsConfig {
    /// JSON Web Key Set with the public keys of Queue.
    jwks: Text,
}

impl TurnsConfig {
    /// Parses the keys that verify turn tokens.
    pub(crate) fn keys(&self) -> Result<KeySet, KeyError> {
        KeySet::parse(self.jwks.as_str())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateConfig {
    queue_max: usize,
    batch_max: usize,
    concurrency: usize,
}

impl CreateConfig {
    /// Returns the bounds of each of the two batched steps.
    pub(crate) fn batcher(&self) -> BatcherConfig {
        BatcherConfig {
            queue_max: self.queue_max,
            batch_max: self.batch_max,
            concurrency: self.concurrency,
            ..BatcherConfig::default()
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CooldownConfig {
    claims: u32,
    #[serde(with = "humantime_serde")]
    within: Duration,
    #[serde(with = "humantime_serde")]
    lasts: Duration,
}

impl CooldownConfig {
    pub(crate) fn rule(&self) -> CooldownRule {
        CooldownRule { claims: self.claims, max_gap: self.within, duration: self.lasts }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimsConfig {
    /// Longest time for which a claim may stay unpaid without an extension.
    #[serde(with = "humantime_serde")]
    pub(crate) window: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) extension: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) expire_every: Duration,
    pub(crate) expire_batch_max: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldsConfig {
    #[serde(with = "humantime_serde")]
    keep_longer: Duration,
    /// Age at which an attempt without a claim is abandoned (default 15 s). Must exceed one `ReserveUnits` call plus the claim's
    /// insert.
    #[serde(with = "humantime_serde")]
    pub(crate) abandon_after: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) release_every: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) retry_after: Duration,
    pub(crate) batch_max: u32,
    pub(crate) concurrency: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsumersConfig {
    /// Events of one topic that are handled at the same time.
    pub(crate) concurrency: usize,
}

impl Config {
    /// Returns the age at which Inventory releases a hold by itself: the longest life of a claim plus `holds.keep_longer`.
    pub(crate) fn release_after(&self) -> Duration {
        let claim_age_max = self.claims.window.saturating_add(self.claims.extension);
        claim_age_max.saturating_add(self.holds.keep_longer)
    }
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
        if self.release_after() > RELEASE_AFTER_MAX {
            let message = "claims.window, claims.extension and this together must be at most 24h";
            problems.push(Problem::new("holds.keep_longer", message));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
