//! The settings of Inventory; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::{
    auth::SigningKey,
    batcher::BatcherConfig,
    config::{Problem, Secret, ServiceConfig},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub(crate) stores: StoresConfig,
    /// The free units that Redis proposes.
    pub(crate) pool: PoolConfig,
    /// Units set aside.
    pub(crate) holds: HoldsConfig,
    /// What is told of what is free.
    pub(crate) availability: AvailabilityConfig,
    /// Units kept for groups.
    pub(crate) quotas: QuotasConfig,
    /// Invitations to them.
    pub(crate) invitations: InvitationsConfig,
}

/// The section `[pool]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolConfig {
    /// How long Redis may take to propose units before Postgres is asked instead.
    #[serde(with = "humantime_serde")]
    pub(crate) patience: Duration,
    /// How long Redis is left alone after it failed.
    #[serde(with = "humantime_serde")]
    pub(crate) away_for: Duration,
    /// How often Redis is compared with Postgres.
    #[serde(with = "humantime_serde")]
    pub(crate) reconcile_every: Duration,
    /// How long units may be in neither before the comparison puts them back.
    #[serde(with = "humantime_serde")]
    pub(crate) on_the_way_max: Duration,
}

/// The section `[holds]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldsConfig {
    /// How often holds past their time are looked for.
    #[serde(with = "humantime_serde")]
    pub(crate) expire_every: Duration,
    /// Most holds that one transaction releases.
    pub(crate) expire_batch_max: u32,
    /// How reservations are batched, and so are commits and releases.
    pub(crate) batches: BatchesConfig,
}

/// The section `[holds.batches]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchesConfig {
    /// Calls that wait for a batch; one more is refused.
    pub(crate) queue_max: usize,
    /// Calls in one batch.
    pub(crate) batch_max: usize,
    /// Batches in work at the same time.
    pub(crate) concurrency: usize,
}

impl BatchesConfig {
    /// As the batcher takes it.
    #[must_use]
    pub(crate) fn batcher(&self) -> BatcherConfig {
        let Self { queue_max, batch_max, concurrency } = *self;
        BatcherConfig { queue_max, batch_max, concurrency, ..BatcherConfig::default() }
    }
}

/// The section `[availability]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AvailabilityConfig {
    /// How often a watched event is looked at, once for all its watchers.
    #[serde(with = "humantime_serde")]
    pub(crate) watch_every: Duration,
    /// When a client without a stream is asked to come back.
    #[serde(with = "humantime_serde")]
    pub(crate) poll_after: Duration,
}

/// The section `[quotas]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotasConfig {
    /// How often quotas are looked for whose time has come.
    #[serde(with = "humantime_serde")]
    pub(crate) return_every: Duration,
}

/// The section `[invitations]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvitationsConfig {
    /// Signs invitation tokens.
    pub(crate) signing_key: Secret,
    /// The page on which an invitation is accepted; its token stands in the fragment.
    pub(crate) accept_page: String,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let spans = [
            ("pool.patience", self.pool.patience),
            ("pool.reconcile_every", self.pool.reconcile_every),
            ("pool.on_the_way_max", self.pool.on_the_way_max),
            ("holds.expire_every", self.holds.expire_every),
            ("availability.watch_every", self.availability.watch_every),
            ("quotas.return_every", self.quotas.return_every),
        ];
        let mut problems: Vec<Problem> = spans
            .into_iter()
            .filter(|(_, span)| span.is_zero())
            .map(|(key, _)| Problem::new(key, "must be longer than 0"))
            .collect();
        let batches = self.holds.batches;
        for (key, is_zero) in [
            ("holds.expire_batch_max", self.holds.expire_batch_max == 0),
            ("holds.batches.queue_max", batches.queue_max == 0),
            ("holds.batches.batch_max", batches.batch_max == 0),
            ("holds.batches.concurrency", batches.concurrency == 0),
        ] {
            if is_zero {
                problems.push(Problem::new(key, "must be above 0"));
            }
        }
        if let Err(error) = SigningKey::parse(self.invitations.signing_key.expose()) {
            problems.push(Problem::new("invitations.signing_key", error.to_string()));
        }
        if !is_page(&self.invitations.accept_page) {
            let rule = "must be an http or https URL without a fragment";
            problems.push(Problem::new("invitations.accept_page", rule));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

fn is_page(url: &str) -> bool {
    let is_odd = |it: char| it == '#' || it.is_control() || it.is_whitespace();
    (url.starts_with("https://") || url.starts_with("http://")) && !url.chars().any(is_odd)
}
