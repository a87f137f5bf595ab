//! Task set of the process. Every background task is spawned here, so that shutdown can ask all of them to end, wait for a
//! bounded time, and name those that did not.
//!
//! A panic ends only its own task; it is logged and counted.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::{task::AbortHandle, time::Instant};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};

/// Background tasks that end together. Clones share one set.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    set: Arc<TaskSet>,
}

#[derive(Debug, Default)]
struct TaskSet {
    tracker: TaskTracker,
    /// Cancelled at the start of shutdown; tasks with loops end on it.
    shutdown: CancellationToken,
    running: Mutex<Running>,
    /// Progress of the running background workers, by name.
    workers: Mutex<BTreeMap<&'static str, Weak<WorkerProgress>>>,
}

/// Time of the last success of the workers with one name, for the metric `worker_last_success_age_seconds`.
#[derive(Debug)]
pub(crate) struct WorkerProgress {
    age: metrics::Gauge,
    last_success: Mutex<Instant>,
}

#[derive(Debug, Default)]
struct Running {
    next_id: u64,
    tasks: BTreeMap<u64, RunningTask>,
}

#[derive(Debug)]
struct RunningTask {
    name: &'static str,
    /// `None` until the task has been passed to the runtime.
    abort: Option<AbortHandle>,
}

impl Tasks {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts `task`. The name appears in logs, in metrics and in the result of [`Tasks::shutdown`]; it is a constant, so
    /// that the number of metrics stays bounded. A task with a loop must end it when [`Tasks::token`] is cancelled. A task
    /// that starts during shutdown runs with a cancelled token, and shutdown waits for it too.
    ///
    /// The returned handle aborts the task; dropping the handle does nothing.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = self.set.register(name);
        let guard = RunningGuard { set: Arc::clone(&self.set), id };
        let handle = self.set.tracker.spawn(async move {
            // Owned by the task, so it is dropped when the task returns, panics or is aborted.
            let _guard = guard;
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                metrics::counter!("task_panics_total", "task" => name).increment(1);
                tracing::error!(task = name, panic = panic_text(&*panic), "task panicked");
            }
        });
        let abort = handle.abort_handle();
        if let Some(running) = self.set.lock().tasks.get_mut(&id) {
            running.abort = Some(abort.clone());
        }
        abort
    }

    /// Returns the token that shutdown cancels.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.set.shutdown.clone()
    }

    /// Completes when shutdown begins.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.set.shutdown.cancelled()
    }

    /// Returns the names of the running tasks in alphabetical order, each once.
    #[must_use]
    pub fn running(&self) -> Vec<&'static str> {
        let names: BTreeSet<_> = self.set.lock().tasks.values().map(|task| task.name).collect();
        names.into_iter().collect()
    }

    /// Returns the progress that all workers called `name` share. Its age counts from the start of the first one.
    pub(crate) fn worker_progress(&self, name: &'static str) -> Arc<WorkerProgress> {
        let mut workers = self.set.workers.lock();
        let running = workers.get(name).and_then(Weak::upgrade);
        running.unwrap_or_else(|| {
            let started = Arc::new(WorkerProgress::new(name));
            workers.insert(name, Arc::downgrade(&started));
            started
        })
    }

    /// Updates the age gauges. Call it before metrics are read.
    pub(crate) fn report_worker_ages(&self) {
        let workers: Vec<_> = self.set.workers.lock().values().filter_map(Weak::upgrade).collect();
        for worker in workers {
            worker.report();
        }
    }

    /// Cancels the token and waits for all tasks, at most `bound`. Aborts the remaining tasks and returns their names; an
    /// empty list means that all ended by themselves.
    pub async fn shutdown(&self, bound: Duration) -> Vec<&'static str> {
        self.set.shutdown.cancel();
        self.set.tracker.close();
        if tokio::time::timeout(bound, self.set.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let left = self.running();
        tracing::warn!(tasks = ?left, ?bound, "tasks did not end within the drain time, aborting them");
        let handles: Vec<_> = self.set.lock().tasks.values().filter_map(|task| task.abort.clone()).collect();
        for handle in handles {
            handle.abort();
        }
        left
    }
}

impl TaskSet {
    fn register(&self, name: &'static str) -> u64 {
        metrics::gauge!("tasks_running", "task" => name).increment(1.0);
        let mut running = self.lock();
        let id = running.next_id;
        running.next_id = running.next_id.wrapping_add(1);
        running.tasks.insert(id, RunningTask { name, abort: None });
        id
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock()
    }
}

impl WorkerProgress {
    fn new(name: &'static str) -> Self {
        metrics::describe_gauge!(
            "worker_last_success_age_seconds",
            metrics::Unit::Seconds,
            "Time since a round of a background worker last succeeded, or since its start. A process that does not lead \
             runs no rounds of a leader's workers: take the minimum over processes."
        );
        let age = metrics::gauge!("worker_last_success_age_seconds", "worker" => name);
        Self { age, last_success: Mutex::new(Instant::now()) }
    }

    pub(crate) fn succeeded(&self) {
        *self.last_success.lock() = Instant::now();
    }

    fn report(&self) {
        self.age.set(self.last_success.lock().elapsed().as_secs_f64());
    }
}

impl Drop for WorkerProgress {
    /// Resets the gauge, so that a worker that ended does not look stuck.
    fn drop(&mut self) {
        self.age.set(0.0);
    }
}

/// Removes a task from the list of running tasks when it is dropped.
struct RunningGuard {
    set: Arc<TaskSet>,
    id: u64,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let left = self.set.lock().tasks.remove(&self.id);
        if let Some(task) = left {
            metrics::gauge!("tasks_running", "task" => task.name).decrement(1.0);
        }
    }
}

/// Returns the message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "no message"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const BOUND: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_every_task() {
        let tasks = Tasks::new();
        let ended = Arc::new(AtomicBool::new(false));
        let (token, ended_in_task) = (tasks.token(), Arc::clone(&ended));
        tasks.spawn("slow", async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            ended_in_task.store(true, Ordering::SeqCst);
        });
        assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_names_and_aborts_tasks_that_do_not_end() {
        let tasks = Tasks::new();
        let token = tasks.token();
        tasks.spawn("polite", async move { token.cancelled().await });
        tasks.spawn("deaf", std::future::pending());
        let begin = tokio::time::Instant::now();
        assert_eq!(tasks.shutdown(BOUND).await, ["deaf"]);
        assert_eq!(begin.elapsed(), BOUND);
        tokio::time::timeout(BOUND, tasks.set.tracker.wait()).await.expect("an aborted task ends");
        assert!(tasks.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn panic_ends_only_its_own_task() {
        let tasks = Tasks::new();
        let token = tasks.token();
        tasks.spawn("steady", async move { token.cancelled().await });
        tasks.spawn("broken", async { panic!("a fault in a task") });
        while tasks.running().contains(&"broken") {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.running(), ["steady"]);
        assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_task_leaves_the_list() {
        let tasks = Tasks::new();
        tasks.spawn("endless", std::future::pending()).abort();
        while !tasks.running().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_a_task_that_started_meanwhile() {
        let tasks = Tasks::new();
        let (inner, token) = (tasks.clone(), tasks.token());
        let ended = Arc::new(AtomicBool::new(false));
        let ended_in_task = Arc::clone(&ended);
        tasks.spawn("parent", async move {
            token.cancelled().await;
            inner.spawn("child", async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                ended_in_task.store(true, Ordering::SeqCst);
            });
        });
        assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
        assert!(ended.load(Ordering::SeqCst));
    }
}
