//! The settings of Payment; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::{
    client::ClientConfig,
    config::{Problem, Secret, ServiceConfig, optional},
};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::Provider;

/// What Stripe takes as the lifetime of a page.
const SESSION_LIFETIME_MIN: Duration = Duration::from_secs(30 * 60);
const SESSION_LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct Config {
    pub environment: Environment,
    pub default_provider: ProviderName,
    pub stores: StoresConfig,
    #[serde(rename = "neighbours")]
    pub neighbors: NeighborsConfig,
    pub providers: ProvidersConfig,
    pub web: WebConfig,
    pub payments: PaymentsConfig,
    pub work: WorkConfig,
}

/// Where the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// On a developer's machine, or in tests.
    Development,
    /// Where real money moves.
    Production,
}

/// A provider, as settings name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderName {
    /// Stripe.
    Stripe,
    /// Paystack.
    Paystack,
    /// The local one.
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

/// Whom Payment calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct NeighborsConfig {
    pub claim: ClientConfig,
    pub inventory: ClientConfig,
    pub ticketing: ClientConfig,
}

/// Who takes money for us.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct ProvidersConfig {
    pub sandbox: ProviderConfig,
    pub stripe: ProviderConfig,
    pub http: ProviderHttpConfig,
}

/// One provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct ProviderConfig {
    pub url: String,
    #[serde(deserialize_with = "optional")]
    pub secret_key: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub webhook_secret: Option<Secret>,
}

/// How providers are called.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct ProviderHttpConfig {
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub webhook_tolerance: Duration,
}

/// Where customers come back to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct WebConfig {
    pub url: String,
    pub allowed_origins: Vec<String>,
}

/// The life of payments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct PaymentsConfig {
    #[serde(with = "humantime_serde")]
    pub session_lifetime: Duration,
    #[serde(with = "humantime_serde")]
    pub initializing_max: Duration,
    #[serde(with = "humantime_serde")]
    pub claim_margin: Duration,
    #[serde(with = "humantime_serde")]
    pub watch_every: Duration,
}

/// Background work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml describes each key; twice would differ one day")]
pub struct WorkConfig {
    #[serde(with = "humantime_serde")]
    pub sweep_every: Duration,
    pub concurrency: u32,
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    #[serde(with = "humantime_serde")]
    pub retry_initial: Duration,
    #[serde(with = "humantime_serde")]
    pub retry_max: Duration,
    #[serde(with = "humantime_serde")]
    pub ask_after: Duration,
    #[serde(with = "humantime_serde")]
    pub webhooks_kept: Duration,
}

impl ProviderConfig {
    /// Whether anything is missing that is needed to offer it.
    fn has_secrets(&self) -> bool {
        self.secret_key.is_some() && self.webhook_secret.is_some()
    }
}

impl Config {
    /// The longest that the calls of one step take: looking, closing and looking again is the most asked of a provider.
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
            "must be empty in production: nobody really pays there",
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
            "must be at least three calls to a provider and one to Claim and Ticketing",
        );
        refuse(self.work.retry_initial.is_zero(), "work.retry_initial", "must be above zero");
        let is_origin = |text: &str| text.starts_with("https://") || text.starts_with("http://");
        refuse(!is_origin(&self.web.url), "web.url", "must begin with http:// or https://");
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
