//! Background loops: one per kind of step that payments are owed, and one that forgets old webhooks. Payment listens to no
//! topic of others.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
    tasks::Tasks,
};
use tokio_util::sync::CancellationToken;

use crate::{app::App, domain::Step, error::Error};

/// The longest wait while the stores cannot be reached.
const TROUBLE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often old webhooks are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(10 * 60);

/// Starts them all. They end with the task set.
pub fn spawn(app: &Arc<App>, tasks: &Tasks) {
    let steps = Step::ALL.iter().copied().map(Job::Step);
    for job in steps.chain([Job::ForgetWebhooks]) {
        tasks.spawn(job.name(), job.run(Arc::clone(app), tasks.token()));
    }
}

/// What one loop does.
#[derive(Clone, Copy)]
enum Job {
    Step(Step),
    ForgetWebhooks,
}

impl Job {
    fn name(self) -> &'static str {
        match self {
            Self::Step(Step::Initialize) => "initialize payments",
            Self::Step(Step::Ask) => "ask providers",
            Self::Step(Step::Settle) => "settle payments",
            Self::Step(Step::Refund) => "refund payments",
            Self::ForgetWebhooks => "forget webhooks",
        }
    }

    /// Waits and works in turn until `shutdown`, and waits longer while it fails.
    async fn run(self, app: Arc<App>, shutdown: CancellationToken) {
        let every = self.every(&app);
        let mut backoff = Backoff::new(BackoffConfig {
            initial: every,
            max: TROUBLE_WAIT_MAX.max(every),
            multiplier: 2,
            attempts_max: u32::MAX,
        });
        while shutdown.run_until_cancelled(self.wait(&app, every)).await.is_some() {
            match self.work_all(&app, &shutdown).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(job = self.name(), error = %Chain(&error), "background work failed, trying again later");
                    let pause = tokio::time::sleep(backoff.next_delay().unwrap_or(TROUBLE_WAIT_MAX));
                    shutdown.run_until_cancelled(pause).await;
                }
            }
        }
    }

    /// Works on at once while there may be more. What was begun is finished: its calls have their own ends.
    async fn work_all(self, app: &App, shutdown: &CancellationToken) -> Result<(), Error> {
        while self.work(app).await? && !shutdown.is_cancelled() {}
        Ok(())
    }

    async fn work(self, app: &App) -> Result<bool, Error> {
        match self {
            Self::Step(step) => app.sweep(step).await,
            Self::ForgetWebhooks => app.forget_webhooks().await,
        }
    }

    async fn wait(self, app: &App, every: Duration) {
        match self {
            Self::Step(step) => tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = app.wakes.woken(step) => {}
            },
            Self::ForgetWebhooks => tokio::time::sleep(every).await,
        }
    }

    fn every(self, app: &App) -> Duration {
        match self {
            Self::Step(_) => app.work.sweep_every,
            Self::ForgetWebhooks => FORGET_EVERY,
        }
    }
}
