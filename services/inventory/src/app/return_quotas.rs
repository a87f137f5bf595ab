//! Return of quotas: workers → app → store → domain::quota → store → engine. Moves the unused units of quotas past their return
//! time, by the database's clock, to the public sale.

use onsale_kit::worker::Round;
use onsale_storage::postgres::Transaction;
use onsale_types::QuotaId;

use super::App;
use crate::{
    domain::{counts::CountsChange, quota::Quota},
    engine::QuotaUnits,
    error::Error,
    metrics, store,
};

impl App {
    /// Returns one quota that is due. Any number of processes may do so concurrently.
    pub(crate) async fn return_quotas(&self) -> Result<Round, Error> {
        let postgres = &self.stores.postgres;
        let returned = postgres
            .transaction("return quota", |transaction| async move { self.return_next(&transaction).await });
        let Some((quota_id, units)) = returned.await? else { return Ok(Round::Idle) };
        tracing::info!(%quota_id, units = units.units.len(), "quota returned to the public sale");
        metrics::returned(units.units.len());
        self.stores.outbox.wake_relay();
        self.engine.apply_returned(units).await;
        Ok(Round::More)
    }

    /// Returns the quota that was due and the units that are free now, or `None` if no quota is due.
    async fn return_next(&self, transaction: &Transaction) -> Result<Option<(QuotaId, QuotaUnits)>, Error> {
        let Some(mut quota) = store::quotas::lock_due(transaction).await? else { return Ok(None) };
        quota.mark_returned();
        let units = store::quotas::free_units(transaction, &quota).await?;
        store::invitations::expire(transaction, quota.id).await?;
        store::quotas::save(transaction, &quota).await?;
        let Quota { id, event_id, sector_id, .. } = quota;
        let mut returned = QuotaUnits { event_id, sector_id, revision: 0, units };
        if returned.units.is_empty() {
            return Ok(Some((id, returned)));
        }
        let count = i32::try_from(returned.units.len()).unwrap_or(i32::MAX).saturating_neg();
        let changes = [(sector_id, CountsChange::kept(count))].into();
        let counts = store::stocks::change(transaction, &changes).await?;
        returned.revision = counts.get(&sector_id).map_or(0, |counts| counts.revision);
        // An event can be sold out while a quota keeps units, so another transaction may do that right now. With the lock, this
        // transaction sees the result.
        store::events::lock(transaction, event_id).await?;
        self.engine.make_available(transaction, event_id).await?;
        Ok(Some((id, returned)))
    }
}
