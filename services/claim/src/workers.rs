//! What runs in the background: expiry of claims, upkeep of holds, and other services' events.

mod consumers;
mod expiry;
mod releaser;

use std::{future::Future, sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
    server::Chassis,
};
use onsale_storage::messaging;

use crate::{app::App, config::ConsumersConfig, error::Error};

/// Waits after failed rounds; a round without failure begins them anew.
const FAILURES: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(10),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Starts them all.
pub fn start(app: &Arc<App>, config: &ConsumersConfig, chassis: &Chassis) -> Result<(), messaging::Error> {
    let tasks = chassis.tasks();
    tasks.spawn("expire claims", expiry::run(Arc::clone(app), tasks.token()));
    tasks.spawn("release holds", releaser::run(Arc::clone(app), tasks.token()));
    consumers::start(app, config, tasks)
}

/// Rounds of one worker: how long to wait after each.
struct Rounds {
    name: &'static str,
    every: Duration,
    failures: Backoff,
}

impl Rounds {
    fn new(name: &'static str, every: Duration) -> Self {
        Self { name, every, failures: Backoff::new(FAILURES) }
    }

    /// Runs one round, which says whether there is more to do at once. Answers how long to wait before the next.
    async fn round(&mut self, work: impl Future<Output = Result<bool, Error>>) -> Duration {
        match work.await {
            Ok(has_more) => {
                self.failures.reset();
                if has_more { Duration::ZERO } else { self.every }
            }
            Err(error) => {
                tracing::warn!(worker = self.name, error = %Chain(&error), "round failed, trying again");
                self.every + self.failures.next_delay().unwrap_or(FAILURES.max)
            }
        }
    }
}
