//! What the other services hear of a payment.

use onsale_proto::events::v1::{PaymentConfirmed, PaymentFailed, PaymentRefunded};
use onsale_proto::r#type::v1::EventSummary as PbEventSummary;
use onsale_types::Timestamp;

use super::{failure_reason, money, provider, refund_reason, time};
use crate::domain::{Claim, EventSummary, Payment};

/// That a provider has the money.
#[must_use]
pub fn confirmed(payment: &Payment) -> PaymentConfirmed {
    PaymentConfirmed {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        amount: Some(money(payment.amount)),
        provider: provider(payment.provider).into(),
        confirm_time: payment.confirm_time.map(time),
    }
}

/// That a payment came to nothing.
#[must_use]
pub fn failed(payment: &Payment, now: Timestamp) -> PaymentFailed {
    PaymentFailed {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        reason: payment.failure_reason.map_or(0, |reason| failure_reason(reason).into()),
        fail_time: Some(time(now)),
    }
}

/// That the money of a payment went back to the buyer of `claim`.
#[must_use]
pub fn refunded(payment: &Payment, claim: &Claim) -> PaymentRefunded {
    let refund = payment.refund.as_ref();
    PaymentRefunded {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event: Some(summary(&claim.event)),
        customer_id: payment.customer_id.to_string(),
        buyer_email: claim.buyer_email.clone(),
        buyer_locale: claim.buyer_locale.clone(),
        amount: Some(money(payment.amount)),
        reason: refund.map_or(0, |refund| refund_reason(refund.reason).into()),
        refund_time: refund.and_then(|refund| refund.complete_time).map(time),
    }
}

fn summary(event: &EventSummary) -> PbEventSummary {
    PbEventSummary {
        event_id: event.id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone(),
        time_zone: event.time_zone.clone(),
        start_time: event.start_time.map(time),
    }
}
