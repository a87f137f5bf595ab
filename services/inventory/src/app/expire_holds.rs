//! Releases holds that nobody paid for in time, by the database's clock: the net under claims lost in a crash.

use super::App;
use crate::{error::Error, metrics, store};

impl App {
    /// Releases all that are past their time, some in each transaction. Any number of processes may do so at once.
    pub async fn expire_holds(&self) -> Result<(), Error> {
        let holds_max = self.config.holds.expire_batch_max;
        loop {
            let holds = self
                .stores
                .postgres
                .transaction("expire holds", |tx| async move {
                    let holds = store::hold::expire(&tx, holds_max).await?;
                    if !holds.is_empty() {
                        self.free_units_of(&tx, &holds).await?;
                    }
                    Ok::<_, Error>(holds)
                })
                .await?;
            if holds.is_empty() {
                return Ok(());
            }
            tracing::info!(holds = holds.len(), "holds expired");
            metrics::expired(holds.len());
            self.stores.outbox.wake_relay();
            self.return_units(&holds).await;
            if u32::try_from(holds.len()).is_ok_and(|count| count < holds_max) {
                return Ok(());
            }
        }
    }
}
