//! Step ASK (`PollProvider`): workers → app → clients::providers → clients::claim → engine.
//!
//! Finds the outcome of a payment whose webhook has not arrived. Only the provider's answer ends the payment. If the claim can no
//! longer be paid, the provider is first asked to expire its session.

use super::App;
use crate::{
    clients::ProviderError,
    domain::{ClaimState, FailureReason, Payment, ProviderUpdate},
    error::Error,
};

impl App {
    /// Polls the provider once. Changes nothing while the customer can still pay.
    pub(super) async fn poll_provider(&self, payment: &Payment) -> Result<(), Error> {
        let update = match self.poll_or_expire(payment).await {
            Ok(None) => return Ok(()),
            Ok(Some(update)) => update,
            // A session that does not exist can never be paid.
            Err(Error::Provider(ProviderError::Missing { .. })) => {
                tracing::error!(payment_id = %payment.id, "payment unknown at provider, marking it failed");
                ProviderUpdate::Ended { reason: FailureReason::Provider }
            }
            Err(error) => return Err(error),
        };
        self.changes.apply_provider_update(payment.id, &update).await.map(drop)
    }

    async fn poll_or_expire(&self, payment: &Payment) -> Result<Option<ProviderUpdate>, Error> {
        let provider = self.provider(payment.provider)?;
        let reference = payment.reference.as_deref().unwrap_or_default();
        let update = provider.poll_session(reference).await?;
        if update.is_some() {
            return Ok(update);
        }
        let claim = self.claims.get_claim(payment.claim_id).await?;
        if claim.is_some_and(|claim| claim.state == ClaimState::Claimed) {
            return Ok(None);
        }
        // Money that is taken from now on would only have to be refunded.
        Ok(provider.expire_session(reference).await?)
    }
}
