//! CreatePayment: the row first, then the provider. Whatever happens in between, a worker goes on from the row.

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{CustomerId, PaymentId};

use super::App;
use crate::{
    convert::CreatePayment,
    domain::{Claim, FailureReason, NewPayment, Payment, Provider, State},
    error::Error,
    store::payments,
};

impl App {
    /// Starts paying a claim of `customer`, once per `request`; a repeat answers the payment as it is by now.
    pub async fn create_payment(
        &self,
        customer: CustomerId,
        command: CreatePayment,
        request: &idempotency::Request<'_>,
    ) -> Result<Payment, Error> {
        let provider = command.provider.unwrap_or(self.default_provider);
        self.provider(provider)?;
        let claim = self.claims.get(command.claim_id).await?;
        let claim = claim.filter(|claim| claim.customer_id == customer);
        let claim = claim.ok_or(Error::ClaimNotFound { claim_id: command.claim_id })?;
        let id = self.begin(&claim, provider, &command, request).await?;
        let payment = payments::get(&self.stores.postgres, id).await?;
        let mut payment = payment.ok_or(Error::PaymentNotFound { payment_id: id })?;
        if payment.state == State::Initializing {
            payment = self.initialize(payment, &claim).await?;
        }
        if payment.failure_reason == Some(FailureReason::Provider) {
            return Err(Error::ProviderRefused { provider });
        }
        Ok(payment)
    }

    /// Writes the row, unless the request did so before.
    async fn begin(
        &self,
        claim: &Claim,
        provider: Provider,
        command: &CreatePayment,
        request: &idempotency::Request<'_>,
    ) -> Result<PaymentId, Error> {
        let id = PaymentId::generate();
        let new = NewPayment {
            id,
            claim_id: claim.id,
            event_id: claim.event.id,
            customer_id: claim.customer_id,
            amount: claim.total,
            provider,
            return_url: command.return_url.clone().unwrap_or_else(|| self.page(id, "")),
            cancel_url: command.cancel_url.clone().unwrap_or_else(|| self.page(id, "?canceled=1")),
        };
        let work = |transaction: Transaction| {
            let new = &new;
            async move {
                let insert = self.insert(&transaction, claim, new);
                idempotency::once(&transaction, request, insert).await
            }
        };
        let begun: Result<String, Error> = self.stores.postgres.transaction("create payment", work).await;
        let stored = match begun {
            // Another device was quicker.
            Err(Error::Store(error)) if error.conflict() == Some(payments::OPEN_PER_CLAIM) => {
                let newest = payments::newest(&self.stores.postgres, claim.id).await?;
                let payment_id = newest.map(|payment| payment.id).ok_or(Error::Store(error))?;
                return Err(Error::OpenExists { payment_id });
            }
            begun => begun?,
        };
        // Our own answer, so it is an id.
        Ok(PaymentId::parse(&stored).unwrap_or(id))
    }

    async fn insert(
        &self,
        transaction: &Transaction,
        claim: &Claim,
        new: &NewPayment,
    ) -> Result<String, Error> {
        if let Some(payment_id) = payments::open(transaction, claim.id).await? {
            return Err(Error::OpenExists { payment_id });
        }
        if !claim.is_payable(self.clock.now(), self.payments.claim_margin) {
            return Err(Error::ClaimNotPayable { claim_id: claim.id, claim_state: claim.state });
        }
        let patience = self.initialize_patience();
        payments::insert(transaction, new, self.payments.session_lifetime, patience).await?;
        Ok(new.id.to_string())
    }
}
