//! Background workers: one per payment step, and one that deletes old webhooks. Payment consumes no topic.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    BuildError,
    backoff::BackoffConfig,
    server::Chassis,
    worker::{Round, Worker},
};
use onsale_types::Named as _;

use crate::{app::App, config::Config, domain::PaymentStep};

/// Longest wait after failed rounds, on top of the interval.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

const DELETE_WEBHOOKS_EVERY: Duration = Duration::from_secs(10 * 60);

/// Starts all workers as tasks of the chassis.
pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    for step in PaymentStep::ALL.iter().copied() {
        let app = Arc::clone(app);
        worker(name(step), config.work.sweep_every).notified_by(app.worker_hints(step)).start(
            chassis.tasks(),
            move || {
                let app = Arc::clone(&app);
                async move { app.run_due_steps(step).await.map(round) }
            },
        );
    }
    let app = Arc::clone(app);
    worker("forget webhooks", DELETE_WEBHOOKS_EVERY).start(chassis.tasks(), move || {
        let app = Arc::clone(&app);
        async move { app.delete_old_webhooks().await.map(round) }
    });
    Ok(())
}

/// Returns a worker whose backoff is at most one interval after the first failed round and doubles up to [`BACKOFF_MAX`].
fn worker(name: &'static str, interval: Duration) -> Worker {
    let backoff = BackoffConfig {
        initial: interval,
        max: BACKOFF_MAX.max(interval),
        multiplier: 2,
        attempts_max: u32::MAX,
    };
    Worker::every(name, interval).backoff(backoff)
}

/// Returns the worker's name in logs and metrics.
const fn name(step: PaymentStep) -> &'static str {
    match step {
        PaymentStep::Initialize => "initialize payments",
        PaymentStep::PollProvider => "ask providers",
        PaymentStep::Settle => "settle payments",
        PaymentStep::Refund => "refund payments",
    }
}

const fn round(has_more: bool) -> Round {
    if has_more { Round::More } else { Round::Idle }
}
