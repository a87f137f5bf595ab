//! The step REFUND: the tickets become void, then the provider is asked until it accepts. The refund was stored before, and
//! its id is the key that makes it once only.

use onsale_kit::error::Chain;
use onsale_storage::{messaging::NewEvent, postgres::Transaction};

use super::App;
use crate::{
    clients::{ProviderError, VoidError},
    convert,
    domain::Payment,
    error::Error,
    store::payments,
};

impl App {
    /// Asks the provider, and keeps that the money went back.
    pub(super) async fn refund(&self, payment: &Payment) -> Result<(), Error> {
        // Whoever asked for it may have died before.
        self.void_tickets(payment).await?;
        let given_back = self.provider(payment.provider)?.refund(payment).await;
        if let Err(error @ (ProviderError::Refused { .. } | ProviderError::Missing { .. })) = &given_back {
            tracing::error!(payment_id = %payment.id, error = %Chain(error), "provider refuses to give money back");
        }
        given_back?;
        // Where the buyer hears of it is known to Claim.
        let claim = self.claims.get(payment.claim_id).await?;
        if claim.is_none() {
            tracing::error!(payment_id = %payment.id, claim_id = %payment.claim_id, "refunded claim is gone, nobody can be told");
        }
        let work = |transaction: Transaction| {
            let claim = claim.as_ref();
            async move {
                self.change(
                    &transaction,
                    payment.id,
                    |locked| locked.payment.refunded(locked.now),
                    |payment, _now| {
                        claim.map(|claim| NewEvent::new(payment.claim_id, &convert::refunded(payment, claim)))
                    },
                )
                .await
            }
        };
        let recorded = self.stores.postgres.transaction("refund payment", work).await?;
        self.announce(recorded).await;
        Ok(())
    }

    /// Has the tickets that the payment paid for become void. When somebody went in with one, the refund is withdrawn.
    pub(super) async fn void_tickets(&self, payment: &Payment) -> Result<(), Error> {
        if !payment.has_tickets() {
            // There are none, or they are another payment's.
            return Ok(());
        }
        let voided = self.tickets.void(payment.claim_id).await;
        if matches!(voided, Err(VoidError::CheckedIn)) {
            self.withdraw_refund(payment).await?;
        }
        voided.map_err(Error::of_void(payment.claim_id))
    }

    async fn withdraw_refund(&self, payment: &Payment) -> Result<(), Error> {
        let work = |transaction: Transaction| async move {
            let decide = |locked: &payments::Locked| locked.payment.without_refund();
            let recorded = self.change(&transaction, payment.id, decide, |_payment, _now| None).await?;
            if recorded.before.is_some() {
                payments::withdraw_refund(&transaction, payment.id).await?;
            }
            Ok::<_, Error>(recorded)
        };
        let recorded = self.stores.postgres.transaction("withdraw refund", work).await?;
        if recorded.before.is_some() {
            tracing::info!(payment_id = %payment.id, "refund withdrawn, a ticket was used");
        }
        self.announce(recorded).await;
        Ok(())
    }
}
