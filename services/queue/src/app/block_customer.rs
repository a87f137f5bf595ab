//! Keeping a customer out of a queue, and letting them in again.

use onsale_proto::queue::v1::{BlockCustomerResponse, UnblockCustomerResponse};
use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{CustomerId, EntryId, EventId, OrganizerId};

use super::{App, tell::QueueChange};
use crate::{
    convert,
    domain::entry::ExpireReason,
    error::Error,
    store::{blocked_customers, entries, queues},
};

impl App {
    /// Keeps a customer out of the queue of an event of the organizer's; an open entry or turn ends.
    pub(crate) async fn block(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        customer_id: CustomerId,
        note: &str,
        request: &idempotency::Request<'_>,
    ) -> Result<BlockCustomerResponse, Error> {
        let work = |transaction: Transaction| async move {
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            let block =
                blocked_customers::add(&transaction, event_id, customer_id, note, current.now).await?;
            let open = entries::open_of(&transaction, event_id, &[customer_id.as_uuid()]).await?;
            let open: Vec<EntryId> = open.iter().map(|entry| entry.entry_id).collect();
            let ended = self.end(&transaction, &mut current, &open, ExpireReason::Blocked).await?;
            tracing::info!(%event_id, %organizer_id, %customer_id, "customer blocked by the organizer");
            let answer = convert::responses::blocked(block, !ended.is_empty());
            let news = (!ended.is_empty()).then(|| QueueChange::ended(&current, ended));
            Ok((answer, news))
        };
        self.change_once("block customer", request, work).await
    }

    /// Lets a blocked customer join again.
    pub(crate) async fn unblock(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        customer_id: CustomerId,
        request: &idempotency::Request<'_>,
    ) -> Result<UnblockCustomerResponse, Error> {
        let work = |transaction: Transaction| async move {
            let current = queues::lock(&transaction, event_id, &self.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            if blocked_customers::remove(&transaction, event_id, customer_id).await? {
                tracing::info!(%event_id, %organizer_id, %customer_id, "customer unblocked by the organizer");
            }
            Ok((UnblockCustomerResponse {}, None))
        };
        self.change_once("unblock customer", request, work).await
    }
}
