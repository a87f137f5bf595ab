//! `order.completed` and `ticket.generated`: consumers → app → store → domain::order → store.

use onsale_storage::postgres::Transaction;
use onsale_types::ClaimId;

use super::App;
use crate::{
    domain::order::{self, OrderProgress, OrderUpdate},
    error::ConsumeError,
    store,
};

impl App {
    /// Records an event about an order, and adds the jobs of the mails that are now complete.
    pub(crate) async fn update_order(
        &self,
        transaction: &Transaction,
        claim_id: ClaimId,
        update: OrderUpdate,
    ) -> Result<(), ConsumeError> {
        // The lock comes first: the transaction of the other event has then committed, and its confirmation is visible.
        let waiting = store::waiting_orders::lock(transaction, claim_id).await?;
        let progress = match store::jobs::sent_confirmation(transaction, claim_id).await? {
            Some(sent) => OrderProgress::Confirmed(sent),
            None => OrderProgress::Waiting(waiting),
        };
        let updated = order::apply_update(claim_id, progress, update)?;
        if !updated.jobs.is_empty() {
            store::jobs::insert(transaction, &updated.jobs).await?;
        }
        store::waiting_orders::save(transaction, claim_id, updated.waiting.as_ref()).await?;
        Ok(())
    }
}
