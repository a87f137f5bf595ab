//! Handles one event: runs the handler in a transaction with the inbox row, retries after failures, and stores the
//! event as a dead letter in the end.

use std::error::Error as StdError;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onsale_kit::backoff::Backoff;
use onsale_kit::deadline::Deadline;
use onsale_kit::error::{Chain, InvalidFields, Kind, ServiceError};
use onsale_kit::telemetry::propagation::{self, CallContext, TraceContext};
use onsale_types::{Clock, ParseIdError};
use tokio::time::sleep;
use uuid::Uuid;

use super::delivery::Delivery;
use super::{ConsumerConfig, Message, MessageError, metrics};
use crate::postgres::row::SqlCount;
use crate::postgres::{self, Postgres, Transaction, column};

// Waits for a concurrent transaction that handles the same event. If that one commits, this insert adds no row.
const ENTER: &str = "INSERT INTO inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const INSERT_DEAD_LETTER: &str =
    "INSERT INTO dead_letter (consumer, event_id, topic, position, key, envelope, error, attempts)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
const LOCK_DEAD_LETTER: &str = "SELECT position, envelope FROM dead_letter
    WHERE consumer = $1 AND event_id = $2 AND retry_requested_at IS NOT NULL FOR UPDATE SKIP LOCKED";
const DELETE_DEAD_LETTER: &str = "DELETE FROM dead_letter WHERE consumer = $1 AND event_id = $2";
const RECORD_FAILED_RETRY: &str = "UPDATE dead_letter
    SET error = $3, attempts = attempts + 1, retry_requested_at = NULL
    WHERE consumer = $1 AND event_id = $2 AND retry_requested_at IS NOT NULL";

/// Maximum length of an error's text in a dead letter, in characters.
const ERROR_CHARS_MAX: usize = 2_000;

