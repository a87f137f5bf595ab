//! Releases holds that no claim uses. In `hold_attempt` a hold is due for release until Inventory has released it.

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::postgres::Postgres;
use onsale_types::HoldId;

use crate::{
    clients::inventory::{Inventory, ReleaseOutcome},
    error::Error,
    metrics, store,
};

/// Client of Inventory that records the outcome of each release.
#[derive(Debug)]
pub(crate) struct HoldReleaser {
    postgres: Postgres,
    inventory: Inventory,
}

impl HoldReleaser {
    pub(crate) fn new(postgres: Postgres, inventory: Inventory) -> Self {
        Self { postgres, inventory }
    }

    /// Releases a hold that is due.
    pub(crate) async fn release(&self, hold_id: HoldId) -> Result<(), Error> {
        let outcome = self.inventory.release_hold(hold_id).await?;
        self.finish(&[(hold_id, outcome)]).await
    }

    /// Releases a hold that is due. After a failure the worker `release holds` retries it.
    pub(crate) async fn try_release(&self, hold_id: HoldId) {
        if let Err(error) = self.release(hold_id).await {
            tracing::warn!(%hold_id, error = %Chain(&error), "failed to release a hold, a worker will retry");
        }
    }

    /// Releases holds that are due, at most `concurrency` at a time.
    pub(crate) async fn release_all(&self, holds: Vec<HoldId>, concurrency: usize) -> Result<(), Error> {
        let release = async |hold_id| (hold_id, self.inventory.release_hold(hold_id).await);
        let releases: Vec<_> = stream::iter(holds).map(release).buffer_unordered(concurrency).collect().await;
        let (mut released, mut failures) = (Vec::with_capacity(releases.len()), Vec::new());
        for (hold_id, outcome) in releases {
            match outcome {
                Ok(outcome) => released.push((hold_id, outcome)),
                Err(error) => failures.push(error),
            }
        }
        self.finish(&released).await?;
        // One message for all failures: without Inventory they fail together.
        if let Some(error) = failures.first() {
            let hold_count = failures.len();
            tracing::warn!(hold_count, error = %Chain(error), "failed to release holds, retrying later");
        }
        Ok(())
    }

    /// Abandons an attempt without a claim and releases its hold. After a failure the worker `release holds` does it.
    pub(crate) async fn abandon(&self, hold_id: HoldId) {
        match store::hold_attempts::abandon(&self.postgres, hold_id).await {
            Ok(true) => self.try_release(hold_id).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%hold_id, error = %Chain(&error), "failed to abandon a hold, a worker will retry");
            }
        }
    }

    async fn finish(&self, released: &[(HoldId, ReleaseOutcome)]) -> Result<(), Error> {
        for is_committed in [false, true] {
            let has_outcome = |outcome| (outcome == ReleaseOutcome::Committed) == is_committed;
            let holds = released.iter().filter(|(_, outcome)| has_outcome(*outcome));
            let holds: Vec<HoldId> = holds.map(|(hold_id, _)| *hold_id).collect();
            if is_committed && !holds.is_empty() {
                // Only holds of paid claims are committed, and those are never due for release.
                tracing::error!(?holds, "holds due for release are committed");
            }
            store::hold_attempts::finish_releases(&self.postgres, &holds, is_committed).await?;
        }
        metrics::holds_released(released.len());
        Ok(())
    }
}
