//! `RefundPayment`: grpc → app → store::payments → app::settle_payment → engine → clients::ticketing; then the step REFUND.
//!
//! The refund is stored before the tickets are voided. If the call ends in between, a worker continues, so no customer is left with
//! neither tickets nor money.

use std::time::Duration;

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::PaymentId;

use super::{App, refund_id};
use crate::{
    domain::{Payment, PaymentLookup, PaymentStep, RefundPayment, Viewer},
    engine::RecordedChange,
    error::Error,
    store::payments::{self, LockedPayment},
};

impl App {
    /// Starts the refund of a payment, once per `request` and once per payment. A worker sends it to the provider.
    pub(crate) async fn refund_payment(
        &self,
        viewer: Viewer,
        command: RefundPayment,
        request: &idempotency::Request<'_, PaymentId>,
    ) -> Result<Payment, Error> {
        let payment_id = command.payment_id;
        let payment = self.get_payment(viewer, PaymentLookup::Payment(payment_id)).await?;
        // Only Claim knows whether this payment paid for the claim's tickets. If another did, settling refunds this one.
        if payment.next_step() == Some(PaymentStep::Settle) {
            self.settle_payment(&payment).await?;
        }
        let work = |transaction: Transaction| async move {
            request.once(&transaction, async { Ok::<_, Error>(payment_id) }).await?;
            // Also for a repeated request: its refund may have been withdrawn since.
            self.store_refund(&transaction, command).await
        };
        let recorded = self.stores.postgres.transaction("ask for refund", work).await?;
        if recorded.before.is_some() {
            self.void_tickets(&recorded.payment).await?;
            let (step, wait) = (PaymentStep::Refund, Duration::ZERO);
            payments::make_due(&self.stores.postgres, payment_id, step, wait).await?;
        }
        Ok(self.changes.publish(recorded).await)
    }

    /// Adds a pending refund. A payment that already has a refund is returned unchanged.
    async fn store_refund(
        &self,
        transaction: &Transaction,
        command: RefundPayment,
    ) -> Result<RecordedChange, Error> {
        let RefundPayment { payment_id, reason, .. } = command;
        let refund_id = refund_id(payment_id);
        let with_refund = |locked: &LockedPayment| locked.payment.with_refund(reason, refund_id, locked.now);
        let recorded =
            self.changes.change(transaction, payment_id, with_refund, |_payment, _now| None).await?;
        match recorded.payment.refund {
            Some(_) => Ok(recorded),
            None => Err(Error::NotRefundable { payment_id, state: recorded.payment.state }),
        }
    }
}
