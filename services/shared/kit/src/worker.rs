//! Background loops: every periodic worker of the chassis and of the services is a [`Worker`].
//!
//! - The first round starts immediately; the next one after the interval plus jitter of up to 10 %.
//! - A failed round, or one that panicked, adds a backoff to the interval. A successful round resets the backoff.
//! - A hint starts the next round early, but never shortens a backoff.
//! - A round that returns [`Round::More`] is followed by the next one immediately.
//! - At shutdown a running round finishes; only the drain bound of the task set ends it early.
//! - Under a [`Condition`], such as leadership, rounds start only while it is met, the first as soon as it is.

use std::{
    fmt,
    future::{Future, pending},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt, Stream, StreamExt,
    future::select_all,
    stream::{BoxStream, SelectAll},
};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::{Backoff, BackoffConfig, jittered},
    error::Chain,
    tasks::{Tasks, WorkerProgress, panic_text},
};

mod condition;
#[cfg(test)]
mod tests;

pub use condition::Condition;

/// Waits after failed rounds, in addition to the interval, unless [`Worker::backoff`] replaces them.
const FAILURES: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(10),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Maximum number of hints that one round answers, so that an endless source of hints cannot delay the round forever.
const HINTS_SKIPPED_MAX: usize = 10_000;

/// The outcome of a round that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There may be more to do: the next round starts immediately.
    More,
    /// Nothing is left to do until the interval is over or a hint arrives.
    Idle,
    /// The loop has served its purpose and ends, for example because the last watcher has left.
    Done,
}

impl Round {
    /// Returns `More` if a round that handles at most `batch_max` items handled that many.
    #[must_use]
    pub fn of_batch(handled: usize, batch_max: usize) -> Self {
        if handled >= batch_max { Self::More } else { Self::Idle }
    }
}

impl From<()> for Round {
    fn from((): ()) -> Self {
        Self::Idle
    }
}

/// A background loop that has not started yet.
#[must_use = "a worker does nothing until it is started"]
pub struct Worker {
    name: &'static str,
    /// `None`: rounds start on hints only.
    interval: Option<Duration>,
    failures: BackoffConfig,
    hints: SelectAll<BoxStream<'static, ()>>,
    notifies: Vec<Arc<Notify>>,
    hint_delay: Duration,
    condition: Option<Condition>,
}

impl Worker {
    /// Creates a worker with a round every `interval`. Its name appears in logs and as a metric label.
    pub fn every(name: &'static str, interval: Duration) -> Self {
        Self::new(name, Some(interval))
    }

    /// Creates a worker whose rounds, after the first, start on hints only.
    pub fn on_hints(name: &'static str) -> Self {
        Self::new(name, None)
    }

    fn new(name: &'static str, interval: Option<Duration>) -> Self {
        Self {
            name,
            interval,
            failures: FAILURES,
            hints: SelectAll::new(),
            notifies: Vec::new(),
            hint_delay: Duration::ZERO,
            condition: None,
        }
    }

    /// Replaces the waits after failed rounds (default: up to 200 ms, doubling to 10 s). A worker never gives up, so
    /// `attempts_max` does not count.
    pub fn backoff(mut self, failures: BackoffConfig) -> Self {
        self.failures = BackoffConfig { attempts_max: u32::MAX, ..failures };
        self
    }

    /// Adds a source of hints; the worker listens to all of its sources.
    pub fn hinted_by(mut self, hints: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.hints.push(hints.boxed());
        self
    }

    /// Adds a [`Notify`] as a source of hints. A permit that is stored while a round runs starts the next one early. Workers may
    /// share a `Notify`: only those that wait take its permits.
    pub fn notified_by(mut self, notify: Arc<Notify>) -> Self {
        self.notifies.push(notify);
        self
    }

    /// Delays the round after a hint (default: not at all), so that one round serves a burst of hints.
    pub fn hint_delay(mut self, delay: Duration) -> Self {
        self.hint_delay = delay;
        self
    }

