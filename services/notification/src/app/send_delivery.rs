//! Job "deliver", second half: workers → app → domain::mail → clients::smtp → domain::delivery → store::deliveries.
//!
//! The start of an attempt is committed before anything is sent, and its outcome afterwards. If a worker crashes in between,
//! the delivery is sent again after its lease: SMTP cannot tell whether the first mail arrived, and a repeated mail is better
//! than none. Both mails have the same Message-ID. A mail is also repeated if the
//! response of the mail server is lost, or if the outcome cannot be recorded.

use std::time::{Duration, Instant};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig, Retry, retry},
    deadline::Deadline,
    error::Chain,
};
use onsale_storage::postgres;
use onsale_types::Named as _;
use uuid::Uuid;

use super::{App, LeasedDelivery};
use crate::{
    clients::{OutgoingMail, SendError},
    domain::{
        content::Template,
        delivery::{AfterFailure, AttemptOutcome, after_failure},
        mail::Mail,
    },
    metrics::{self, Outcome},
    store::{self, deliveries::DueDelivery},
};

/// Retries of recording an outcome while Postgres is unavailable. They also stop at the end of the lease.
const RECORD_RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(2),
    multiplier: 2,
    attempts_max: 50,
};

impl App {
    /// Sends a delivery and records the outcome.
    pub(crate) async fn send_delivery(&self, delivery: LeasedDelivery) {
        // A lease is at least twice as long as the timeout of a mail. An attempt that begins in its second half, for example after
        // the process was suspended, might still run when another worker leases the delivery.
        if delivery.leased_at.elapsed() > self.lease / 2 {
            let delivery_id = delivery.due.delivery_id;
            tracing::warn!(%delivery_id, "attempt not started, half of its lease has passed, retrying after the lease");
            return;
        }
        let begin = Instant::now();
        let sent = self.send_mail(&delivery.due).await;
        metrics::attempt_took(begin.elapsed());
        let outcome = match sent {
            Ok(provider_message_id) => AttemptOutcome::Delivered { provider_message_id },
            Err(SendError { message: error, is_permanent }) => {
                match after_failure(delivery.round_number(), is_permanent, &self.pauses) {
                    AfterFailure::Retry(pause) => AttemptOutcome::Retry { error, pause },
                    AfterFailure::Dead => AttemptOutcome::Dead { error },
                }
            }
        };
        self.record_outcome(&delivery, &outcome).await;
    }

    async fn send_mail(&self, due: &DueDelivery) -> Result<Option<String>, SendError> {
        let permanent = |error: &dyn std::error::Error| SendError {
            message: format!("the mail cannot be written: {}", Chain(error)),
            is_permanent: true,
        };
        let content = due.content.as_ref().map_err(|error| permanent(error))?;
        let mail = Mail::compose(content, due.language, &self.web_url).map_err(|error| permanent(&error))?;
        let outgoing = OutgoingMail { to: due.email.clone(), message_key: due.job_id.to_string(), mail };
        self.mailer.send(&outgoing).await
    }

    /// Records the outcome, with retries until the end of the lease. If all fail, the delivery is sent again.
    async fn record_outcome(&self, delivery: &LeasedDelivery, outcome: &AttemptOutcome) {
        let (delivery_id, number) = (delivery.due.delivery_id, delivery.number());
        let left = self.lease.saturating_sub(delivery.leased_at.elapsed());
        let record = || async move {
            let postgres = &self.stores.postgres;
            postgres
                .transaction("record outcome", |transaction| async move {
                    store::deliveries::record(&transaction, delivery_id, number, outcome).await
                })
                .await
        };
        let later = |_: &postgres::Error| Retry::Later;
        match retry(Deadline::after(left), Backoff::new(RECORD_RETRY), later, record).await {
            Ok(true) => report(&delivery.due, outcome),
            Ok(false) => {
                tracing::warn!(%delivery_id, number, ?outcome, "outcome not recorded, another worker has leased the delivery");
            }
            Err(error) => {
                tracing::error!(%delivery_id, number, ?outcome, error = %Chain(&error),
                    "failed to record the outcome of an attempt, the delivery will be sent again after its lease");
            }
        }
    }
}

/// Logs and counts a recorded outcome.
fn report(due: &DueDelivery, outcome: &AttemptOutcome) {
    let (delivery_id, job_id, template) = (due.delivery_id, due.job_id, due.template);
    match outcome {
        AttemptOutcome::Delivered { .. } => {
            metrics::attempt_ended(template.name(), Outcome::Delivered);
            tracing::info!(%delivery_id, %job_id, template = template.name(), "delivered");
        }
        AttemptOutcome::Retry { error, pause } => {
            metrics::attempt_ended(template.name(), Outcome::Retried);
            tracing::warn!(%delivery_id, %job_id, template = template.name(), error, ?pause,
                "delivery attempt failed, retrying after a pause");
        }
        AttemptOutcome::Dead { error } => report_dead(delivery_id, template, error),
    }
}

/// Logs and counts a delivery that failed for good.
pub(super) fn report_dead(delivery_id: Uuid, template: Template, error: &str) {
    metrics::attempt_ended(template.name(), Outcome::Dead);
    tracing::error!(%delivery_id, template = template.name(), error,
        "delivery failed for good, it stays in the dead letters until its organizer retries it");
}
