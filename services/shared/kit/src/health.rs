//! Readiness of this instance, the source of `/readyz` and gRPC health.
//!
//! Checks run in the background every second, and probes get the last verdict. So any number of probes costs nothing, and
//! a store that hangs cannot make a probe hang.

use std::{
    collections::BTreeMap, convert::Infallible, fmt, future::Future, panic::AssertUnwindSafe, pin::Pin,
    sync::Arc, time::Duration,
};

use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    tasks::{Tasks, panic_text},
    worker::Worker,
};

/// Pause between two rounds of checks (plus up to 10 % jitter).
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of one check; a check that exceeds it has failed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

type CheckResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;
type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = CheckResult> + Send>> + Send + Sync>;

/// The named checks of this instance and their last verdict. Clones share both.
#[derive(Clone)]
pub struct Readiness {
    shared: Arc<Shared>,
}

struct Shared {
    checks: Mutex<Vec<(&'static str, Check)>>,
    verdict: watch::Sender<Verdict>,
}

/// Verdict of the last round of checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// False until the first round of checks is over.
    pub started: bool,
    /// Set for good when the process begins to stop.
    pub draining: bool,
    /// Failing checks by name, each with its error.
    pub failing: BTreeMap<&'static str, String>,
}

impl Verdict {
    /// Returns true if load balancers should send calls to this instance.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.started && !self.draining && self.failing.is_empty()
    }
}

impl Readiness {
    /// Creates a readiness without checks. It is not ready before the first round.
    #[must_use]
    pub fn new() -> Self {
        let verdict = Verdict { started: false, draining: false, failing: BTreeMap::new() };
        Self { shared: Arc::new(Shared { checks: Mutex::default(), verdict: watch::Sender::new(verdict) }) }
    }

    /// Adds a check of something that the service cannot work without. It runs every second, so keep it cheap.
    pub fn add_check<F, R>(&self, name: &'static str, check: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = CheckResult> + Send + 'static,
    {
        let check: Check = Arc::new(move || Box::pin(check()));
        self.checks().push((name, check));
    }

    /// The verdict of the last round.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.shared.verdict.borrow().clone()
    }

    /// Returns a receiver that sees every change of the verdict.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Verdict> {
        self.shared.verdict.subscribe()
    }

    /// Makes this instance not ready for good.
    pub(crate) fn begin_drain(&self) {
        self.shared.verdict.send_modify(|verdict| verdict.draining = true);
    }

    /// Runs all checks once, concurrently, and records the verdict.
    pub(crate) async fn run_checks(&self) {
        let checks = self.checks().clone();
        let results = checks.into_iter().map(|(name, check)| async move {
            // A panic would end the rounds, and the last verdict would never change again.
            let check = AssertUnwindSafe(async { check().await }).catch_unwind();
            match tokio::time::timeout(CHECK_TIMEOUT, check).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Err(panic)) => Some((name, format!("panicked: {}", panic_text(&*panic)))),
                Ok(Ok(Err(error))) => Some((name, crate::error::Chain(&*error).to_string())),
                Err(_) => Some((name, format!("no answer within {CHECK_TIMEOUT:?}"))),
            }
        });
        let failing: BTreeMap<_, _> =
            futures_util::future::join_all(results).await.into_iter().flatten().collect();
        self.shared.verdict.send_if_modified(|verdict| {
            let has_changed = !verdict.started || verdict.failing != failing;
            if has_changed && !failing.is_empty() {
                tracing::warn!(?failing, "not ready");
            } else if has_changed {
                tracing::info!("ready");
            }
            verdict.started = true;
            verdict.failing = failing;
            has_changed
        });
    }

    /// Starts a worker that repeats the checks every second until shutdown.
    pub(crate) fn watch(&self, tasks: &Tasks) {
        let readiness = self.clone();
        Worker::every("readiness", CHECK_INTERVAL).start(tasks, move || {
            let readiness = readiness.clone();
            async move {
                readiness.run_checks().await;
                Ok::<_, Infallible>(())
            }
        });
    }

    fn checks(&self) -> MutexGuard<'_, Vec<(&'static str, Check)>> {
        self.shared.checks.lock()
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Readiness").field("verdict", &self.verdict()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn broken() -> CheckResult {
        panic!("on request")
    }

    #[tokio::test]
    async fn panicking_check_fails_and_others_still_count() {
        let readiness = Readiness::new();
        readiness.add_check("broken", broken);
        readiness.add_check("good", async || Ok(()));
        readiness.run_checks().await;
        let failing = readiness.verdict().failing;
        assert_eq!(failing, BTreeMap::from([("broken", "panicked: on request".to_owned())]));
    }
}
