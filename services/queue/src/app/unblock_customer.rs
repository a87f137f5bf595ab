//! `UnblockCustomer`: grpc → app → store::lines (lock) → store::blocked_customers.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{CustomerId, EventId, OrganizerId};

use super::App;
use crate::{
    error::Error,
    store::{blocked_customers, lines},
};

impl App {
    /// Removes a block, so that the customer can join again. Succeeds if there is none.
    pub(crate) async fn unblock_customer(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        customer_id: CustomerId,
        request: &Request<'_, ()>,
    ) -> Result<Answer<()>, Error> {
        let work = |transaction: Transaction| async move {
            let current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            if blocked_customers::remove(&transaction, event_id, customer_id).await? {
                tracing::info!(%event_id, %organizer_id, %customer_id, "customer unblocked by the organizer");
            }
            Ok(((), None))
        };
        self.change_once("unblock customer", request, work).await
    }
}
