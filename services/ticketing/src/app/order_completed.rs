//! Event `order.completed`: workers::consumers → app → app::issue_tickets (`App::issue`).

use onsale_storage::postgres::Transaction;

use super::{App, issue_tickets::IssueOutcome};
use crate::{domain::order::Order, error::Error, metrics};

impl App {
    /// Issues a paid order. An order whose tickets are not generated yet is stored as PENDING, so a paid order is never lost.
    /// Fails if a ticket belongs to another claim; the event then goes to the dead letters.
    pub(crate) async fn order_completed(
        &self,
        transaction: &Transaction,
        order: &Order,
    ) -> Result<(), Error> {
        let claim_id = order.claim_id;
        match self.issue(transaction, order).await? {
            IssueOutcome::Issued(_) => self.stores.outbox.wake_relay(),
            IssueOutcome::Pending => {
                tracing::info!(%claim_id, "order is pending until its tickets are generated")
            }
            IssueOutcome::Void => tracing::info!(%claim_id, "order ignored, its tickets were voided before"),
            IssueOutcome::Refused => {
                metrics::order_refused();
                return Err(Error::IssuedToAnother { claim_id });
            }
        }
        Ok(())
    }
}
