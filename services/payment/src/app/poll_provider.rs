//! The step ASK: what became of a payment whose webhook did not come. Only the provider's word ends it; when its claim is
//! gone, the provider is told to take no more money for it.

use super::App;
use crate::{
    clients::ProviderError,
    domain::{ClaimState, Fact, FailureReason, Payment},
    error::Error,
};

impl App {
    /// Asks the provider once. While the customer may still pay, nothing changes.
    pub(super) async fn ask(&self, payment: &Payment) -> Result<(), Error> {
        let fact = match self.look(payment).await {
            Ok(None) => return Ok(()),
            Ok(Some(fact)) => fact,
            // Nobody can pay what the provider does not know.
            Err(Error::Provider(ProviderError::Missing { .. })) => {
                tracing::error!(payment_id = %payment.id, "provider forgot the payment");
                Fact::Ended { reason: FailureReason::Provider }
            }
            Err(error) => return Err(error),
        };
        self.hear(payment.id, &fact).await.map(drop)
    }

    async fn look(&self, payment: &Payment) -> Result<Option<Fact>, Error> {
        let provider = self.provider(payment.provider)?;
        let reference = payment.reference.as_deref().unwrap_or_default();
        let fact = provider.look(reference).await?;
        if fact.is_some() {
            return Ok(fact);
        }
        let claim = self.claims.get(payment.claim_id).await?;
        if claim.is_some_and(|claim| claim.state == ClaimState::Claimed) {
            return Ok(None);
        }
        // Paying now would only begin a refund.
        Ok(provider.close(reference).await?)
    }
}
