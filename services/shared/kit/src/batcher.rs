//! Combines concurrent calls into batches that share one statement, one round trip or one commit.
//!
//! Callers [`Batcher::submit`] one item each. A [`Processor`] receives the items in batches, in order of arrival, and
//! returns one result per item. With a `linger_max` of zero, a batch starts as soon as a slot is free and takes all queued
//! items: a single caller never waits, and batches grow with the load. With a linger, a batch starts when its first item
//! has waited that long, or when it is full.
//!
//! Guarantees to a caller:
//! - It gets its own item's result or a typed error, exactly once and in bounded time, even if the processor fails,
//!   panics, hangs or returns a wrong number of results, and even if the process stops.
//! - A bad item does not fail the other items of its batch (see [`BatchOutcome::Suspect`]).
//! - The queue is bounded. A full queue refuses immediately with [`SubmitError::Overloaded`]: callers that waited for room
//!   would form a second queue that no metric shows.
//! - An item is dropped unprocessed if its caller has left or its caller's deadline has passed when its batch starts. Once
//!   started, it is processed even if nobody waits.
//!
//! The batcher never interprets errors: the processor decides whether a failed batch may be split and retried.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use onsale_proto::r#type::v1::ErrorReason;
use serde::Deserialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    deadline::Deadline,
    error::{Kind, QuotaViolation, Reason, ServiceError, Violation},
    tasks::Tasks,
};

use self::{
    queue::{Queued, Reply},
    worker::BatchWorker,
};

mod queue;
#[cfg(test)]
mod tests;
mod worker;

/// Limits of one batcher. Zero counts as one for `queue_max`, `batch_max` and `concurrency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatcherConfig {
    /// Items that may wait for a batch (default 10,000); one more is refused.
    pub queue_max: usize,
    /// Items of one batch (default 256).
    pub batch_max: usize,
    /// Longest time that a batch waits for more items after the arrival of its first (default 0: not at all).
    #[serde(with = "humantime_serde")]
    pub linger_max: Duration,
    /// Batches that may run at the same time (default 2).
    pub concurrency: usize,
    /// Time limit of one batch, or of one part of a suspect batch (default 10 s). Its work is then dropped, and its callers
    /// get [`SubmitError::Lost`].
    #[serde(with = "humantime_serde")]
    pub process_max: Duration,
    /// Time after the start of shutdown in which queued items are still processed (default 5 s). The rest is refused.
    #[serde(with = "humantime_serde")]
    pub flush_max: Duration,
}

impl Default for BatcherConfig {
    fn default() -> Self {
        Self {
            queue_max: 10_000,
            batch_max: 256,
            linger_max: Duration::ZERO,
            concurrency: 2,
            process_max: Duration::from_secs(10),
            flush_max: Duration::from_secs(5),
        }
    }
}

/// Processes batches.
pub trait Processor<T>: Send + Sync + 'static {
    /// Result of one item.
    type Output: Send + 'static;
    /// Error of one item or of a whole batch.
    type Error: Send + Sync + 'static;

    /// Processes `items` (at least one, in order of arrival). Meanwhile [`Deadline::current`] is the latest of the callers'
    /// deadlines, but at most `process_max` away.
    fn process(&self, items: &[T]) -> impl Future<Output = BatchOutcome<Self::Output, Self::Error>> + Send;
}

/// The outcome of a batch.
#[derive(Debug)]
pub enum BatchOutcome<R, E> {
    /// One result per item, in the items' order.
    Answered(Vec<Result<R, E>>),
    /// Nothing of the batch took effect, and one item may be the cause. The batch is halved and retried until the bad
    /// items are alone and get the error. Return this only if a repeat is safe.
    Suspect(E),
    /// The whole batch failed, and no single item is the cause. Every caller gets this error.
    Failed(E),
}

/// The cause of a submission without a result.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError<E> {
    /// The processor's error for this item.
    #[error(transparent)]
    Item(E),
    /// The processor's error for the whole batch, shared by its callers.
    #[error(transparent)]
    Batch(Arc<E>),
    /// The queue is full. The item was not processed.
    #[error("too many items are waiting")]
    Overloaded,
    /// The caller's deadline passed. The item was not processed, or is being processed now.
    #[error("the deadline passed before the item was processed")]
    Timeout,
    /// The batcher is shutting down. The item was not processed.
    #[error("the batcher is shutting down")]
    ShuttingDown,
    /// The processor panicked, exceeded `process_max`, was aborted or returned a wrong number of results. The item may or
    /// may not have taken effect.
    #[error("the batch was lost while it was processed")]
    Lost,
}

