//! Lets calls that arrive together share one piece of work: one statement, one round trip, one commit.
//!
//! Callers [`Batcher::submit`] one item each; a [`Processor`] gets them in batches, in order of arrival, and answers
//! each by itself. With `linger_max` zero a batch starts as soon as a slot is free and takes whatever has queued up
//! meanwhile: alone, a caller pays no wait; in a crowd, batches grow by themselves. A linger makes each batch wait for
//! company, counted from the arrival of its first item, or until it is full.
//!
//! What a caller can rely on:
//! - It gets its own item's answer or a typed error, exactly once, and never waits for ever: not when the processor
//!   fails, panics, hangs or miscounts, and not when the process stops.
//! - One bad item fails no neighbour (see [`BatchOutcome::Suspect`]).
//! - The queue is bounded. Full means [`SubmitError::Overloaded`] at once: waiting for room would only move the queue
//!   to where nobody counts it.
//! - An item is dropped unprocessed when, as its batch starts, its caller is gone or its caller's deadline has passed.
//!   Once started it is processed whoever still waits.
//!
//! It must never decide what an error means: whether a failed batch may be taken apart is the processor's to say.

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

/// The bounds of one batcher. Zero counts as one wherever it would mean that nothing ever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatcherConfig {
    /// Items waiting for a batch; one more is refused.
    pub queue_max: usize,
    /// Items in one batch.
    pub batch_max: usize,
    /// How long a batch waits for company, from the arrival of its first item. Zero: not at all.
    #[serde(with = "humantime_serde")]
    pub linger_max: Duration,
    /// Batches in work at the same time.
    pub concurrency: usize,
    /// The longest that the work on one batch, or on one part of a suspect batch, may take; then it is dropped and its
    /// callers get [`SubmitError::Lost`].
    #[serde(with = "humantime_serde")]
    pub process_max: Duration,
    /// How long after the begin of shutdown queued items are still processed; the rest is refused.
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

/// Does the work on a batch.
pub trait Processor<T>: Send + Sync + 'static {
    /// What the caller of one item gets.
    type Output: Send + 'static;
    /// What a caller gets when it failed.
    type Error: Send + Sync + 'static;

    /// Works on `items`, which are in order of arrival and at least one. While it runs, [`Deadline::current`] is the
    /// latest of the callers' deadlines, and at most `process_max` away.
    fn process(&self, items: &[T]) -> impl Future<Output = BatchOutcome<Self::Output, Self::Error>> + Send;
}

/// What became of a batch.
#[derive(Debug)]
pub enum BatchOutcome<R, E> {
    /// One answer for each item, in the items' order.
    Answered(Vec<Result<R, E>>),
    /// Nothing of the batch took effect, and one of its items may be to blame. Each half is tried again by itself, until
    /// the bad ones stand alone and get the error. Say this only where a repeat is safe.
    Suspect(E),
    /// The whole batch failed and no item is to blame: every caller gets this error.
    Failed(E),
}

/// Why a caller got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError<E> {
    /// The processor's answer to this very item.
    #[error(transparent)]
    Item(E),
    /// The processor failed the whole batch; all its callers share the error.
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
    /// The processor panicked, took too long, was aborted or miscounted. Whether the item took effect is not known.
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
    /// Starts a batcher; `name` labels its metrics. Its workers run in `tasks`: when those shut down, it takes no more
    /// items and flushes the queue. It also ends when its last clone is dropped.
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

    /// Hands in an item and waits for its answer, at most until the running call's deadline.
    pub async fn submit(&self, item: T) -> Result<R, SubmitError<E>> {
        let deadline = Deadline::current();
        if deadline.is_some_and(|deadline| deadline.is_past()) {
            return Err(SubmitError::Timeout);
        }
        // Also checked here, not only by the closed queue: workers close it a moment later.
        if self.shutdown.is_cancelled() {
            return Err(SubmitError::ShuttingDown);
        }
        let (sender, answer) = oneshot::channel();
        let queued = Queued { item, reply: Reply::new(sender), deadline, arrival: Instant::now() };
        if let Err(refused) = self.queue.try_send(queued) {
            return Err(self.refuse(refused));
        }
        // A dropped sender cannot be seen here: `Reply` answers when it is dropped.
        let answered = match deadline {
            None => answer.await.map_err(|_dropped| SubmitError::Lost),
            Some(deadline) => match deadline.bound(answer).await {
                Ok(answered) => answered.map_err(|_dropped| SubmitError::Lost),
                Err(_passed) => Err(SubmitError::Timeout),
            },
        };
        answered?
    }

    /// Takes no more items and flushes the queue, as when the task set shuts down.
    pub fn close(&self) {
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
    /// The processor's own error, if it is one.
    fn cause(&self) -> Option<&E> {
        match self {
            Self::Item(error) => Some(error),
            Self::Batch(error) => Some(error),
            Self::Overloaded | Self::Timeout | Self::ShuttingDown | Self::Lost => None,
        }
    }
}

/// A processor's error passes through as it is; the batcher's own have the reasons every service shares.
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
