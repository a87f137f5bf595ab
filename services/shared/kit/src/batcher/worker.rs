//! Takes batches from the queue, processes them and sends the answers. Each batcher runs `concurrency` of these loops. Only
//! one of them collects at a time, so that items stay in order within and between batches.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
};

use futures_util::FutureExt;
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    BatchOutcome, BatcherConfig, Processor, SubmitError,
    queue::{Batch, Queued, collect},
};
use crate::{deadline::Deadline, tasks::panic_text};

type Queue<T, R, E> = mpsc::Receiver<Queued<T, R, E>>;
type BatchOf<T, P> = Batch<T, <P as Processor<T>>::Output, <P as Processor<T>>::Error>;

pub(super) struct BatchWorker<T, P: Processor<T>> {
    name: &'static str,
    config: BatcherConfig,
    processor: P,
    /// Owned by the workers only: when the last one ends, the remaining items are dropped and thereby answered.
    queue: Mutex<Queue<T, P::Output, P::Error>>,
    shutdown: CancellationToken,
    /// End of the flush, set by the first worker that notices the shutdown.
    flush_end: OnceLock<Instant>,
}

impl<T, P> BatchWorker<T, P>
where
    T: Send + Sync + 'static,
    P: Processor<T>,
{
    pub(super) fn new(
        name: &'static str,
        config: BatcherConfig,
        processor: P,
        queue: Queue<T, P::Output, P::Error>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { name, config, processor, queue: Mutex::new(queue), shutdown, flush_end: OnceLock::new() }
    }

    /// Runs until the queue is closed and empty.
    pub(super) async fn run(&self) {
        loop {
            let batch = {
                let mut queue = self.queue.lock().await;
                let batch = collect(&mut queue, &self.config, &self.shutdown).await;
                metrics::gauge!("batcher_queue_depth", "batcher" => self.name).set(gauge_value(queue.len()));
                batch
            };
            let Some(batch) = batch else { return };
            if self.may_process() {
                self.process_all(batch).await;
            }
            // An item that is not processed is dropped here, and its caller gets `ShuttingDown`.
        }
    }

    fn may_process(&self) -> bool {
        if !self.shutdown.is_cancelled() {
            return true;
        }
        let now = Instant::now();
        let end = self.flush_end.get_or_init(|| now.checked_add(self.config.flush_max).unwrap_or(now));
        now <= *end
    }

    /// Processes a batch, and the halves of a suspect one, first half first.
    async fn process_all(&self, batch: BatchOf<T, P>) {
        let begin = Instant::now();
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            part.drop_late();
            if part.items.is_empty() {
                continue;
            }
            let Some(outcome) = self.process_one(&mut part).await else { continue };
            if let Some((first, second)) = self.answer(part, outcome) {
                parts.push(second);
                parts.push(first);
            }
        }
        metrics::histogram!("batcher_batch_seconds", "batcher" => self.name).record(begin.elapsed());
    }

    /// Runs the processor. Returns `None` if it panicked or ran too long; the dropped replies then answer `Lost`.
    async fn process_one(&self, part: &mut BatchOf<T, P>) -> Option<BatchOutcome<P::Output, P::Error>> {
        metrics::histogram!("batcher_batch_size", "batcher" => self.name).record(gauge_value(part.len()));
        for caller in &mut part.callers {
            caller.reply.start();
        }
        // A limit per part: with one for the whole batch, a bad item could use up the time of the others.
        let latest = Deadline::after(self.config.process_max);
        // The `async` block also catches a panic of `process` before its first await.
        let work = async { self.processor.process(&part.items).await };
        let work = part.deadline(latest).scope(AssertUnwindSafe(work).catch_unwind());
        let fault = match latest.bound(work).await {
            Ok(Ok(outcome)) => return Some(outcome),
            Ok(Err(panic)) => panic_text(&*panic).to_owned(),
            Err(_passed) => format!("not done within {:?}", self.config.process_max),
        };
        self.report(&fault, part.len());
        None
    }

    /// Sends the answers, or returns the two halves of a suspect batch.
    fn answer(
        &self,
        mut part: BatchOf<T, P>,
        outcome: BatchOutcome<P::Output, P::Error>,
    ) -> Option<(BatchOf<T, P>, BatchOf<T, P>)> {
        match outcome {
            BatchOutcome::Answered(answers) if answers.len() == part.len() => {
                for (caller, answer) in part.callers.into_iter().zip(answers) {
                    caller.reply.send(answer.map_err(SubmitError::Item));
                }
                None
            }
            BatchOutcome::Answered(answers) => {
                // The answers cannot be assigned to callers, so none is sent.
                self.report(&format!("{} answers", answers.len()), part.len());
                None
            }
            BatchOutcome::Suspect(error) => {
                if part.len() > 1 {
                    let second = part.split_off_half();
                    return Some((part, second));
                }
                if let Some(caller) = part.callers.pop() {
                    caller.reply.send(Err(SubmitError::Item(error)));
                }
                None
            }
            BatchOutcome::Failed(error) => {
                let error = Arc::new(error);
                for caller in part.callers {
                    caller.reply.send(Err(SubmitError::Batch(Arc::clone(&error))));
                }
                None
            }
        }
    }

    fn report(&self, fault: &str, items: usize) {
        metrics::counter!("batcher_lost_total", "batcher" => self.name).increment(1);
        tracing::error!(batcher = self.name, fault, items, "batch lost");
    }
}

/// Converts a count to a metric value; no queue is longer than `u32::MAX`.
fn gauge_value(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
