//! The step SETTLE: a confirmed payment ends in a served claim, or its money goes back. Never both, never neither.

use onsale_storage::postgres::Transaction;
use onsale_types::RequestId;

use super::App;
use crate::{domain::Payment, error::Error};

impl App {
    /// Has the claim confirmed and keeps the verdict. Claim answers a repeat the same way.
    pub(super) async fn settle(&self, payment: &Payment) -> Result<(), Error> {
        let verdict = self.claims.confirm(payment).await?;
        let refund_id = RequestId::derive(payment.id.as_uuid(), "refund").as_uuid();
        let work = |transaction: Transaction| async move {
            self.change(
                &transaction,
                payment.id,
                |locked| locked.payment.settled(verdict, refund_id, locked.now),
                |_payment, _now| None,
            )
            .await
        };
        let recorded = self.stores.postgres.transaction("settle payment", work).await?;
        if recorded.before.is_some() {
            tracing::info!(payment_id = %payment.id, claim_id = %payment.claim_id, ?verdict, "payment settled");
        }
        self.announce(recorded).await;
        Ok(())
    }
}
