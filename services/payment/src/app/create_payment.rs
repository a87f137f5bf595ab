//! `CreatePayment`: grpc → app → clients::claim → store::payments → app::initialize_payment → clients::providers → engine.
//!
//! The row is stored before the provider is called. If the call ends early, a worker resumes from the row.

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{CustomerId, PaymentId};

use super::App;
use crate::{
    domain::{Claim, CreatePayment, FailureReason, NewPayment, Payment, PaymentState, Provider},
    error::Error,
    store::payments,
};

/// Decodes the payment id that an earlier run of the same request stored.
type DecodePaymentId = fn(&[u8]) -> Result<PaymentId, Box<dyn std::error::Error + Send + Sync>>;

impl App {
    /// Starts paying a claim of the customer, once per `request`. A repeated request returns the payment in its current state.
    pub(crate) async fn create_payment(
        &self,
        customer_id: CustomerId,
        command: CreatePayment,
        request: &idempotency::Request<'_, PaymentId>,
        decode: DecodePaymentId,
    ) -> Result<Payment, Error> {
        let provider = command.provider.unwrap_or(self.default_provider);
        self.provider(provider)?;
        let claim = self.claims.get_claim(command.claim_id).await?;
        let claim = claim.filter(|claim| claim.customer_id == customer_id);
        let claim = claim.ok_or(Error::ClaimNotFound { claim_id: command.claim_id })?;
        let answer = self.store_payment(&claim, provider, &command, request).await?;
        let payment_id = answer.into_response(|payment_id| *payment_id, decode)?;
        let payment = payments::get(&self.stores.postgres, payment_id).await?;
        let mut payment = payment.ok_or(Error::PaymentNotFound { payment_id })?;
        if payment.state == PaymentState::Initializing {
            payment = self.initialize_once(payment, &claim).await?;
        }
        if payment.failure_reason == Some(FailureReason::Provider) {
            return Err(Error::ProviderRefused { provider });
        }
        Ok(payment)
    }

    /// Stores a new payment, unless an earlier run of the request did.
    async fn store_payment(
        &self,
        claim: &Claim,
        provider: Provider,
        command: &CreatePayment,
        request: &idempotency::Request<'_, PaymentId>,
    ) -> Result<idempotency::Answer<PaymentId>, Error> {
        let payment_id = PaymentId::generate();
        let page = |query: &str| format!("{}/payments/{payment_id}{query}", self.web_url);
        let new = NewPayment {
            id: payment_id,
            claim_id: claim.id,
            event_id: claim.event.id,
            customer_id: claim.customer_id,
            amount: claim.total,
            provider,
            return_url: command.return_url.clone().unwrap_or_else(|| page("")),
            cancel_url: command.cancel_url.clone().unwrap_or_else(|| page("?canceled=1")),
        };
        let work = |transaction: Transaction| {
            let new = &new;
            async move { request.once(&transaction, self.insert_payment(&transaction, claim, new)).await }
        };
        match self.stores.postgres.transaction("create payment", work).await {
            // A concurrent request, for example from another device, inserted its payment first.
            Err(Error::Store(error)) if error.conflict() == Some(payments::OPEN_PER_CLAIM) => {
                let newest = payments::newest_of_claim(&self.stores.postgres, claim.id).await?;
                let payment_id = newest.map(|payment| payment.id).ok_or(Error::Store(error))?;
                Err(Error::OpenExists { payment_id })
            }
            answer => answer,
        }
    }

    async fn insert_payment(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        new: &NewPayment,
    ) -> Result<PaymentId, Error> {
        if let Some(payment_id) = payments::open_of_claim(transaction, claim.id).await? {
            return Err(Error::OpenExists { payment_id });
        }
        if !claim.is_payable(self.clock.now(), self.payments.claim_margin) {
            return Err(Error::ClaimNotPayable { claim_id: claim.id, claim_state: claim.state });
        }
        let delay = self.changes.delays().initialize;
        payments::insert(transaction, new, self.payments.session_lifetime, delay).await?;
        Ok(new.id)
    }
}
