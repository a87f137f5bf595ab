//! Step INITIALIZE: app::create_payment or workers → app → clients::providers and clients::claim → engine.
//!
//! The provider's idempotency key is made from the payment id, so repeated attempts open one session.
//!
//! While the provider is called, Claim is asked to extend the claim. No customer has seen the page yet, so a crash costs nobody
//! that time: the payment either becomes PENDING after the extension was requested, or both calls are repeated.

use std::time::Duration;

use futures_util::future::join;
use onsale_kit::{deadline::Deadline, error::Chain};

use super::App;
use crate::{
    clients::ProviderError,
    domain::{Claim, FailureReason, Payment, PaymentStep, ProviderUpdate},
    error::Error,
    store::payments,
};

/// Timeout of the claim's extension, which a customer waits for.
const EXTEND_TIMEOUT: Duration = Duration::from_secs(1);

impl App {
    /// Opens a session within the deadline of the running call. If the provider's answer is unknown, returns the payment
    /// unchanged and lets a worker retry after `retry_initial`.
    pub(super) async fn initialize_once(&self, payment: Payment, claim: &Claim) -> Result<Payment, Error> {
        match self.open_session(&payment, claim).await {
            Ok(payment) => Ok(payment),
            Err(Error::Provider(error)) => {
                tracing::warn!(payment_id = %payment.id, error = %Chain(&error), "provider call failed, a worker will retry");
                let (step, wait) = (PaymentStep::Initialize, self.work.retry_initial);
                payments::make_due(&self.stores.postgres, payment.id, step, wait).await?;
                Ok(payment)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the step: opens a session, or fails the payment if its claim cannot be paid or it is older than
    /// `initializing_max`.
    pub(super) async fn initialize_payment(&self, payment: &Payment) -> Result<(), Error> {
        let claim = self.claims.get_claim(payment.claim_id).await?;
        match payment.retry_initialize(claim, self.clock.now(), self.payments.initializing_max) {
            Ok(claim) => self.open_session(payment, &claim).await.map(drop),
            // A session may exist, but no customer has seen its page. Should it be paid nevertheless, a webhook reports that.
            Err(reason) => {
                let update = ProviderUpdate::Ended { reason };
                self.changes.apply_provider_update(payment.id, &update).await.map(drop)
            }
        }
    }

    /// Asks the provider for a session and records its answer. An unknown outcome is an error and changes nothing.
    async fn open_session(&self, payment: &Payment, claim: &Claim) -> Result<Payment, Error> {
        const ATTEMPT: &str = "open a session";
        let provider = self.provider(payment.provider)?;
        let late = |message: &str| ProviderError::Unknown { attempt: ATTEMPT, message: message.to_owned() };
        let deadline = Deadline::current_or_after(self.provider_timeout).for_call();
        let deadline = deadline.ok_or_else(|| late("the deadline leaves no time for the call"))?;
        let (answer, ()) =
            join(deadline.bound(provider.open_session(payment, claim)), self.extend_claim(payment)).await;
        let update = match answer.unwrap_or_else(|_passed| Err(late("the deadline passed"))) {
            Ok(update) => update,
            Err(error @ (ProviderError::Refused { .. } | ProviderError::Missing { .. })) => {
                tracing::warn!(payment_id = %payment.id, error = %Chain(&error), "provider refused the payment, marking it failed");
                ProviderUpdate::Ended { reason: FailureReason::Provider }
            }
            Err(error @ (ProviderError::Unavailable { .. } | ProviderError::Unknown { .. })) => {
                return Err(error.into());
            }
        };
        self.changes.apply_provider_update(payment.id, &update).await
    }

    /// Asks Claim to extend the claim. A failure is only logged: the payment can succeed without it.
    async fn extend_claim(&self, payment: &Payment) {
        let deadline = Deadline::current_or_after(EXTEND_TIMEOUT);
        let extended = deadline.bound(deadline.scope(self.claims.extend_claim(payment))).await;
        let failure = match &extended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Chain(error).to_string(),
            Err(passed) => Chain(passed).to_string(),
        };
        let (payment_id, claim_id) = (payment.id, payment.claim_id);
        tracing::info!(%payment_id, %claim_id, error = failure, "failed to extend the claim, its payment continues");
    }
}
