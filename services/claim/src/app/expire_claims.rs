//! Job `expire claims`: workers → app → store::claims → engine::claim_writer.

use onsale_kit::worker::Round;

use super::App;
use crate::{domain::ReleaseReason, error::Error, store};

impl App {
    /// Releases one batch of unpaid claims whose time is over by the database's clock. The next round starts at once if the batch
    /// was full.
    pub(crate) async fn expire_claims(&self) -> Result<Round, Error> {
        let batch_max = self.claims.expire_batch_max;
        let expired = self
            .stores
            .postgres
            .transaction("expire claims", |transaction| async move {
                let locked = store::claims::lock_expired(&transaction, batch_max).await?;
                let claim_count = locked.len();
                self.writer.release_all(&transaction, locked, ReleaseReason::Expired).await?;
                Ok::<_, Error>(claim_count)
            })
            .await?;
        if expired > 0 {
            tracing::info!(claim_count = expired, "unpaid claims expired");
            self.writer.after_commit();
        }
        Ok(Round::of_batch(expired, usize::try_from(batch_max).unwrap_or(usize::MAX)))
    }
}
