//! `BlockCustomer`: grpc → app → store::lines (lock) → store::blocked_customers → engine::end_entries → engine::publish.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{CustomerId, EntryId, EventId, OrganizerId};

use super::App;
use crate::{
    domain::{block::Blocked, entry::ExpireReason, queue_change::QueueChange},
    error::Error,
    store::{blocked_customers, entries, lines},
};

impl App {
    /// Blocks a customer from the queue of an event of the organizer's, and ends the customer's open entry or turn.
    pub(crate) async fn block_customer(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        customer_id: CustomerId,
        note: &str,
        request: &Request<'_, Blocked>,
    ) -> Result<Answer<Blocked>, Error> {
        let work = |transaction: Transaction| async move {
            let mut current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            let block =
                blocked_customers::add(&transaction, event_id, customer_id, note, current.now).await?;
            let open = entries::open(&transaction, event_id, &[customer_id]).await?;
            let open: Vec<EntryId> = open.iter().map(|entry| entry.entry_id).collect();
            let reason = ExpireReason::Blocked;
            let ended = self.engine.end_entries(&transaction, &mut current, &open, reason).await?;
            tracing::info!(%event_id, %organizer_id, %customer_id, "customer blocked by the organizer");
            let blocked = Blocked { block, entry_removed: !ended.is_empty() };
            let change = (!ended.is_empty()).then(|| QueueChange::ended(&current, ended));
            Ok((blocked, change))
        };
        self.change_once("block customer", request, work).await
    }
}
