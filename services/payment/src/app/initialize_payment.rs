//! The step INITIALIZE: asking the provider for a page, by whoever created the payment, then by workers until it answers.
//! The provider's idempotency key comes from the payment, so asking again opens nothing twice.
//!
//! While the provider is asked, Claim is asked to give the claim more time. Nobody has seen the page by then, so no crash costs
//! the customer that time: either the payment is PENDING and the claim was asked for, or both are done again.

use std::time::Duration;

use futures_util::future::join;
use onsale_kit::{deadline::Deadline, error::Chain};

use super::App;
use crate::{
    clients::ProviderError,
    domain::{Claim, ClaimState, Fact, FailureReason, Payment, Step},
    error::Error,
    store::payments,
};

/// The most a customer waits for the claim's extension beyond what the provider takes.
const EXTEND_TIME_MAX: Duration = Duration::from_secs(1);

impl App {
    /// Asks once, within the time of the running call. Without an answer the payment stays as it is, for a worker.
    pub(super) async fn initialize(&self, payment: Payment, claim: &Claim) -> Result<Payment, Error> {
        match self.open(&payment, claim).await {
            Ok(payment) => Ok(payment),
            Err(Error::Provider(error)) => {
                tracing::warn!(payment_id = %payment.id, error = %Chain(&error), "provider did not answer, a worker goes on");
                let wait = self.work.retry_initial;
                payments::hurry(&self.stores.postgres, payment.id, Step::Initialize, wait).await?;
                Ok(payment)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks again for a payment that nobody brought further, as long as its claim waits for it.
    pub(super) async fn reinitialize(&self, payment: &Payment) -> Result<(), Error> {
        let claim = self.claims.get(payment.claim_id).await?;
        let is_late = self.clock.now().saturating_since(payment.create_time) > self.payments.initializing_max;
        let reason = match &claim {
            None => Some(FailureReason::Provider),
            Some(claim) if claim.state != ClaimState::Claimed => Some(FailureReason::Expired),
            Some(_) if is_late => Some(FailureReason::Provider),
            Some(_) => None,
        };
        match (reason, claim) {
            // Nobody has seen the page, should there be one. Were it paid all the same, that would be heard.
            (Some(reason), _) => self.hear(payment.id, &Fact::Ended { reason }).await.map(drop),
            (None, Some(claim)) => self.open(payment, &claim).await.map(drop),
            (None, None) => Ok(()),
        }
    }

    /// Asks the provider and keeps its answer. An outcome that is not known is an error, and changes nothing.
    async fn open(&self, payment: &Payment, claim: &Claim) -> Result<Payment, Error> {
        const ATTEMPT: &str = "open a session";
        let provider = self.provider(payment.provider)?;
        let late = |message: &str| ProviderError::Unknown { attempt: ATTEMPT, message: message.to_owned() };
        let deadline = Deadline::current_or_after(self.provider_timeout).for_call();
        let deadline = deadline.ok_or_else(|| late("no time is left to ask"))?;
        let (answer, ()) =
            join(deadline.bound(provider.open(payment, claim)), self.extend_claim(payment)).await;
        let fact = match answer.unwrap_or_else(|_passed| Err(late("the time is over"))) {
            Ok(fact) => fact,
            Err(error @ (ProviderError::Refused { .. } | ProviderError::Missing { .. })) => {
                tracing::warn!(payment_id = %payment.id, error = %Chain(&error), "provider refused the payment");
                Fact::Ended { reason: FailureReason::Provider }
            }
            Err(error @ (ProviderError::Unavailable { .. } | ProviderError::Unknown { .. })) => {
                return Err(error.into());
            }
        };
        self.hear(payment.id, &fact).await
    }

    /// Asks Claim for more time. A payment is worth trying without.
    async fn extend_claim(&self, payment: &Payment) {
        let deadline = Deadline::current_or_after(EXTEND_TIME_MAX);
        let extended = deadline.bound(deadline.scope(self.claims.extend(payment))).await;
        let failure = match &extended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Chain(error).to_string(),
            Err(passed) => Chain(passed).to_string(),
        };
        let (payment_id, claim_id) = (payment.id, payment.claim_id);
        tracing::info!(%payment_id, %claim_id, error = failure, "claim could not be extended for its payment");
    }
}
