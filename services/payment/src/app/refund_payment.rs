//! RefundPayment: the refund is stored, the tickets become void, then a worker has the provider give the money back. Stored
//! first, so that whoever dies in between leaves nobody without both: a worker goes on from there.

use std::time::Duration;

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{PaymentId, RequestId};

use super::{App, Viewer, record::Recorded};
use crate::{
    convert::{Lookup, RefundPayment},
    domain::{Payment, Step},
    error::Error,
    store::payments,
};

impl App {
    /// Has the money of a payment go back, once per `request` and once per payment.
    pub async fn refund_payment(
        &self,
        viewer: Viewer,
        command: RefundPayment,
        request: &idempotency::Request<'_>,
    ) -> Result<Payment, Error> {
        let payment = self.get_payment(viewer, Lookup::Payment(command.payment_id)).await?;
        // Only Claim knows whether it was this payment that the tickets are of. Where it was not, the money goes back by that.
        if payment.next_step() == Some(Step::Settle) {
            self.settle(&payment).await?;
        }
        let work = |transaction: Transaction| async move {
            let id = async { Ok(command.payment_id.to_string()) };
            idempotency::once::<String, Error>(&transaction, request, id).await?;
            // Also when the request came before: its refund may have been withdrawn.
            self.begin_refund(&transaction, command).await
        };
        let recorded = self.stores.postgres.transaction("ask for refund", work).await?;
        if recorded.before.is_some() {
            self.void_tickets(&recorded.payment).await?;
            payments::hurry(&self.stores.postgres, command.payment_id, Step::Refund, Duration::ZERO).await?;
        }
        Ok(self.announce(recorded).await)
    }

    async fn begin_refund(
        &self,
        transaction: &Transaction,
        command: RefundPayment,
    ) -> Result<Recorded, Error> {
        let id: PaymentId = command.payment_id;
        let refund_id = RequestId::derive(id.as_uuid(), "refund").as_uuid();
        let decide =
            |locked: &payments::Locked| locked.payment.with_refund(command.reason, refund_id, locked.now);
        let recorded = self.change(transaction, id, decide, |_payment, _now| None).await?;
        // A payment with a refund is answered as it is.
        match recorded.payment.refund {
            Some(_) => Ok(recorded),
            None => Err(Error::NotRefundable { payment_id: id, state: recorded.payment.state }),
        }
    }
}
