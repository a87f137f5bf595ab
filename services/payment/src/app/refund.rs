//! The step REFUND: the provider is asked until it accepts. The refund was stored before, and its id is the key that makes
//! it once only.

use onsale_kit::error::Chain;
use onsale_storage::{messaging::NewEvent, postgres::Transaction};

use super::App;
use crate::{clients::ProviderError, convert, domain::Payment, error::Error};

impl App {
    /// Asks the provider, and keeps that the money went back.
    pub(super) async fn refund(&self, payment: &Payment) -> Result<(), Error> {
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
}
