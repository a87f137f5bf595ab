//! Job `release holds`: workers → app → store::hold_attempts → engine::hold_releaser → clients::inventory.

use std::time::Duration;

use onsale_kit::worker::Round;

use super::App;
use crate::{error::Error, metrics, store};

/// Age at which a released attempt without a claim is deleted: no request is retried for so long.
const RETENTION: Duration = onsale_storage::idempotency::RETENTION;

impl App {
    /// Abandons attempts that never became a claim, releases due holds, and deletes old attempts; at most one batch of each.
    /// The next round starts at once if as many holds were due as fit into a batch.
    pub(crate) async fn reconcile_holds(&self) -> Result<Round, Error> {
        let (postgres, config) = (&self.stores.postgres, &self.holds);
        let abandoned =
            store::hold_attempts::abandon_stale(postgres, config.abandon_after, config.batch_max).await?;
        if abandoned > 0 {
            metrics::holds_abandoned(abandoned);
            tracing::info!(hold_count = abandoned, "hold attempts without a claim abandoned");
        }
        let due =
            store::hold_attempts::lease_releases(postgres, config.retry_after, config.batch_max).await?;
        let due_count = due.len();
        self.releaser.release_all(due, config.concurrency).await?;
        store::hold_attempts::delete_old(postgres, RETENTION, config.batch_max).await?;
        let batch_max = usize::try_from(config.batch_max).unwrap_or(usize::MAX);
        Ok(Round::of_batch(due_count, batch_max))
    }
}
