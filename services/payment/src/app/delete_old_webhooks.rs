//! Job "forget webhooks": workers → app → store::webhooks.

use super::App;
use crate::{error::Error, store::webhooks};

/// Most webhooks that one statement deletes.
const DELETE_MAX: u32 = 1_000;

impl App {
    /// Deletes webhooks that no provider sends again. Returns true if there may be more.
    pub(crate) async fn delete_old_webhooks(&self) -> Result<bool, Error> {
        let retention = self.work.webhooks_kept;
        let deleted = webhooks::delete_old(&self.stores.postgres, retention, DELETE_MAX).await?;
        Ok(deleted >= u64::from(DELETE_MAX))
    }
}
