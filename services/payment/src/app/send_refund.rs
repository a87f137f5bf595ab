//! Step REFUND: workers → app → clients::ticketing → clients::providers → clients::claim → engine.
//!
//! The refund is stored before this step, and its id is the provider's idempotency key, so repeated attempts refund once.

use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;

use super::App;
use crate::{
    clients::{ProviderError, VoidError},
    domain::{Payment, PaymentEvent},
    error::Error,
    store::payments::{self, LockedPayment},
};

impl App {
    /// Voids the tickets, asks the provider to refund the money, and records that it accepted.
    pub(super) async fn send_refund(&self, payment: &Payment) -> Result<(), Error> {
        // The call that asked for the refund may have ended before it voided the tickets.
        self.void_tickets(payment).await?;
        let refunded = self.provider(payment.provider)?.refund_payment(payment).await;
        if let Err(error @ (ProviderError::Refused { .. } | ProviderError::Missing { .. })) = &refunded {
            tracing::error!(payment_id = %payment.id, error = %Chain(error), "provider refused the refund, retrying");
        }
        refunded?;
        // Only Claim stores the buyer's email address for the refund notification.
        let claim = self.claims.get_claim(payment.claim_id).await?;
        if claim.is_none() {
            tracing::error!(payment_id = %payment.id, claim_id = %payment.claim_id, "claim of a refunded payment not found, the buyer is not notified");
        }
        let work = |transaction: Transaction| {
            let claim = claim.clone();
            async move {
                let refunded = |locked: &LockedPayment| locked.payment.refunded(locked.now);
                let event = |payment: &Payment, _now| {
                    let claim = Box::new(claim?);
                    Some(PaymentEvent::Refunded { payment: payment.clone(), claim })
                };
                self.changes.change(&transaction, payment.id, refunded, event).await
            }
        };
        let recorded = self.stores.postgres.transaction("refund payment", work).await?;
        self.changes.publish(recorded).await;
        Ok(())
    }

    /// Voids the tickets that the payment paid for, if any. If one of them was checked in, withdraws the refund and fails.
    pub(super) async fn void_tickets(&self, payment: &Payment) -> Result<(), Error> {
        if !payment.has_tickets() {
            // The claim has no tickets, or another payment paid for them.
            return Ok(());
        }
        let voided = self.ticketing.void_tickets(payment.claim_id).await;
        if matches!(voided, Err(VoidError::CheckedIn)) {
            self.withdraw_refund(payment).await?;
        }
        voided.map_err(Error::of_void(payment.claim_id))
    }

    async fn withdraw_refund(&self, payment: &Payment) -> Result<(), Error> {
        let work = |transaction: Transaction| async move {
            let withdrawn = |locked: &LockedPayment| locked.payment.without_refund();
            let recorded =
                self.changes.change(&transaction, payment.id, withdrawn, |_payment, _now| None).await?;
            if recorded.before.is_some() {
                payments::withdraw_refund(&transaction, payment.id).await?;
            }
            Ok::<_, Error>(recorded)
        };
        let recorded = self.stores.postgres.transaction("withdraw refund", work).await?;
        if recorded.before.is_some() {
            tracing::info!(payment_id = %payment.id, "refund withdrawn, a ticket was checked in");
        }
        self.changes.publish(recorded).await;
        Ok(())
    }
}
