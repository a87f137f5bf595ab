//! Sends what is due.
//!
//! A delivery is marked as being sent, and its attempt written down, before anything leaves the house; how it ended is
//! written down after. A worker that dies in between leaves a delivery whose lease ends: it is sent again, because a mail
//! twice is better than none, and SMTP cannot be asked whether the first one arrived. Both have the same Message-ID. This
//! window, and a server that takes a mail and does not say so, are the only ways to a second mail.

use std::time::{Duration, Instant};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig, Retry, retry},
    deadline::Deadline,
    error::Chain,
};
use uuid::Uuid;

use super::App;
use crate::{
    clients::{Outgoing, SendError},
    domain::{
        content::Template,
        delivery::{AfterFailure, State, Step, after_failure, step},
        mail::Mail,
    },
    metrics::{self, Outcome as Counted},
    store::{
        self,
        deliveries::{Due, Outcome},
    },
};

/// How the outcome of a mail is written down again and again while the store is away; the lease bounds it too.
const RECORD_RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(2),
    multiplier: 2,
    attempts_max: 50,
};

/// Why nothing could be taken.
#[derive(Debug, thiserror::Error)]
#[error("failed to take due deliveries")]
pub struct DeliverError(#[from] store::Error);

impl From<onsale_storage::postgres::Error> for DeliverError {
    fn from(error: onsale_storage::postgres::Error) -> Self {
        Self(error.into())
    }
}

/// A delivery that is ours to send now.
#[derive(Debug)]
pub struct Attempt {
    due: Due,
    /// Our right to it ends a lease after this.
    taken: Instant,
}

impl Attempt {
    /// Its number among all attempts of the delivery.
    fn number(&self) -> u32 {
        self.due.attempts.saturating_add(1)
    }
}

/// What was due.
#[derive(Debug)]
pub struct Taken {
    /// What is to be sent now.
    pub attempts: Vec<Attempt>,
    /// As many were due as were asked for, some of them perhaps not worth sending: there may be more.
    pub is_full: bool,
}

/// What is done with due deliveries.
#[derive(Debug, Default)]
struct Sorted {
    send: Vec<Due>,
    skip: Vec<(Uuid, Template)>,
    bury: Vec<(Uuid, Template)>,
}

impl Sorted {
    fn count(&self) -> usize {
        [self.send.len(), self.skip.len(), self.bury.len()].iter().sum()
    }
}

impl App {
    /// Takes up to `count` due deliveries and begins an attempt of each; every attempt must be given to
    /// [`App::attempt`]. What came too late, and what only ever killed its workers, ends here.
    pub async fn take_due(&self, count: usize) -> Result<Taken, DeliverError> {
        let taken = Instant::now();
        let sorted: Result<Sorted, DeliverError> = self
            .stores
            .postgres
            .transaction("take deliveries", |transaction| async move {
                let due = store::deliveries::due(&transaction, count).await?;
                let all: Vec<Uuid> = due.iter().map(|due| due.delivery_id).collect();
                if all.is_empty() {
                    return Ok(Sorted::default());
                }
                let sorted = self.sort(due);
                store::deliveries::end_lost_attempts(&transaction, &all).await?;
                for (ended, state) in [(&sorted.skip, State::Skipped), (&sorted.bury, State::Dead)] {
                    let ids: Vec<Uuid> = ended.iter().map(|(id, _)| *id).collect();
                    store::deliveries::end(&transaction, &ids, state).await?;
                }
                let ids: Vec<Uuid> = sorted.send.iter().map(|due| due.delivery_id).collect();
                let (lease, provider) = (self.delivery.lease, self.mailer.name());
                store::deliveries::begin(&transaction, &ids, lease, provider).await?;
                Ok(sorted)
            })
            .await;
        let sorted = sorted?;
        let is_full = sorted.count() == count;
        for (delivery_id, template) in sorted.skip {
            metrics::ended(template, Counted::Skipped);
            tracing::info!(%delivery_id, template = template.name(), "delivery came too late and is skipped");
        }
        for (delivery_id, template) in sorted.bury {
            died(delivery_id, template, "every worker that tried to send it stopped");
        }
        let attempts = sorted.send.into_iter().map(|due| Attempt { due, taken }).collect();
        Ok(Taken { attempts, is_full })
    }

    fn sort(&self, due: Vec<Due>) -> Sorted {
        let mut sorted = Sorted::default();
        for due in due {
            match step(due.round_attempts, due.is_expired, &self.pauses) {
                Step::Send => sorted.send.push(due),
                Step::Skip => sorted.skip.push((due.delivery_id, due.template)),
                Step::Bury => sorted.bury.push((due.delivery_id, due.template)),
            }
        }
        sorted
    }

    /// Sends one delivery and writes down how that ended.
    pub async fn attempt(&self, attempt: Attempt) {
        // A lease is at least twice as long as a mail takes. In its second half another may have the delivery before we are
        // done: so a process that stood still leaves it alone.
        if attempt.taken.elapsed() > self.delivery.lease / 2 {
            let delivery_id = attempt.due.delivery_id;
            tracing::warn!(%delivery_id, "too late to begin an attempt, leaving it to another");
            return;
        }
        let begin = Instant::now();
        let sent = self.send(&attempt.due).await;
        metrics::sent_in(begin.elapsed());
        let outcome = match sent {
            Ok(provider_message_id) => Outcome::Delivered { provider_message_id },
            Err(SendError { message: error, is_hopeless }) => {
                let round_attempt = attempt.due.round_attempts.saturating_add(1);
                match after_failure(round_attempt, is_hopeless, &self.pauses) {
                    AfterFailure::Again(after) => Outcome::Again { error, after },
                    AfterFailure::Dead => Outcome::Dead { error },
                }
            }
        };
        self.record(&attempt, &outcome).await;
    }

    async fn send(&self, due: &Due) -> Result<Option<String>, SendError> {
        let hopeless = |error: &dyn std::error::Error| SendError {
            message: format!("the mail cannot be written: {}", Chain(error)),
            is_hopeless: true,
        };
        let content = due.content.as_ref().map_err(|error| hopeless(error))?;
        let mail = Mail::write(content, due.language, &self.web_url).map_err(|error| hopeless(&error))?;
        let outgoing = Outgoing { to: due.email.clone(), message_key: due.job_id.to_string(), mail };
        self.mailer.send(&outgoing).await
    }

    /// Writes an outcome down, patiently: until then the delivery counts as being sent, and would be sent again.
    async fn record(&self, attempt: &Attempt, outcome: &Outcome) {
        let (delivery_id, number) = (attempt.due.delivery_id, attempt.number());
        let left = self.delivery.lease.saturating_sub(attempt.taken.elapsed());
        let write = || async move {
            let postgres = &self.stores.postgres;
            postgres
                .transaction("record outcome", |transaction| async move {
                    store::deliveries::record(&transaction, delivery_id, number, outcome).await
                })
                .await
        };
        let again = |_: &store::Error| Retry::Later;
        let written = retry(Deadline::after(left), Backoff::new(RECORD_RETRY), again, write).await;
        match written {
            Ok(true) => report(&attempt.due, outcome),
            Ok(false) => {
                tracing::warn!(%delivery_id, number, ?outcome, "an attempt ended after its lease and does not count");
            }
            Err(error) => {
                tracing::error!(%delivery_id, number, ?outcome, error = %Chain(&error),
                    "failed to write down how an attempt ended, it will be made again");
            }
        }
    }
}

/// Says how an attempt ended, to who watches.
fn report(due: &Due, outcome: &Outcome) {
    let (delivery_id, job_id, template) = (due.delivery_id, due.job_id, due.template);
    match outcome {
        Outcome::Delivered { .. } => {
            metrics::ended(template, Counted::Delivered);
            tracing::info!(%delivery_id, %job_id, template = template.name(), "delivered");
        }
        Outcome::Again { error, after } => {
            metrics::ended(template, Counted::Retried);
            tracing::warn!(%delivery_id, %job_id, template = template.name(), error, ?after, "failed to deliver");
        }
        Outcome::Dead { error } => died(delivery_id, template, error),
    }
}

fn died(delivery_id: Uuid, template: Template, error: &str) {
    metrics::ended(template, Counted::Dead);
    tracing::error!(%delivery_id, template = template.name(), error, "delivery is dead, a person has to look");
}