/// Collects items into batches. Clones share one queue.
#[derive(Debug)]
pub struct Batcher<T, R, E> {
    queue: mpsc::Sender<Queued<T, R, E>>,
    shutdown: CancellationToken,
    name: &'static str,
    answers: PhantomData<fn() -> Result<R, E>>,
}

impl<T, R, E> Clone for Batcher<T, R, E> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            shutdown: self.shutdown.clone(),
            name: self.name,
            answers: PhantomData,
        }
    }
}

impl<T, R, E> Batcher<T, R, E>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    E: Send + Sync + 'static,
{
    /// Starts a batcher whose metrics carry `name`. Its workers run in `tasks`: at shutdown it refuses new items and
    /// flushes the queue. It also ends when its last clone is dropped.
    pub fn new<P>(name: &'static str, config: BatcherConfig, processor: P, tasks: &Tasks) -> Self
    where
        P: Processor<T, Output = R, Error = E>,
    {
        let (sender, receiver) = mpsc::channel(config.queue_max.max(1));
        let shutdown = tasks.token().child_token();
        let worker = Arc::new(BatchWorker::new(name, config, processor, receiver, shutdown.clone()));
        for _ in 0..config.concurrency.max(1) {
            let worker = Arc::clone(&worker);
            tasks.spawn("batcher", async move { worker.run().await });
        }
        Self { queue: sender, shutdown, name, answers: PhantomData }
    }

    /// Submits an item and waits for its result until the running call's deadline.
    pub async fn submit(&self, item: T) -> Result<R, SubmitError<E>> {
        let deadline = Deadline::current();
        if deadline.is_some_and(|deadline| deadline.is_past()) {
            return Err(SubmitError::Timeout);
        }
        // The workers close the queue slightly later, so the token is checked here too.
        if self.shutdown.is_cancelled() {
            return Err(SubmitError::ShuttingDown);
        }
        let (sender, answer) = oneshot::channel();
        let queued = Queued { item, reply: Reply::new(sender), deadline, arrival: Instant::now() };
        if let Err(refused) = self.queue.try_send(queued) {
            return Err(self.refuse(refused));
        }
        // The sender never drops without an answer: `Reply` sends one when it is dropped.
        let answered = match deadline {
            None => answer.await.map_err(|_dropped| SubmitError::Lost),
            Some(deadline) => match deadline.bound(answer).await {
                Ok(answered) => answered.map_err(|_dropped| SubmitError::Lost),
                Err(_passed) => Err(SubmitError::Timeout),
            },
        };
        answered?
    }

    /// Refuses new items and flushes the queue, as at shutdown of the task set.
    #[cfg(test)]
    fn close(&self) {
        self.shutdown.cancel();
    }

    fn refuse(&self, refused: mpsc::error::TrySendError<Queued<T, R, E>>) -> SubmitError<E> {
        match refused {
            mpsc::error::TrySendError::Full(_item) => {
                metrics::counter!("batcher_overloaded_total", "batcher" => self.name).increment(1);
                SubmitError::Overloaded
            }
            mpsc::error::TrySendError::Closed(_item) => SubmitError::ShuttingDown,
        }
    }
}

impl<E: ServiceError> SubmitError<E> {
    /// Returns the processor's error, if this is one.
    fn cause(&self) -> Option<&E> {
        match self {
            Self::Item(error) => Some(error),
            Self::Batch(error) => Some(error),
            Self::Overloaded | Self::Timeout | Self::ShuttingDown | Self::Lost => None,
        }
    }
}

/// Passes a processor's error through. The batcher's own errors have reasons that all services share.
impl<E: ServiceError> ServiceError for SubmitError<E> {
    fn kind(&self) -> Kind {
        match self {
            Self::Item(error) => error.kind(),
            Self::Batch(error) => error.kind(),
            Self::Overloaded => Kind::Limited,
            Self::Timeout => Kind::Timeout,
            Self::ShuttingDown => Kind::Unavailable,
            Self::Lost => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Item(error) => error.reason(),
            Self::Batch(error) => error.reason(),
            Self::Overloaded => ErrorReason::Overloaded.into(),
            Self::Timeout => ErrorReason::DeadlineExceeded.into(),
            Self::ShuttingDown => ErrorReason::Draining.into(),
            Self::Lost => ErrorReason::Internal.into(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        self.cause().map(ServiceError::metadata).unwrap_or_default()
    }

    fn violations(&self) -> &[Violation] {
        self.cause().map(ServiceError::violations).unwrap_or_default()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.cause().and_then(ServiceError::retry_after)
    }

    fn quota(&self) -> Option<QuotaViolation> {
        self.cause().and_then(ServiceError::quota)
    }
}
