//! Counts what an operator watches.

use std::time::Duration;

use onsale_kit::error::Chain;
use onsale_storage::postgres::Postgres;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{metrics, store};

const EVERY: Duration = Duration::from_secs(15);

/// Reports counts until `shutdown`.
pub(crate) async fn run(postgres: Postgres, shutdown: CancellationToken) {
    let mut rounds = interval(EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = rounds.tick() => {}
        }
        match store::deliveries::counts(&postgres).await {
            Ok((dead, open, waiting)) => metrics::counts(dead, open, waiting),
            Err(error) => tracing::debug!(error = %Chain(&error), "failed to count deliveries"),
        }
    }
}
