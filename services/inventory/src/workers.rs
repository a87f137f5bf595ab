//! Work that nobody waits for: loops, each with its pace, and the consumers of others' events.

pub mod consumers;

use std::{future::Future, sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
    tasks::Tasks,
};
use onsale_storage::lease::{self, Leadership, Lease};

use crate::{app::App, error::Error};

/// Which process compares the pools is decided by the lease of this name.
const RECONCILER_LEASE: &str = "pool-reconciler";

/// After a failed round; whatever failed, the next round does the work of this one too.
const FAILED: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(10),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Starts the loops.
pub fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), lease::Error> {
    let expiring = Arc::clone(app);
    repeat(tasks, "expire holds", app.config().holds.expire_every, move || {
        let app = Arc::clone(&expiring);
        async move { app.expire_holds().await }
    });
    let returning = Arc::clone(app);
    repeat(tasks, "return quotas", app.config().quotas.return_every, move || {
        let app = Arc::clone(&returning);
        async move { app.return_quotas().await }
    });
    let candidacy = app.stores().election.enter(RECONCILER_LEASE)?;
    let reconciling = Arc::clone(app);
    repeat(tasks, "reconcile pools", app.config().pool.reconcile_every, move || {
        let app = Arc::clone(&reconciling);
        let mut leadership = candidacy.leadership();
        async move {
            // Whoever comes to lead begins at once: the one before may have died in the middle. An election that has ended
            // is the end of the process.
            let leads = |leadership: &Leadership| leadership.lease().is_some_and(Lease::is_current);
            if leadership.wait_for(leads).await.is_err() {
                return Ok(());
            }
            app.reconcile().await
        }
    });
    Ok(())
}

/// Does `round` at once and then every `pace`, until the process stops; a round that failed is tried again sooner or later, by a backoff.
fn repeat<F>(tasks: &Tasks, name: &'static str, pace: Duration, mut round: impl FnMut() -> F + Send + 'static)
where
    F: Future<Output = Result<(), Error>> + Send,
{
    let shutdown = tasks.token();
    tasks.spawn(name, async move {
        let mut backoff = Backoff::new(FAILED);
        let mut pause = Duration::ZERO;
        while shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            pause = match shutdown.run_until_cancelled(round()).await {
                Some(Ok(())) => {
                    backoff.reset();
                    pace
                }
                Some(Err(error)) => {
                    tracing::warn!(task = name, error = %Chain(&error), "round failed, trying again");
                    backoff.next_delay().unwrap_or(FAILED.max)
                }
                None => return,
            };
        }
    });
}
