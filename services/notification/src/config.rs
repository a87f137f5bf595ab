//! Settings of Notification. `config.default.toml` describes each key.

use std::time::Duration;

use lettre::{AsyncSmtpTransport, Tokio1Executor, message::Mailbox};
use onsale_kit::config::{Problem, Secret, ServiceConfig};
use onsale_storage::StoresConfig;
use serde::Deserialize;

use crate::domain::language::Language;

const CONCURRENCY_MAX: usize = 256;
const PAUSES_MAX: usize = 10;

/// Settings besides those of the chassis.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) stores: StoresConfig,
    pub(crate) mail: MailConfig,
    pub(crate) web: WebConfig,
    pub(crate) delivery: DeliveryConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailConfig {
    /// Secret, because it may contain a password.
    pub(crate) smtp_url: Secret,
    pub(crate) from: String,
    /// Empty: replies go to the sender.
    pub(crate) reply_to: String,
    #[serde(with = "humantime_serde")]
    pub(crate) command_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub(crate) send_timeout: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebConfig {
    /// Empty: mails contain no link to the shop.
    pub(crate) url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryConfig {
    pub(crate) locale_default: Language,
    /// Maximum number of mails that one process sends at the same time.
    pub(crate) concurrency: usize,
    #[serde(with = "humantime_serde")]
    pub(crate) poll_every: Duration,
    /// One less than the number of attempts.
    pub(crate) pauses: Vec<Pause>,
    #[serde(with = "humantime_serde")]
    pub(crate) lease: Duration,
}

impl DeliveryConfig {
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.pauses.iter().map(|pause| pause.0).collect()
    }
}

/// Duration in a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pause(#[serde(with = "humantime_serde")] Duration);

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
        refuse("mail.smtp_url", !is_smtp_url(mail.smtp_url.expose()), "must be smtp://… or smtps://…");
        refuse("mail.from", !is_mailbox(&mail.from), "must be an address, e.g. Shop <tickets@example.com>");
        let has_reply_to = !mail.reply_to.is_empty();
        refuse("mail.reply_to", has_reply_to && !is_mailbox(&mail.reply_to), "must be an address or empty");
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

fn is_smtp_url(text: &str) -> bool {
    AsyncSmtpTransport::<Tokio1Executor>::from_url(text).is_ok()
}

/// Returns true if `text` is an address, with or without a display name.
fn is_mailbox(text: &str) -> bool {
    text.parse::<Mailbox>().is_ok()
}
