//! Expiry of holds: workers → app → store → engine::end_holds. Releases holds past their expiry, by the database's clock. Claim
//! releases its holds itself; this job covers claims that a crash lost.

use onsale_kit::worker::Round;

use super::App;
use crate::{error::Error, metrics, store};

impl App {
    /// Releases one batch of expired holds. Any number of processes may do so concurrently.
    pub(crate) async fn expire_holds(&self) -> Result<Round, Error> {
        let batch_max = self.config.holds.expire_batch_max;
        let (count, ended) = self
            .stores
            .postgres
            .transaction("expire holds", |transaction| async move {
                let holds = store::holds::expire(&transaction, batch_max).await?;
                Ok::<_, Error>((holds.len(), self.engine.after_end(&transaction, &[], holds).await?))
            })
            .await?;
        if count > 0 {
            tracing::info!(holds = count, "holds expired");
            metrics::expired(count);
            self.engine.apply_ended(&ended).await;
        }
        Ok(Round::of_batch(count, usize::try_from(batch_max).unwrap_or(usize::MAX)))
    }
}
