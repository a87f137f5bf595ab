//! RefundPayment: tickets become void, then the refund is stored; a worker has the provider give the money back.

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{PaymentId, RequestId};

use super::{App, Viewer, record::Recorded};
use crate::{
    convert::{Lookup, RefundPayment},
    domain::{Payment, RefundReason, State},
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
        let is_to_begin = payment.state == State::Confirmed && payment.refund.is_none();
        // The tickets of a claim that was paid twice are those of the other payment.
        let has_tickets = payment.settle_time.is_some() || command.reason != RefundReason::Duplicate;
        if is_to_begin && has_tickets {
            self.tickets.void(payment.claim_id).await.map_err(Error::of_void(payment.claim_id))?;
        }
        let work = |transaction: Transaction| async move {
            let begin = self.begin_refund(&transaction, command);
            idempotency::once::<String, Error>(&transaction, request, begin).await
        };
        self.stores.postgres.transaction("ask for refund", work).await?;
        let payment = payments::get(&self.stores.postgres, command.payment_id).await?;
        let payment = payment.ok_or(Error::PaymentNotFound { payment_id: command.payment_id })?;
        let before = is_to_begin.then_some(payment.state);
        Ok(self.announce(Recorded { payment, before }).await)
    }

    async fn begin_refund(&self, transaction: &Transaction, command: RefundPayment) -> Result<String, Error> {
        let id: PaymentId = command.payment_id;
        let refund_id = RequestId::derive(id.as_uuid(), "refund").as_uuid();
        let decide =
            |locked: &payments::Locked| locked.payment.with_refund(command.reason, refund_id, locked.now);
        let Recorded { payment, .. } = self.change(transaction, id, decide, |_payment, _now| None).await?;
        // A payment with a refund is answered as it is.
        match payment.refund {
            Some(_) => Ok(id.to_string()),
            None => Err(Error::NotRefundable { payment_id: id, state: payment.state }),
        }
    }
}
