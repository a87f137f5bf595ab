//! One event's processor: in one transaction with its inbox row, again when it fails, to the dead letters in the end.

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

// Waits for a transaction that handles the same event right now, and then finds it handled.
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

/// An error's text in the dead letters is cut here: it is for a human, not for a machine.
const ERROR_CHARS_MAX: usize = 2_000;

/// Does what an event asks for. What takes long belongs into statements or before them: a transaction that sits idle is
/// finished by Postgres (`idle_in_transaction_timeout`). It may be called again for the same event, after a failure or a crash, but only one of
/// the calls commits; so everything it does must be in `transaction`, or be idempotent by itself.
pub trait Handler: Send + Sync + 'static {
    /// Handles `message` inside `transaction`, in which its inbox row is already written.
    fn handle(
        &self,
        transaction: &Transaction,
        message: &Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Why a handler failed, by what is to be done.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// Another try may work. Counts as an attempt.
    #[error("failed to handle the event, another try may work")]
    Retry(#[source] Box<dyn StdError + Send + Sync>),
    /// No try will work: to the dead letters at once.
    #[error("the event cannot be handled")]
    Poison(#[source] Box<dyn StdError + Send + Sync>),
    /// Something it needs is away. Tried again until it is back: it is not the event's fault, and no attempt of its.
    #[error("failed to handle the event, a dependency is unavailable")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

impl HandlerError {
    /// Maps a service's error by its kind: `Unavailable` and `Limited` are retried until they pass, `Invalid` goes to the dead
    /// letters at once, and every other kind is retried `attempts_max` times. A service's `From<Error> for HandlerError` calls
    /// this after the exceptions of its own.
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
        // A commit of unknown outcome is `Unavailable`: the inbox shows at the next try whether it took effect.
        Self::by_kind(error)
    }
}

/// An event that breaks its contract: what its sender got wrong stays wrong.
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

/// How an event finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its effect was committed now.
    Applied,
    /// It was handled before.
    Repeated,
    /// It lies in the dead letters.
    Dead,
}

/// What a consumer's tasks share.
pub(super) struct DeliveryProcessor<H> {
    pub(super) postgres: Postgres,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) topic: &'static str,
    pub(super) config: ConsumerConfig,
    pub(super) handler: H,
}

impl<H: Handler> DeliveryProcessor<H> {
    /// Handles `delivery` to its end; returns only then. Dropping it leaves nothing done.
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
                // Nobody lived to say why.
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
                "event handler failed, trying again"
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

    /// One call of the handler, with the inbox row.
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

    /// Tries a dead letter again, if somebody asked for it and nobody else is at it.
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
            // The request stands; the next round tries again.
            Err(HandlerError::Unavailable(_)) => {}
            Err(error) => {
                let text = error_text(&error);
                tracing::warn!(topic = self.topic, %event_id, error = %text, "dead letter failed again");
                if let Err(error) = self
                    .postgres
                    .execute("note failed retry", RECORD_FAILED_RETRY, &[group, &event_id, &text])
                    .await
                {
                    tracing::warn!(error = %Chain(&error), "failed to note a failed retry");
                }
            }
        }
    }

    /// Puts the event into the dead letters and the inbox, in one transaction: it is dead once. Does not give up: until
    /// it lies there the entry stays pending, and nothing is lost.
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
                            "event went to the dead letters"
                        );
                    }
                    return outcome;
                }
                Err(error) => tracing::warn!(error = %Chain(&error), "failed to bury an event, trying again"),
            }
            sleep(backoff.next_delay().unwrap_or(self.config.backoff.max)).await;
        }
    }

    /// Runs one try with its time limit, in the trace that caused the event.
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

/// The transaction ends itself by the deadline; the handler's other doings are finished here, and so is a panic, which
/// counts as a failed try and must not take the consumer with it.
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

/// Waiting for another who handles the same event is no failed try of this one.
fn inbox_insert_failed(error: postgres::Error) -> HandlerError {
    match error {
        error @ postgres::Error::Timeout { .. } => HandlerError::Unavailable(error.into()),
        error => error.into(),
    }
}

fn error_text(error: &dyn StdError) -> String {
    Chain(error).to_string().chars().take(ERROR_CHARS_MAX).collect()
}
