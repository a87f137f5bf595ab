//! Settings of Queue. `config.default.toml` documents every key.

use std::time::Duration;

use onsale_kit::{
    auth::SigningKey,
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::{
    milestone::Milestones,
    policy::{Policy, QueueMode},
};

/// Settings of Queue besides those of the chassis.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) stores: StoresConfig,
    #[serde(rename = "neighbours")]
    pub(crate) neighbors: NeighborsConfig,
    pub(crate) turns: TurnsConfig,
    pub(crate) web: WebConfig,
    pub(crate) policy: PolicyConfig,
    pub(crate) join: JoinConfig,
    pub(crate) admission: AdmissionConfig,
    pub(crate) sweep: SweepConfig,
    pub(crate) watch: WatchConfig,
    pub(crate) reconcile: ReconcileConfig,
}

/// Section `[neighbours]`: other services.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborsConfig {
    pub(crate) inventory: ClientConfig,
}

/// Section `[turns]`: turns and their tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnsConfig {
    pub(crate) signing_key: Secret,
    #[serde(with = "humantime_serde")]
    pub(crate) queue_token_lifetime: Duration,
}

/// Section `[web]`: the web shop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebConfig {
    pub(crate) url: String,
}

/// Section `[policy]`: default policy of a queue.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyConfig {
    pub(crate) admissions_per_minute: u32,
    pub(crate) open_turns_max: u32,
    #[serde(with = "humantime_serde")]
    pub(crate) turn_duration: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) idle_timeout: Duration,
    pub(crate) waiting_max: u64,
    pub(crate) milestones: Milestones,
    pub(crate) window_size: u32,
    pub(crate) active_windows: u32,
    #[serde(with = "humantime_serde")]
    pub(crate) slide_interval: Duration,
}

impl From<PolicyConfig> for Policy {
    fn from(config: PolicyConfig) -> Self {
        Self {
            mode: QueueMode::default(),
            admissions_per_minute: config.admissions_per_minute,
            open_turns_max: config.open_turns_max,
            turn_duration: config.turn_duration,
            idle_timeout: config.idle_timeout,
            waiting_max: config.waiting_max,
            milestones: config.milestones,
            window_size: config.window_size,
            active_windows: config.active_windows,
            slide_interval: config.slide_interval,
        }
    }
}

/// Section `[join]`: batches of joins.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinConfig {
    pub(crate) lanes: usize,
    pub(crate) queue_max: usize,
    pub(crate) batch_max: usize,
    #[serde(with = "humantime_serde")]
    pub(crate) linger: Duration,
}

/// Section `[admission]`: grants of turns, and milestone pushes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdmissionConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) interval: Duration,
    pub(crate) batch_max: u32,
    #[serde(with = "humantime_serde")]
    pub(crate) milestone_interval: Duration,
}

/// Section `[sweep]`: openings and expiry.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) idle_interval: Duration,
    pub(crate) batch_max: u32,
}

/// Section `[watch]`: messages of streams.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) look_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) position_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) update_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) moved_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) snapshot_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) seen_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) slow_after: Duration,
}

/// Section `[reconcile]`: reconciliation of Redis with Postgres.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconcileConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) interval: Duration,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut refuse = |bad: bool, key: &str, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        for (key, span) in [
            ("policy.turn_duration", self.policy.turn_duration),
            ("policy.idle_timeout", self.policy.idle_timeout),
            ("policy.slide_interval", self.policy.slide_interval),
            ("admission.interval", self.admission.interval),
            ("admission.milestone_interval", self.admission.milestone_interval),
            ("sweep.interval", self.sweep.interval),
            ("sweep.idle_interval", self.sweep.idle_interval),
            ("watch.look_interval", self.watch.look_interval),
            ("watch.position_interval", self.watch.position_interval),
            ("watch.update_interval", self.watch.update_interval),
            ("watch.moved_interval", self.watch.moved_interval),
            ("watch.snapshot_interval", self.watch.snapshot_interval),
            ("watch.seen_interval", self.watch.seen_interval),
            ("watch.slow_after", self.watch.slow_after),
            ("reconcile.interval", self.reconcile.interval),
        ] {
            refuse(span.is_zero(), key, "must be above zero");
        }
        refuse(self.join.lanes == 0, "join.lanes", "must be at least 1");
        refuse(self.join.batch_max == 0, "join.batch_max", "must be at least 1");
        refuse(self.admission.batch_max == 0, "admission.batch_max", "must be at least 1");
        refuse(self.sweep.batch_max == 0, "sweep.batch_max", "must be at least 1");
        refuse(self.policy.waiting_max == 0, "policy.waiting_max", "must be at least 1");
        refuse(self.policy.window_size == 0, "policy.window_size", "must be at least 1");
        refuse(self.policy.active_windows == 0, "policy.active_windows", "must be at least 1");
        let is_web = self.web.url.is_empty() || self.web.url.starts_with("http");
        refuse(!is_web, "web.url", "must be an http or https URL, or empty");
        if let Err(error) = SigningKey::parse(self.turns.signing_key.expose()) {
            refuse(true, "turns.signing_key", &error.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
