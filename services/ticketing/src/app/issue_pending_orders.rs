//! Job of the worker `issuer`: app → store::issuances → app::issue_tickets (`App::issue`). Retries orders that were paid before
//! their tickets were generated.

use onsale_kit::{error::Chain, worker::Round};
use onsale_storage::postgres::Transaction;

use super::{App, issue_tickets::IssueOutcome};
use crate::{
    domain::order::{IssuanceState, Order},
    error::Error,
    metrics,
    store::issuances::{self, LeasedOrder},
};

/// After this many attempts an order has been pending for longer than any generation takes, so each further attempt logs a
/// warning.
const ATTEMPTS_ALERT: u32 = 10;

impl App {
    /// Retries at most `issuing.round_max` pending orders that are due.
    pub(crate) async fn issue_pending_orders(&self) -> Result<Round, Error> {
        let postgres = &self.stores.postgres;
        for _ in 0..self.issuing.round_max.get() {
            let leased = issuances::lease_pending(postgres, self.issuing.pause_max).await?;
            let Some(LeasedOrder { claim_id, attempts, order }) = leased else {
                metrics::orders_pending(issuances::count_pending(postgres).await?);
                return Ok(Round::Idle);
            };
            let issued = match order {
                Ok(order) => self.issue_pending(&order, attempts).await,
                Err(error) => Err(Error::from(error)),
            };
            match issued {
                Ok(()) => {}
                Err(error) if error.is_store_unavailable() => return Err(error),
                // One order that cannot be issued must not stop the others. It is due again when its lease ends.
                Err(error) => {
                    tracing::error!(
                        %claim_id, attempts, error = %Chain(&error),
                        "failed to issue a pending order, retrying when its lease ends"
                    );
                }
            }
        }
        Ok(Round::More)
    }

    async fn issue_pending(&self, order: &Order, attempts: u32) -> Result<(), Error> {
        let (claim_id, event_id) = (order.claim_id, order.event_id);
        let work = |transaction: Transaction| async move {
            let outcome = self.issue(&transaction, order).await?;
            if let IssueOutcome::Refused = outcome {
                issuances::set_state(&transaction, claim_id, IssuanceState::Refused).await?;
            }
            Ok::<_, Error>(outcome)
        };
        match self.stores.postgres.transaction("issue waiting order", work).await? {
            IssueOutcome::Issued(_) => self.stores.outbox.wake_relay(),
            IssueOutcome::Void => {}
            IssueOutcome::Pending if attempts > ATTEMPTS_ALERT => {
                tracing::warn!(%claim_id, %event_id, attempts, "order is still pending, its tickets are not generated");
            }
            IssueOutcome::Pending => {}
            IssueOutcome::Refused => {
                metrics::order_refused();
                tracing::error!(%claim_id, %event_id, "paid order refused, a ticket belongs to another claim");
            }
        }
        Ok(())
    }
}
