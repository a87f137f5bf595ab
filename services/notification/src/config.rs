//! The settings of Notification; `config.default.toml` says what each is for.

use std::time::Duration;

use onsale_kit::config::{Problem, Secret, ServiceConfig};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::{clients::smtp, domain::language::Language};

const CONCURRENCY_MAX: usize = 256;
const PAUSES_MAX: usize = 10;

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
    /// How mail goes out.
    pub mail: MailConfig,
    /// Where customers look at what they bought.
    pub web: WebConfig,
    /// How deliveries are worked off.
    pub delivery: DeliveryConfig,
}

/// The section `[mail]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailConfig {
    /// The mail server; secret for the password in it.
    pub smtp_url: Secret,
    /// The sender of every mail.
    pub from: String,
    /// Where answers go; empty: to the sender.
    pub reply_to: String,
    /// How long the server may take for one answer.
    #[serde(with = "humantime_serde")]
    pub command_timeout: Duration,
    /// How long one mail may take altogether.
    #[serde(with = "humantime_serde")]
    pub send_timeout: Duration,
}

/// The section `[web]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebConfig {
    /// The shop's address; empty: mails have no link to it.
    pub url: String,
}

/// The section `[delivery]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryConfig {
    /// The language of those who have not said theirs.
    pub locale_default: Language,
    /// How many mails one process sends at once.
    pub concurrency: usize,
    /// How often due deliveries are looked for.
    #[serde(with = "humantime_serde")]
    pub poll_every: Duration,
    /// The waits between attempts; with their number how many attempts there are.
    pub pauses: Vec<Pause>,
    /// How long a delivery belongs to the worker that sends it.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
}

impl DeliveryConfig {
    /// The waits between attempts.
    #[must_use]
    pub fn pauses(&self) -> Vec<Duration> {
        self.pauses.iter().map(|pause| pause.0).collect()
    }
}

/// A span in a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub struct Pause(#[serde(with = "humantime_serde")] Duration);

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];

    fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, is_bad: bool, message: &str| {
            if is_bad {
                problems.push(Problem::new(key, message));
            }
        };
        let Self { mail, web, delivery, .. } = self;
        refuse("mail.smtp_url", !smtp::is_url(mail.smtp_url.expose()), "must be smtp://… or smtps://…");
        refuse(
            "mail.from",
            !smtp::is_mailbox(&mail.from),
            "must be an address, e.g. Shop <tickets@example.com>",
        );
        let has_reply_to = !mail.reply_to.is_empty();
        refuse(
            "mail.reply_to",
            has_reply_to && !smtp::is_mailbox(&mail.reply_to),
            "must be an address or empty",
        );
        refuse("mail.command_timeout", mail.command_timeout.is_zero(), "must not be 0");
        refuse(
            "mail.send_timeout",
            mail.send_timeout < mail.command_timeout,
            "must not be below command_timeout",
        );
        let is_web = web.url.is_empty() || web.url.starts_with("https://") || web.url.starts_with("http://");
        refuse("web.url", !is_web, "must be http://… or https://… or empty");
        let is_concurrent = (1..=CONCURRENCY_MAX).contains(&delivery.concurrency);
        refuse("delivery.concurrency", !is_concurrent, "must be 1 to 256");
        refuse("delivery.poll_every", delivery.poll_every < Duration::from_millis(1), "must be at least 1ms");
        refuse("delivery.pauses", delivery.pauses.len() > PAUSES_MAX, "must be at most 10");
        let lease_min = mail.send_timeout.saturating_mul(2);
        refuse("delivery.lease", delivery.lease < lease_min, "must be at least twice mail.send_timeout");
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
