//! The nets: attempts that became no claim are given up, and holds noted for release are given back.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;

use super::App;
use crate::{error::Error, metrics, store};

/// How long an attempt that came to nothing is remembered: as long as a retry of its request may come.
const REMEMBERED: Duration = onsale_storage::idempotency::RETENTION;

impl App {
    /// Gives up what became no claim in time, gives back what is due, and forgets what is old; at most one batch of each.
    /// Says whether a batch was full, so that there may be more at once.
    pub async fn reconcile_holds(&self) -> Result<bool, Error> {
        let (postgres, config) = (&self.stores.postgres, &self.holds);
        let abandoned =
            store::hold_attempts::abandon_stale(postgres, config.abandon_after, config.batch_max).await?;
        if abandoned > 0 {
            metrics::holds_abandoned(abandoned);
            tracing::info!(hold_count = abandoned, "holds that became no claim are given back");
        }
        let due = store::hold_attempts::take_due(postgres, config.retry_after, config.batch_max).await?;
        let count = due.len();
        let release = async |hold| (hold, self.inventory.release(hold).await);
        let releases = stream::iter(due).map(release).buffer_unordered(config.concurrency);
        let (mut released, mut failures) = (Vec::with_capacity(count), Vec::new());
        for (hold, outcome) in releases.collect::<Vec<_>>().await {
            match outcome {
                Ok(release) => released.push((hold, release)),
                Err(error) => failures.push(error),
            }
        }
        self.finish_releases(&released).await?;
        // One line for all of them: without Inventory they fail together.
        if let Some(error) = failures.first() {
            let hold_count = failures.len();
            tracing::warn!(hold_count, error = %Chain(error), "failed to give back holds, trying again later");
        }
        store::hold_attempts::forget(postgres, REMEMBERED, config.batch_max).await?;
        let batch_max = usize::try_from(config.batch_max).unwrap_or(usize::MAX);
        Ok(count >= batch_max)
    }
}
