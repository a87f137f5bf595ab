//! Settings of Payment. `config.default.toml` describes each key.

use std::time::Duration;

use onsale_kit::{
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig, optional},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::Provider;

/// Stripe's bounds for the lifetime of a session.
const SESSION_LIFETIME_MIN: Duration = Duration::from_secs(30 * 60);
const SESSION_LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings besides those of the chassis.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) environment: Environment,
    pub(crate) default_provider: ProviderName,
    pub(crate) stores: StoresConfig,
    #[serde(rename = "neighbours")]
    pub(crate) neighbors: NeighborsConfig,
    pub(crate) providers: ProvidersConfig,
    pub(crate) web: WebConfig,
    pub(crate) payments: PaymentsConfig,
    pub(crate) work: WorkConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Environment {
    Development,
    /// Real money moves; the sandbox provider is refused.
    Production,
}

/// A provider as the settings spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProviderName {
    Stripe,
    Paystack,
    Sandbox,
}

impl From<ProviderName> for Provider {
    fn from(name: ProviderName) -> Self {
        match name {
            ProviderName::Stripe => Self::Stripe,
            ProviderName::Paystack => Self::Paystack,
            ProviderName::Sandbox => Self::Sandbox,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborsConfig {
    pub(crate) claim: ClientConfig,
    pub(crate) inventory: ClientConfig,
    pub(crate) ticketing: ClientConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProvidersConfig {
    pub(crate) sandbox: ProviderConfig,
    pub(crate) stripe: ProviderConfig,
    pub(crate) http: ProviderHttpConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    pub(crate) url: String,
    #[serde(deserialize_with = "optional")]
    pub(crate) secret_key: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(crate) webhook_secret: Option<Secret>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderHttpConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) connect_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) webhook_tolerance: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebConfig {
    pub(crate) url: String,
    pub(crate) allowed_origins: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentsConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) session_lifetime: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) initializing_max: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) claim_margin: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) watch_every: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkConfig {
    #[serde(with = "humantime_serde")]
    pub(crate) sweep_every: Duration,
    pub(crate) concurrency: u32,
    #[serde(with = "humantime_serde")]
    pub(crate) lease: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) retry_initial: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) retry_max: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) ask_after: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) webhooks_kept: Duration,
}

impl ProviderConfig {
    fn has_secrets(&self) -> bool {
        self.secret_key.is_some() && self.webhook_secret.is_some()
    }
}

impl Config {
    /// Longest duration of one step's calls. A provider gets at most three: poll, expire and poll again.
    fn step_time_max(&self) -> Duration {
        let neighbors = self.neighbors.claim.deadline.saturating_add(self.neighbors.ticketing.deadline);
        self.providers.http.timeout.saturating_mul(3).saturating_add(neighbors)
    }
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
        let (sandbox, stripe) = (&self.providers.sandbox, &self.providers.stripe);
        let is_production = self.environment == Environment::Production;
        refuse(
            is_production && !sandbox.url.is_empty(),
            "providers.sandbox.url",
            "must be empty in production: the sandbox moves no real money",
        );
        refuse(
            !sandbox.url.is_empty() && !sandbox.has_secrets(),
            "providers.sandbox",
            "needs secret_key and webhook_secret, or an empty url",
        );
        refuse(
            stripe.secret_key.is_some() != stripe.webhook_secret.is_some() || stripe.url.is_empty(),
            "providers.stripe",
            "needs url, secret_key and webhook_secret, or none of the secrets",
        );
        let payments = &self.payments;
        let lifetime_min = SESSION_LIFETIME_MIN.saturating_add(payments.initializing_max);
        refuse(
            !(lifetime_min..=SESSION_LIFETIME_MAX).contains(&payments.session_lifetime),
            "payments.session_lifetime",
            "must be at least 30m above initializing_max, and at most 24h",
        );
        refuse(payments.watch_every.is_zero(), "payments.watch_every", "must be above zero");
        refuse(self.work.sweep_every.is_zero(), "work.sweep_every", "must be above zero");
        refuse(self.work.concurrency == 0, "work.concurrency", "must be at least 1");
        refuse(
            self.work.lease < self.step_time_max(),
            "work.lease",
            "must be at least providers.http.timeout x 3 plus the deadlines of claim and ticketing",
        );
        refuse(self.work.retry_initial.is_zero(), "work.retry_initial", "must be above zero");
        let is_origin = |text: &str| text.starts_with("https://") || text.starts_with("http://");
        refuse(!is_origin(&self.web.url), "web.url", "must begin with http:// or https://");
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
