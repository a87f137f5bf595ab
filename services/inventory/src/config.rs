//! Settings of Inventory. `config.default.toml` describes each of them.

use std::time::Duration;

use onsale_kit::{
    auth::SigningKey,
    batcher::BatcherConfig,
    config::{Problem, Secret, ServiceConfig},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

/// Settings of Inventory and its stores; the chassis reads its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) stores: StoresConfig,
    pub(crate) pool: PoolConfig,
    pub(crate) holds: HoldsConfig,
    pub(crate) availability: AvailabilityConfig,
    pub(crate) quotas: QuotasConfig,
    pub(crate) invitations: InvitationsConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolConfig {
    /// Timeout of one pool command.
    #[serde(with = "humantime_serde")]
    pub(crate) patience: Duration,
    /// Time for which the breaker refuses commands after a failure; 0: not at all.
    #[serde(with = "humantime_serde")]
    pub(crate) away_for: Duration,
    /// Interval of the comparison with Postgres.
    #[serde(with = "humantime_serde")]
    pub(crate) reconcile_every: Duration,
    /// Wait before units that are in neither store count as lost.
    #[serde(with = "humantime_serde")]
    pub(crate) on_the_way_max: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldsConfig {
    /// Interval of the expiry job.
    #[serde(with = "humantime_serde")]
    pub(crate) expire_every: Duration,
    /// Most holds that one transaction releases.
    pub(crate) expire_batch_max: u32,
    /// Sizes of the batches of reservations, and of those of commits and releases.
    pub(crate) batches: BatchesConfig,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchesConfig {
    /// Calls that wait for a batch; one more is refused.
    pub(crate) queue_max: usize,
    /// Most calls in one batch.
    pub(crate) batch_max: usize,
    /// Batches that run concurrently.
    pub(crate) concurrency: usize,
}

impl BatchesConfig {
    #[must_use]
    pub(crate) fn batcher(&self) -> BatcherConfig {
        let Self { queue_max, batch_max, concurrency } = *self;
        BatcherConfig { queue_max, batch_max, concurrency, ..BatcherConfig::default() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AvailabilityConfig {
    /// Interval of the reads of a watched event, shared by all its watchers.
    #[serde(with = "humantime_serde")]
    pub(crate) watch_every: Duration,
    /// Poll interval that clients without a stream are asked to keep.
    #[serde(with = "humantime_serde")]
    pub(crate) poll_after: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotasConfig {
    /// Interval of the return job.
    #[serde(with = "humantime_serde")]
    pub(crate) return_every: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvitationsConfig {
    /// Ed25519 private key of invitation tokens.
    pub(crate) signing_key: Secret,
    /// URL of the page on which an invitation is accepted, without a fragment: the token is appended as one.
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