    /// Restricts rounds to the times at which `condition` is met. A round that is running when the condition is lost
    /// finishes: its transactions check the lease.
    pub fn only_while(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// Runs the loop as a task of `tasks` until shutdown or [`Round::Done`].
    pub fn start<F, R, E>(self, tasks: &Tasks, round: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Round> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let progress = tasks.worker_progress(self.name);
        tasks.spawn(self.name, self.run(tasks.token(), progress, round));
    }

    async fn run<F, R, E>(
        mut self,
        shutdown: CancellationToken,
        progress: Arc<WorkerProgress>,
        mut round: impl FnMut() -> F,
    ) where
        F: Future<Output = Result<R, E>>,
        R: Into<Round>,
        E: std::error::Error + 'static,
    {
        let mut backoff = Backoff::new(self.failures);
        let (rounds, failures) = counters(self.name);
        while self.wait_for_condition(&shutdown).await {
            let outcome = AssertUnwindSafe(async { round().await }).catch_unwind().await;
            rounds.increment(1);
            let failure = match outcome {
                Ok(Ok(outcome)) => {
                    progress.succeeded();
                    backoff.reset();
                    match outcome.into() {
                        Round::More => {
                            // Lets other tasks of this thread run between the rounds of a long backlog.
                            tokio::task::yield_now().await;
                            continue;
                        }
                        Round::Idle => None,
                        Round::Done => return,
                    }
                }
                Ok(Err(error)) => Some(Chain(&error).to_string()),
                Err(panic) => Some(format!("panicked: {}", panic_text(&*panic))),
            };
            if let Some(error) = failure {
                failures.increment(1);
                let delay = backoff.next_delay().unwrap_or(self.failures.max);
                tracing::warn!(worker = self.name, %error, ?delay, "worker round failed, retrying after a backoff");
                // Hints that arrive during the backoff wait in their sources.
                if shutdown.run_until_cancelled(sleep(delay)).await.is_none() {
                    return;
                }
            }
            if shutdown.run_until_cancelled(self.pause()).await.is_none() {
                return;
            }
        }
    }

    /// Waits until the condition is met. Returns false if shutdown comes first.
    async fn wait_for_condition(&mut self, shutdown: &CancellationToken) -> bool {
        let Some(condition) = &mut self.condition else { return !shutdown.is_cancelled() };
        while !shutdown.is_cancelled() {
            if condition.is_met() {
                return true;
            }
            condition.report_unmet();
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = condition.changed() => {}
                // Leadership can also end by time alone, without a notice.
                () = next_interval(self.interval) => {}
            }
        }
        false
    }

    /// Waits for the interval, a hint or a change of the condition, whichever comes first.
    async fn pause(&mut self) {
        let changed = async {
            match &mut self.condition {
                Some(condition) => condition.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = next_interval(self.interval) => {}
            () = changed => {}
            Some(()) = self.hints.next() => sleep(self.hint_delay).await,
            () = notified(&self.notifies) => sleep(self.hint_delay).await,
        }
        // Further hints of the burst ask for the round that starts now.
        let _ = notified(&self.notifies).now_or_never();
        for _ in 0..HINTS_SKIPPED_MAX {
            if !matches!(self.hints.next().now_or_never(), Some(Some(()))) {
                break;
            }
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Completes when one of `notifies` has a permit for this worker; never without any. Waits anew each time: a waiter that stayed
/// registered during a round would take permits from workers that are idle.
async fn notified(notifies: &[Arc<Notify>]) {
    if notifies.is_empty() {
        return pending().await;
    }
    let waits = notifies.iter().map(|notify| Box::pin(notify.notified()));
    select_all(waits).await;
}

/// Sleeps for the interval plus up to 10 %, so that pods do not work in step. Never ends without an interval.
async fn next_interval(interval: Option<Duration>) {
    match interval {
        Some(interval) => sleep(jittered(interval, 100..=110)).await,
        None => pending().await,
    }
}

fn counters(name: &'static str) -> (metrics::Counter, metrics::Counter) {
    metrics::describe_counter!("worker_rounds_total", "Rounds of a background worker, failed ones included.");
    metrics::describe_counter!(
        "worker_failures_total",
        "Rounds of a background worker that failed or panicked."
    );
    (
        metrics::counter!("worker_rounds_total", "worker" => name),
        metrics::counter!("worker_failures_total", "worker" => name),
    )
}
