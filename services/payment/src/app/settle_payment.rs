//! Step SETTLE: workers or app::refund_payment → app → clients::claim → engine.
//!
//! A confirmed payment either confirms its claim or is refunded, never both and never neither.

use onsale_storage::postgres::Transaction;

use super::{App, refund_id};
use crate::{domain::Payment, error::Error, store::payments::LockedPayment};

impl App {
    /// Asks Claim to confirm the claim and records its verdict. Claim returns the same verdict to a repeated request.
    pub(super) async fn settle_payment(&self, payment: &Payment) -> Result<(), Error> {
        let verdict = self.claims.confirm_claim(payment).await?;
        let refund_id = refund_id(payment.id);
        let work = |transaction: Transaction| async move {
            let settled = |locked: &LockedPayment| locked.payment.settled(verdict, refund_id, locked.now);
            self.changes.change(&transaction, payment.id, settled, |_payment, _now| None).await
        };
        let recorded = self.stores.postgres.transaction("settle payment", work).await?;
        if recorded.before.is_some() {
            tracing::info!(payment_id = %payment.id, claim_id = %payment.claim_id, ?verdict, "payment settled");
        }
        self.changes.publish(recorded).await;
        Ok(())
    }
}
