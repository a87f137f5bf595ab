//! Background work: periodic jobs and the consumers of other services' events.

mod consumers;

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    BuildError,
    backoff::BackoffConfig,
    server::Chassis,
    worker::{Condition, Worker},
};
use onsale_storage::lease::Candidacy;
use tokio_stream::{StreamExt, wrappers::WatchStream};

use crate::{app::App, config::Config};

/// Lease of the process that reconciles the pools.
const RECONCILER_LEASE: &str = "pool-reconciler";

/// Wait after a failed round, on top of the interval. The next round repeats the work of the failed one.
const FAILED: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(10),
    multiplier: 2,
    attempts_max: u32::MAX,
};

pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    let tasks = chassis.tasks();
    let expiring = Arc::clone(app);
    Worker::every("expire holds", config.holds.expire_every).backoff(FAILED).start(tasks, move || {
        let app = Arc::clone(&expiring);
        async move { app.expire_holds().await }
    });
    let returning = Arc::clone(app);
    Worker::every("return quotas", config.quotas.return_every).backoff(FAILED).start(tasks, move || {
        let app = Arc::clone(&returning);
        async move { app.return_quotas().await }
    });
    let reconciling = Arc::clone(app);
    Worker::every("reconcile pools", config.pool.reconcile_every)
        .backoff(FAILED)
        .only_while(leads(app.stores().election.enter(RECONCILER_LEASE)?))
        .start(tasks, move || {
            let app = Arc::clone(&reconciling);
            async move { app.reconcile_pools().await }
        });
    consumers::start(app, tasks)
}

/// Returns the condition that this process holds the lease. A process that loses it finishes its round, which is harmless:
/// pools may be corrected by two processes at the same time.
fn leads(candidacy: Candidacy) -> Condition {
    let changes = WatchStream::from_changes(candidacy.leadership()).map(|_leadership| ());
    Condition::new(move || candidacy.lease().is_some(), changes)
}
