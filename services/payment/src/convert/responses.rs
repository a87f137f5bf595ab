//! Responses to callers, and the answers that are stored for repeated requests.

use std::error::Error;

use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    payment::v1 as pb,
};
use onsale_storage::idempotency::Method;
use onsale_types::{Money, PaymentId};
use prost::Message as _;

use super::{failure_reason_to_pb, provider_to_pb, refund_reason_to_pb};
use crate::domain::{Payment, PaymentState, Refund, RefundState};

/// Its stored answer is the payment id only, because a repeated request returns the payment in its current state.
pub(crate) const CREATE_PAYMENT: Method<PaymentId> = Method::new("CreatePayment", encode_payment_id);

/// Its stored answer is the payment id only, because a repeated request returns the payment in its current state.
pub(crate) const REFUND_PAYMENT: Method<PaymentId> = Method::new("RefundPayment", encode_payment_id);

/// Encodes the id as a `google.protobuf.StringValue`.
fn encode_payment_id(payment_id: &PaymentId) -> Vec<u8> {
    payment_id.to_string().encode_to_vec()
}

/// Decodes the stored answer of [`CREATE_PAYMENT`].
pub(crate) fn decode_payment_id(bytes: &[u8]) -> Result<PaymentId, Box<dyn Error + Send + Sync>> {
    let text = String::decode(bytes)?;
    Ok(PaymentId::parse(&text)?)
}

pub(crate) fn create_payment(payment: &Payment) -> pb::CreatePaymentResponse {
    pb::CreatePaymentResponse { payment: Some(payment_to_pb(payment)) }
}

pub(crate) fn get_payment(payment: &Payment) -> pb::GetPaymentResponse {
    pb::GetPaymentResponse { payment: Some(payment_to_pb(payment)) }
}

pub(crate) fn watch_payment(payment: &Payment) -> pb::WatchPaymentResponse {
    pb::WatchPaymentResponse { payment: Some(payment_to_pb(payment)) }
}

pub(crate) fn refund_payment(payment: &Payment) -> pb::RefundPaymentResponse {
    pb::RefundPaymentResponse { payment: Some(payment_to_pb(payment)) }
}

pub(crate) const fn handle_webhook(duplicate: bool) -> pb::HandleWebhookResponse {
    pb::HandleWebhookResponse { duplicate }
}

fn payment_to_pb(payment: &Payment) -> pb::Payment {
    let is_pending = payment.state == PaymentState::Pending;
    pb::Payment {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        amount: Some(money_to_pb(payment.amount)),
        provider: provider_to_pb(payment.provider).into(),
        state: state_to_pb(payment.state).into(),
        checkout_url: payment.checkout_url.clone().filter(|_| is_pending).unwrap_or_default(),
        provider_reference: payment.reference.clone().unwrap_or_default(),
        failure_reason: payment.failure_reason.map_or(0, |reason| failure_reason_to_pb(reason).into()),
        create_time: Some(time_to_pb(payment.create_time)),
        expire_time: is_pending.then(|| time_to_pb(payment.expire_time)),
        confirm_time: payment.confirm_time.map(time_to_pb),
        refund: payment.refund.as_ref().map(|refund| refund_to_pb(refund, payment.amount)),
    }
}

fn refund_to_pb(refund: &Refund, amount: Money) -> pb::Refund {
    let state = match refund.state {
        RefundState::Pending => pb::RefundState::Pending,
        RefundState::Completed => pb::RefundState::Completed,
    };
    pb::Refund {
        refund_id: refund.id.to_string(),
        amount: Some(money_to_pb(amount)),
        reason: refund_reason_to_pb(refund.reason).into(),
        state: state.into(),
        create_time: Some(time_to_pb(refund.create_time)),
        complete_time: refund.complete_time.map(time_to_pb),
    }
}

fn state_to_pb(state: PaymentState) -> pb::PaymentState {
    match state {
        PaymentState::Initializing => pb::PaymentState::Initializing,
        PaymentState::Pending => pb::PaymentState::Pending,
        PaymentState::Confirmed => pb::PaymentState::Confirmed,
        PaymentState::Failed => pb::PaymentState::Failed,
        PaymentState::Refunded => pb::PaymentState::Refunded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_answer_keeps_the_bytes_of_a_protobuf_string() {
        let payment_id = PaymentId::generate();
        let stored = encode_payment_id(&payment_id);
        // Field 1, length-delimited, 36 bytes of text: answers of the previous version decode alike.
        assert_eq!(stored, [&[0x0a, 36], payment_id.to_string().as_bytes()].concat());
        assert_eq!(decode_payment_id(&stored).unwrap(), payment_id);
        assert!(decode_payment_id(&[0x0a, 1, b'?']).is_err());
    }
}
