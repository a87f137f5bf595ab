//! Tests of the batcher's guarantees on a paused clock: `rules` has one test each, `interleavings` combines them randomly.

mod interleavings;
mod rules;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use tokio::task::JoinHandle;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Refused(&'static str);

type TestBatcher = Batcher<u32, u32, Refused>;
type Answer = Result<u32, SubmitError<Refused>>;

/// Returns each number times ten after `work` per batch, and records its input.
#[derive(Clone, Default)]
struct TimesTen {
    batches: Arc<Mutex<Vec<Vec<u32>>>>,
    work: Duration,
    in_work: Arc<AtomicUsize>,
    in_work_max: Arc<AtomicUsize>,
    /// Deadlines under which the batches ran.
    deadlines: Arc<Mutex<Vec<Option<Deadline>>>>,
}

impl TimesTen {
    fn taking(work: Duration) -> Self {
        Self { work, ..Self::default() }
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.batches.lock().unwrap().clone()
    }
}

impl Processor<u32> for TimesTen {
    type Output = u32;
    type Error = Refused;

    async fn process(&self, items: &[u32]) -> BatchOutcome<u32, Refused> {
        self.batches.lock().unwrap().push(items.to_vec());
        self.deadlines.lock().unwrap().push(Deadline::current());
        let in_work = self.in_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.in_work_max.fetch_max(in_work, Ordering::SeqCst);
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        self.in_work.fetch_sub(1, Ordering::SeqCst);
        BatchOutcome::Answered(items.iter().map(|item| Ok(item * 10)).collect())
    }
}

/// Returns the result of a function.
struct Scripted<F>(F);

impl<F> Processor<u32> for Scripted<F>
where
    F: Fn(&[u32]) -> BatchOutcome<u32, Refused> + Send + Sync + 'static,
{
    type Output = u32;
    type Error = Refused;

    async fn process(&self, items: &[u32]) -> BatchOutcome<u32, Refused> {
        (self.0)(items)
    }
}

fn config() -> BatcherConfig {
    BatcherConfig { concurrency: 1, ..BatcherConfig::default() }
}

#[expect(clippy::disallowed_methods, reason = "a caller of a test, whose handle the test awaits")]
fn submit(batcher: &TestBatcher, item: u32) -> JoinHandle<Answer> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.submit(item).await })
}

#[expect(clippy::disallowed_methods, reason = "a caller of a test, whose handle the test awaits")]
fn submit_by(batcher: &TestBatcher, item: u32, deadline: Deadline) -> JoinHandle<Answer> {
    let batcher = batcher.clone();
    tokio::spawn(async move { deadline.scope(batcher.submit(item)).await })
}

/// Submits 1 to `count` before any of them is answered.
fn submit_many(batcher: &TestBatcher, count: u32) -> Vec<JoinHandle<Answer>> {
    (1..=count).map(|item| submit(batcher, item)).collect()
}

async fn answers(callers: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut all = Vec::new();
    for caller in callers {
        all.push(caller.await.unwrap());
    }
    all
}

/// Lets all ready tasks run. No time passes on the paused clock.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
