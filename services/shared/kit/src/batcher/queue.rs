//! Queued items and batches. Every queued item gets exactly one answer.

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{BatcherConfig, SubmitError};
use crate::deadline::Deadline;

/// An item in the queue.
#[derive(Debug)]
pub(super) struct Queued<T, R, E> {
    pub(super) item: T,
    pub(super) reply: Reply<R, E>,
    pub(super) deadline: Option<Deadline>,
    pub(super) arrival: Instant,
}

/// Sends an item's answer to its caller. If it is dropped without one, it sends an error, so that no caller waits forever.
#[derive(Debug)]
pub(super) struct Reply<R, E> {
    /// `None` once the answer is sent.
    sender: Option<oneshot::Sender<Result<R, SubmitError<E>>>>,
    /// Set once the processor has received the item.
    is_started: bool,
}

impl<R, E> Reply<R, E> {
    pub(super) fn new(sender: oneshot::Sender<Result<R, SubmitError<E>>>) -> Self {
        Self { sender: Some(sender), is_started: false }
    }

    pub(super) fn send(mut self, answer: Result<R, SubmitError<E>>) {
        if let Some(sender) = self.sender.take() {
            // The send fails if the caller has left, who then needs no answer.
            let _ = sender.send(answer);
        }
    }

    /// Marks the item as possibly effective, from when the processor receives it.
    pub(super) fn start(&mut self) {
        self.is_started = true;
    }

    /// Returns true if the caller no longer waits.
    fn is_abandoned(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl<R, E> Drop for Reply<R, E> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let error = if self.is_started { SubmitError::Lost } else { SubmitError::ShuttingDown };
            let _ = sender.send(Err(error));
        }
    }
}

/// The items of a batch and, in the same order, their callers.
#[derive(Debug)]
pub(super) struct Batch<T, R, E> {
    pub(super) items: Vec<T>,
    pub(super) callers: Vec<Caller<R, E>>,
}

/// The waiting caller of an item.
#[derive(Debug)]
pub(super) struct Caller<R, E> {
    pub(super) reply: Reply<R, E>,
    pub(super) deadline: Option<Deadline>,
}

impl<T, R, E> Batch<T, R, E> {
    fn new() -> Self {
        Self { items: Vec::new(), callers: Vec::new() }
    }

    fn push(&mut self, queued: Queued<T, R, E>) {
        self.items.push(queued.item);
        self.callers.push(Caller { reply: queued.reply, deadline: queued.deadline });
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Removes items that nobody waits for. Callers whose deadline has passed get [`SubmitError::Timeout`].
    pub(super) fn drop_late(&mut self) {
        let is_late = |deadline: Option<Deadline>| deadline.is_some_and(|deadline| deadline.is_past());
        let is_needed = |caller: &Caller<R, E>| !caller.reply.is_abandoned() && !is_late(caller.deadline);
        if self.callers.iter().all(is_needed) {
            return;
        }
        let items = std::mem::take(&mut self.items);
        let callers = std::mem::take(&mut self.callers);
        for (item, caller) in items.into_iter().zip(callers) {
            if is_late(caller.deadline) {
                caller.reply.send(Err(SubmitError::Timeout));
            } else if !caller.reply.is_abandoned() {
                self.items.push(item);
                self.callers.push(caller);
            }
        }
    }

    /// Removes and returns the second half; the first half is the larger one.
    pub(super) fn split_off_half(&mut self) -> Self {
        let middle = self.items.len().div_ceil(2);
        Self { items: self.items.split_off(middle), callers: self.callers.split_off(middle) }
    }

    /// Returns the latest of the callers' deadlines, at most `latest`.
    pub(super) fn deadline(&self, latest: Deadline) -> Deadline {
        let mut furthest = None;
        for caller in &self.callers {
            // A caller without a deadline waits for the result in any case.
            let Some(deadline) = caller.deadline else { return latest };
            furthest = furthest.max(Some(deadline));
        }
        furthest.map_or(latest, |furthest| furthest.min(latest))
    }
}

/// Waits for the next batch and returns `None` after the last one. Cancelling `shutdown` closes the queue; the remaining
/// items then come without linger.
pub(super) async fn collect<T, R, E>(
    queue: &mut mpsc::Receiver<Queued<T, R, E>>,
    config: &BatcherConfig,
    shutdown: &CancellationToken,
) -> Option<Batch<T, R, E>> {
    let first = tokio::select! {
        biased;
        () = shutdown.cancelled() => {
            queue.close();
            queue.recv().await?
        }
        first = queue.recv() => first?,
    };
    let start = first.arrival.checked_add(config.linger_max).unwrap_or(first.arrival);
    let mut batch = Batch::new();
    batch.push(first);
    loop {
        while batch.len() < config.batch_max
            && let Ok(next) = queue.try_recv()
        {
            batch.push(next);
        }
        if batch.len() >= config.batch_max || Instant::now() >= start || shutdown.is_cancelled() {
            return Some(batch);
        }
        let next = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Some(batch),
            next = timeout_at(start, queue.recv()) => next,
        };
        match next {
            Ok(Some(next)) => batch.push(next),
            Ok(None) | Err(_) => return Some(batch),
        }
    }
}