/// Handles the events of one topic. The same event may reach it again after a failure or a crash, but only one call
/// commits. Everything it does must therefore be in `transaction` or be idempotent. Slow work outside of statements
/// must run before the first statement, because Postgres ends an idle transaction (`idle_in_transaction_timeout`).
pub trait Handler: Send + Sync + 'static {
    /// Handles `message` in `transaction`, which already contains the inbox row.
    fn handle(
        &self,
        transaction: &Transaction,
        message: &Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// A failure of a handler, by its consequence.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// A later attempt may succeed. Counts as an attempt.
    #[error("failed to handle the event, a retry may succeed")]
    Retry(#[source] Box<dyn StdError + Send + Sync>),
    /// No attempt can succeed: the event goes to the dead letters immediately.
    #[error("the event cannot be handled")]
    Poison(#[source] Box<dyn StdError + Send + Sync>),
    /// A dependency is unavailable. Retried until it is back, without counting attempts.
    #[error("failed to handle the event, a dependency is unavailable")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

impl HandlerError {
    /// Maps a service's error by its kind: `Unavailable` and `Limited` are retried until they pass, `Invalid` goes to
    /// the dead letters immediately, and every other kind is retried up to `attempts_max` times. A service's
    /// `From<Error> for HandlerError` calls this after its own exceptions.
    pub fn by_kind<E: ServiceError + Send + Sync + 'static>(error: E) -> Self {
        match error.kind() {
            Kind::Unavailable | Kind::Limited => Self::Unavailable(error.into()),
            Kind::Invalid => Self::Poison(error.into()),
            Kind::Unauthenticated
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::AlreadyExists
            | Kind::State
            | Kind::Contended
            | Kind::Timeout
            | Kind::Unimplemented
            | Kind::Internal => Self::Retry(error.into()),
        }
    }
}

impl From<postgres::Error> for HandlerError {
    fn from(error: postgres::Error) -> Self {
        // A commit of unknown outcome is `Unavailable`: the next attempt finds out by the inbox row.
        Self::by_kind(error)
    }
}

/// An event that violates the contract stays invalid, so retries cannot help.
impl From<InvalidFields> for HandlerError {
    fn from(error: InvalidFields) -> Self {
        Self::Poison(error.into())
    }
}

impl From<ParseIdError> for HandlerError {
    fn from(error: ParseIdError) -> Self {
        Self::Poison(error.into())
    }
}

impl From<MessageError> for HandlerError {
    fn from(error: MessageError) -> Self {
        Self::Poison(error.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The effect was committed by this call.
    Applied,
    /// The event was handled before.
    Repeated,
    /// The event was stored as a dead letter.
    Dead,
}

/// State that all tasks of a consumer share.
pub(super) struct DeliveryProcessor<H> {
    pub(super) postgres: Postgres,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) topic: &'static str,
    pub(super) config: ConsumerConfig,
    pub(super) handler: H,
}

impl<H: Handler> DeliveryProcessor<H> {
    /// Handles `delivery` until it is applied, known as handled, or dead. Dropping the future rolls back a running
    /// attempt.
    pub(super) async fn process(&self, delivery: &Delivery) -> Outcome {
        let outcome = self.attempt_until_done(delivery).await;
        let name = match outcome {
            Outcome::Applied => "applied",
            Outcome::Repeated => "repeated",
            Outcome::Dead => "dead",
        };
        metrics::handled(self.topic, &self.config.group, name);
        outcome
    }

    async fn attempt_until_done(&self, delivery: &Delivery) -> Outcome {
        let message = match self.read(delivery) {
            Ok(message) => message,
            Err(error) => return self.dead_letter(delivery, 1, &error).await,
        };
        let mut attempts = delivery.crash_count;
        let mut backoff = Backoff::new(self.config.backoff);
        loop {
            if attempts >= self.config.attempts_max {
                // Every consumer that tried this event crashed, so there is no error text.
                return self.dead_letter(delivery, attempts, &MessageError::ConsumersCrashed).await;
            }
            let error = match self.apply(&message).await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            match &error {
                HandlerError::Poison(_) => return self.dead_letter(delivery, attempts + 1, &error).await,
                HandlerError::Retry(_) if attempts + 1 >= self.config.attempts_max => {
                    return self.dead_letter(delivery, attempts + 1, &error).await;
                }
                HandlerError::Retry(_) => attempts += 1,
                HandlerError::Unavailable(_) => {}
            }
            metrics::retried(self.topic, &self.config.group);
            tracing::warn!(
                topic = self.topic, event_id = %delivery.event_id, attempts, error = %Chain(&error),
                "event handler failed, retrying"
            );
            sleep(backoff.next_delay().unwrap_or(self.config.backoff.max)).await;
        }
    }

    fn read(&self, delivery: &Delivery) -> Result<Message, MessageError> {
        let message = delivery.message()?;
        let age = self.clock.now().saturating_since(message.occur_time);
        if age > self.config.inbox_retention {
            return Err(MessageError::TooOld);
        }
        Ok(message)
    }

    /// Calls the handler once, in a transaction with the inbox row.
    async fn apply(&self, message: &Message) -> Result<Outcome, HandlerError> {
        let work = self.postgres.transaction("handle event", |transaction| async move {
            let entered = transaction.execute(ENTER, &[&self.config.group, &message.id]).await;
            if entered.map_err(inbox_insert_failed)? == 0 {
                return Ok(Outcome::Repeated);
            }
            self.handler.handle(&transaction, message).await?;
            Ok(Outcome::Applied)
        });
        self.in_context(&message.traceparent, work).await
    }

    /// Retries a dead letter if a retry is requested and no other consumer is retrying it.
    pub(super) async fn retry_dead_letter(&self, event_id: Uuid) {
        let group = &self.config.group;
        let work = self.postgres.transaction("retry dead letter", |transaction| async move {
            let Some(row) = transaction.query_opt(LOCK_DEAD_LETTER, &[group, &event_id]).await? else {
                return Ok(false);
            };
            let envelope: Vec<u8> = column(&row, "envelope")?;
            let message = Message::read(column(&row, "position")?, &envelope)?;
            self.handler.handle(&transaction, &message).await?;
            transaction.execute(DELETE_DEAD_LETTER, &[group, &event_id]).await?;
            Ok::<_, HandlerError>(true)
        });
        match self.in_context("", work).await {
            Ok(true) => tracing::info!(topic = self.topic, %event_id, "dead letter handled"),
            Ok(false) => {}
            // The request stays, so the next round retries.
            Err(HandlerError::Unavailable(_)) => {}
            Err(error) => {
                let text = error_text(&error);
                tracing::warn!(topic = self.topic, %event_id, error = %text, "retry of a dead letter failed");
                if let Err(error) = self
                    .postgres
                    .execute("note failed retry", RECORD_FAILED_RETRY, &[group, &event_id, &text])
                    .await
                {
                    tracing::warn!(error = %Chain(&error), "failed to record the failed retry of a dead letter, retrying it");
                }
            }
        }
    }

    /// Stores the event in the dead letters and the inbox, in one transaction. Retries until it succeeds; the stream
    /// entry stays pending meanwhile, so the event is not lost.
    async fn dead_letter(
        &self,
        delivery: &Delivery,
        attempts: u32,
        error: &(dyn StdError + Sync),
    ) -> Outcome {
        let text = &error_text(error);
        let attempts = attempts.max(1);
        let mut backoff = Backoff::new(self.config.backoff);
        loop {
            let stored = self.postgres.transaction("bury event", |transaction| async move {
                let (group, event_id) = (&self.config.group, &delivery.event_id);
                if transaction.execute(ENTER, &[group, event_id]).await? == 0 {
                    return Ok(Outcome::Repeated);
                }
                let (position, key, envelope) = (delivery.position(), &delivery.key, &delivery.envelope);
                transaction
                    .execute(
                        INSERT_DEAD_LETTER,
                        &[group, event_id, &self.topic, &position, key, envelope, text, &SqlCount(attempts)],
                    )
                    .await?;
                Ok::<_, postgres::Error>(Outcome::Dead)
            });
            match stored.await {
                Ok(outcome) => {
                    if outcome == Outcome::Dead {
                        metrics::record_dead_letter(self.topic, &self.config.group);
                        tracing::error!(
                            topic = self.topic, event_id = %delivery.event_id, attempts, error = %text,
                            "event moved to the dead letters"
                        );
                    }
                    return outcome;
                }
                Err(error) => tracing::warn!(error = %Chain(&error), "failed to store dead letter, retrying"),
            }
            sleep(backoff.next_delay().unwrap_or(self.config.backoff.max)).await;
        }
    }

    /// Runs one attempt with its time limit, in the trace of the event's cause.
    async fn in_context<T>(
        &self,
        traceparent: &str,
        work: impl Future<Output = Result<T, HandlerError>>,
    ) -> Result<T, HandlerError> {
        let span = tracing::info_span!("handle_event", topic = self.topic, group = %self.config.group);
        let trace = propagation::join_trace(&span, TraceContext::parse(traceparent));
        let context = CallContext { trace, name: self.topic };
        let limited = limit(self.config.handler_timeout, Box::pin(work));
        tracing::Instrument::instrument(context.scope(limited), span).await
    }
}

/// Ends an attempt at the time limit and turns a panic into a failed attempt, so that neither stops the consumer.
async fn limit<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    let deadline = Deadline::after(timeout);
    let caught = AssertUnwindSafe(deadline.scope(async { deadline.bound(work).await })).catch_unwind().await;
    match caught {
        Ok(Ok(result)) => result,
        Ok(Err(passed)) => Err(HandlerError::Retry(passed.into())),
        Err(_panic) => Err(HandlerError::Retry("the handler panicked".into())),
    }
}

/// Waiting for another process that handles the same event is not a failed attempt.
fn inbox_insert_failed(error: postgres::Error) -> HandlerError {
    match error {
        error @ postgres::Error::Timeout { .. } => HandlerError::Unavailable(error.into()),
        error => error.into(),
    }
}

fn error_text(error: &dyn StdError) -> String {
    Chain(error).to_string().chars().take(ERROR_CHARS_MAX).collect()
}
