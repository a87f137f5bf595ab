//! Gives the unused units of quotas to the public sale when their time has come, by the database's clock.

use onsale_storage::postgres::Transaction;
use onsale_types::QuotaId;

use super::{super::App, QuotaUnits};
use crate::{
    domain::{counts::CountsChange, quota::Quota},
    error::Error,
    metrics, store,
};

impl App {
    /// Returns all that are due, each in a transaction of its own. Any number of processes may do so at once.
    pub async fn return_quotas(&self) -> Result<(), Error> {
        let postgres = &self.stores.postgres;
        let next = || {
            postgres.transaction(
                "return quota",
                |transaction| async move { self.return_next(&transaction).await },
            )
        };
        while let Some((quota_id, moved)) = next().await? {
            tracing::info!(%quota_id, units = moved.units.len(), "quota returned to the public sale");
            metrics::returned(moved.units.len());
            self.stores.outbox.wake_relay();
            self.settle_returned(moved).await;
        }
        Ok(())
    }

    /// Returns one that is due; answers it and the units that nobody has now.
    async fn return_next(&self, transaction: &Transaction) -> Result<Option<(QuotaId, QuotaUnits)>, Error> {
        let Some(mut quota) = store::quotas::lock_due(transaction).await? else { return Ok(None) };
        quota.give_up();
        let units = store::quotas::drop_units(transaction, &quota).await?;
        store::invitations::expire(transaction, quota.id).await?;
        store::quotas::save(transaction, &quota).await?;
        let Quota { id, event_id, sector_id, .. } = quota;
        let mut moved = QuotaUnits { event_id, sector_id, revision: 0, units };
        if moved.units.is_empty() {
            return Ok(Some((id, moved)));
        }
        let count = i32::try_from(moved.units.len()).unwrap_or(i32::MAX).saturating_neg();
        let counts =
            store::stocks::change(transaction, &[(sector_id, CountsChange::kept(count))].into()).await?;
        moved.revision = counts.get(&sector_id).map_or(0, |counts| counts.revision);
        // Kept units keep nobody from selling the event out, so somebody may do so right now: after the lock we see it.
        store::events::lock(transaction, event_id).await?;
        self.take_back(transaction, event_id).await?;
        Ok(Some((id, moved)))
    }
}
