//! The load generator: a fixed number of callers, each with one call under way at a time, for a fixed time.
//! It runs in another process than what it measures.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::report::per_second;
use onsale::retry;

/// How a load is put on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Connections opened.
    pub(crate) connections: usize,
    /// Callers that share one connection.
    pub(crate) callers_per_connection: usize,
    /// How long calls are counted.
    pub(crate) measured: Duration,
    /// How long calls are made before that, uncounted.
    pub(crate) warm_up: Duration,
}

impl Load {
    /// How many calls there can be at this rate, warm-up included.
    pub(crate) fn calls_at(self, per_second: u64) -> u64 {
        per_second.saturating_mul((self.measured + self.warm_up).as_secs())
    }

    /// All callers together.
    pub(crate) fn callers(self) -> usize {
        self.connections.saturating_mul(self.callers_per_connection)
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Calls answered per second.
    pub(crate) calls_per_second: f64,
    /// The time under which half of the calls were answered.
    pub p50: Duration,
    /// The time under which 99 of 100 were.
    pub p99: Duration,
}

/// Why a load could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A call failed: a benchmark of failures is worth nothing.
    #[error("a call failed with {code:?} {reason}: {message}")]
    Call {
        /// The status it failed with.
        code: Code,
        /// The reason that it carries; empty: none.
        reason: String,
        /// And its message.
        message: String,
    },
    /// A caller ended before its time.
    #[error("a caller ended before its time")]
    Caller(#[source] tokio::task::JoinError),
}

impl From<Status> for LoadError {
    fn from(status: Status) -> Self {
        let reason = retry::reason(&status).unwrap_or_default();
        Self::Call { code: status.code(), reason, message: status.message().to_owned() }
    }
}

/// Puts the load on. `caller` is given the number of its connection and makes a function that makes one call.
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

/// Lets the callers of `load` call until nobody is left to call: a call without an answer says so. Answers each with the
/// time that it took.
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

/// The value below which `percent` of the sorted `times` lie; zero of none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let index = times.len().saturating_mul(percent) / 100;
    times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_calls_once_and_every_answer_is_told() {
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
    fn percentiles_of_few_and_many() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(51));
        assert_eq!(percentile(&times, 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
