//! What runs beside the calls: consumers of others' events, the making of tickets, and orders that wait for theirs.

pub mod consumers;

mod generator;
mod issuer;

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
    tasks::Tasks,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{app::App, error::Error};

/// The pauses of a worker whose store is away; its number of attempts does not count.
const OUTAGE: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(10),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Starts the workers.
pub fn start(app: &Arc<App>, tasks: &Tasks) {
    for _ in 0..app.generation.workers.get() {
        tasks.spawn("generator", generator::run(Arc::clone(app), tasks.token()));
    }
    tasks.spawn("issuer", issuer::run(Arc::clone(app), tasks.token()));
}

/// The pace of a worker: a round at once when it is hinted at, else every interval, later when it failed.
struct Pace {
    worker: &'static str,
    interval: Duration,
    backoff: Backoff,
}

impl Pace {
    fn new(worker: &'static str, interval: Duration) -> Self {
        Self { worker, interval, backoff: Backoff::new(OUTAGE) }
    }

    /// Waits for the next round after one that `ended` so.
    async fn wait(&mut self, ended: Result<(), Error>, hint: &Notify, shutdown: &CancellationToken) {
        let pause = match ended {
            Ok(()) => {
                self.backoff.reset();
                self.interval
            }
            Err(error) => {
                tracing::warn!(worker = self.worker, error = %Chain(&error), "worker failed, trying again");
                self.backoff.next_delay().unwrap_or(OUTAGE.max).max(self.interval)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = hint.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
