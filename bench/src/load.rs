//! Load generator: a fixed number of callers, each with one call in flight, for a fixed time. The measured server runs in
//! another process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use onsale::retry;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::report::per_second;

/// Size and duration of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) callers_per_connection: usize,
    /// Time during which calls are counted.
    pub(crate) measured: Duration,
    /// Time before that during which calls are made and not counted.
    pub(crate) warm_up: Duration,
}

impl Load {
    /// Returns the number of calls at this rate, warm-up included.
    pub(crate) fn calls_at(self, per_second: u64) -> u64 {
        per_second.saturating_mul((self.measured + self.warm_up).as_secs())
    }

    /// Returns the number of callers on all connections.
    pub(crate) fn callers(self) -> usize {
        self.connections.saturating_mul(self.callers_per_connection)
    }
}

/// Rate and response times of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) calls_per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Failure of a load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A call failed. A failed call ends the benchmark, because its time would distort the figures.
    #[error("a call failed with {code:?} {reason}: {message}")]
    Call {
        code: Code,
        /// `ErrorInfo.reason`; empty if there is none.
        reason: String,
        message: String,
    },
    /// The task of a caller panicked.
    #[error("the task of a caller panicked")]
    Caller(#[source] tokio::task::JoinError),
}

impl From<Status> for LoadError {
    fn from(status: Status) -> Self {
        let reason = retry::reason(&status).unwrap_or_default();
        Self::Call { code: status.code(), reason, message: status.message().to_owned() }
    }
}

/// Runs the load for its time. `caller` gets the number of a connection and returns a function that makes one call.
pub(crate) async fn run_for<C, F, Call>(load: Load, mut caller: C) -> Result<Outcome, LoadError>
where
    C: FnMut(usize) -> F,
    F: FnMut() -> Call + Send + 'static,
    Call: Future<Output = Result<(), Status>> + Send + 'static,
{
    let counting = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for connection in 0..load.connections {
        for _ in 0..load.callers_per_connection {
            callers.spawn(call_until_ended(caller(connection), Arc::clone(&counting), Arc::clone(&ended)));
        }
    }
    tokio::time::sleep(load.warm_up).await;
    counting.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    tokio::time::sleep(load.measured).await;
    counting.store(false, Ordering::Relaxed);
    let elapsed = begun.elapsed();
    ended.store(true, Ordering::Relaxed);

    let mut times = Vec::new();
    while let Some(caller) = callers.join_next().await {
        times.extend(caller.map_err(LoadError::Caller)??);
    }
    times.sort_unstable();
    let count = u64::try_from(times.len()).unwrap_or(u64::MAX);
    Ok(Outcome {
        calls_per_second: per_second(count, elapsed),
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
    })
}

async fn call_until_ended<F, Call>(
    mut call: F,
    counting: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
) -> Result<Vec<Duration>, LoadError>
where
    F: FnMut() -> Call,
    Call: Future<Output = Result<(), Status>>,
{
    let mut times = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        call().await?;
        if counting.load(Ordering::Relaxed) {
            times.push(begun.elapsed());
        }
    }
    Ok(times)
}

/// Runs the callers of `load` until a call of each returns `None`. Returns every other result with the time that its call took.
pub(crate) async fn run_until_done<C, F, Call, A>(
    load: Load,
    mut caller: C,
) -> Result<Vec<(Duration, A)>, LoadError>
where
    C: FnMut(usize) -> F,
    F: FnMut() -> Call + Send + 'static,
    Call: Future<Output = Result<Option<A>, Status>> + Send + 'static,
    A: Send + 'static,
{
    let mut callers = JoinSet::new();
    for connection in 0..load.connections {
        for _ in 0..load.callers_per_connection {
            let mut call = caller(connection);
            callers.spawn(async move {
                let mut answers = Vec::new();
                loop {
                    let begun = Instant::now();
                    match call().await? {
                        Some(answer) => answers.push((begun.elapsed(), answer)),
                        None => return Ok::<_, LoadError>(answers),
                    }
                }
            });
        }
    }
    let mut answers = Vec::new();
    while let Some(caller) = callers.join_next().await {
        answers.extend(caller.map_err(LoadError::Caller)??);
    }
    Ok(answers)
}

/// Returns the value below which `percent` of the sorted `times` are; zero if there are none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let index = times.len().saturating_mul(percent) / 100;
    times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_run_until_done_and_every_result_is_returned() {
        let once = Duration::from_secs(1);
        let load = Load { connections: 2, callers_per_connection: 3, measured: once, warm_up: once };
        assert_eq!((load.callers(), load.calls_at(10)), (6, 20));
        let left = Arc::new(std::sync::Mutex::new(20..40));
        let call = |left: &Arc<std::sync::Mutex<std::ops::Range<u32>>>| {
            let next = left.lock().unwrap().next();
            async move { Ok::<_, Status>(next) }
        };
        let answers = run_until_done(load, |_| {
            let left = Arc::clone(&left);
            move || call(&left)
        });
        let mut answers: Vec<u32> = answers.await.unwrap().into_iter().map(|(_, answer)| answer).collect();
        answers.sort_unstable();
        assert_eq!(answers, (20..40).collect::<Vec<_>>());
        let failed =
            run_until_done(load, |_| || async { Err::<Option<u32>, _>(Status::internal("no")) }).await;
        assert!(matches!(failed, Err(LoadError::Call { code: Code::Internal, .. })));
    }

    #[test]
    fn percentile_of_many_and_of_no_times() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(51));
        assert_eq!(percentile(&times, 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
