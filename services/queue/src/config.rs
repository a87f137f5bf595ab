//! The settings of Queue; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::{
    auth::SigningKey,
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::{
    milestones::Milestones,
    policy::{Policy, QueueMode},
};

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
    /// Other services.
    #[serde(rename = "neighbours")]
    pub neighbors: NeighborsConfig,
    /// Turns and their tokens.
    pub turns: TurnsConfig,
    /// The web shop.
    pub web: WebConfig,
    /// How a queue admits by default.
    pub policy: PolicyConfig,
    /// How joins are batched.
    pub join: JoinConfig,
    /// How turns are granted.
    pub admission: AdmissionConfig,
    /// What happens with time.
    pub sweep: SweepConfig,
    /// How streams are fed.
    pub watch: WatchConfig,
    /// How Redis is kept true.
    pub reconcile: ReconcileConfig,
}

/// Other services.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborsConfig {
    /// What is free.
    pub inventory: ClientConfig,
}

/// Turns and their tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnsConfig {
    /// Signs turn tokens and queue tokens.
    pub signing_key: Secret,
    /// From the moment of joining.
    #[serde(with = "humantime_serde")]
    pub queue_token_lifetime: Duration,
}

/// The web shop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebConfig {
    /// Empty: none.
    pub url: String,
}

/// How a queue admits by default.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Turns granted per minute.
    pub admissions_per_minute: u32,
    /// Most turns open at a time.
    pub open_turns_max: u32,
    /// Length of a turn.
    #[serde(with = "humantime_serde")]
    pub turn_duration: Duration,
    /// How long somebody may be silent.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// Most entries waiting at a time.
    pub waiting_max: u64,
    /// Positions at which a customer who does not watch is told.
    pub milestones: Milestones,
    /// Sequence numbers per window.
    pub window_size: u32,
    /// How many of the newest windows are active at a time.
    pub active_windows: u32,
    /// How often the window slides.
    #[serde(with = "humantime_serde")]
    pub slide_interval: Duration,
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

/// How joins are batched.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {
    /// Batchers side by side.
    pub lanes: usize,
    /// Joins waiting in a lane.
    pub queue_max: usize,
    /// Joins in one transaction.
    pub batch_max: usize,
    /// How long a batch waits for company.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
}

/// How turns are granted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionConfig {
    /// How often.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// How many in one transaction.
    pub batch_max: u32,
    /// How often it is looked who passed a milestone.
    #[serde(with = "humantime_serde")]
    pub milestone_interval: Duration,
}

/// What happens with time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// Openings and ends of turns.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// Those who were not seen.
    #[serde(with = "humantime_serde")]
    pub idle_interval: Duration,
    /// Entries per transaction.
    pub batch_max: u32,
}

/// How streams are fed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchConfig {
    /// How often a followed queue is looked at.
    #[serde(with = "humantime_serde")]
    pub look_interval: Duration,
    /// How often a watcher hears its position at least.
    #[serde(with = "humantime_serde")]
    pub position_interval: Duration,
    /// How close together changes are told.
    #[serde(with = "humantime_serde")]
    pub update_interval: Duration,
    /// How often a watcher hears that others were admitted, at most.
    #[serde(with = "humantime_serde")]
    pub moved_interval: Duration,
    /// How often a watcher hears the public facts.
    #[serde(with = "humantime_serde")]
    pub snapshot_interval: Duration,
    /// How often an open stream counts as a sign of life.
    #[serde(with = "humantime_serde")]
    pub seen_interval: Duration,
    /// How long a client may not read its stream.
    #[serde(with = "humantime_serde")]
    pub slow_after: Duration,
}

/// How Redis is kept true.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileConfig {
    /// How often it is compared with Postgres.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
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
