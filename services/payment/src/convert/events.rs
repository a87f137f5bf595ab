//! Events that Payment publishes.

use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    events::v1::{PaymentConfirmed, PaymentFailed, PaymentRefunded},
    r#type::v1::EventSummary as PbEventSummary,
};
use onsale_storage::messaging::{NewEvent, OutgoingEvent};
use onsale_types::Timestamp;

use super::{failure_reason_to_pb, provider_to_pb, refund_reason_to_pb};
use crate::domain::{Claim, EventSummary, Payment, PaymentEvent};

impl OutgoingEvent for PaymentEvent {
    fn to_new_event(&self) -> NewEvent {
        let key = self.claim_id();
        match self {
            Self::Confirmed(payment) => NewEvent::new(key, &payment_confirmed(payment)),
            Self::Failed { payment, fail_time } => NewEvent::new(key, &payment_failed(payment, *fail_time)),
            Self::Refunded { payment, claim } => NewEvent::new(key, &payment_refunded(payment, claim)),
        }
    }
}

fn payment_confirmed(payment: &Payment) -> PaymentConfirmed {
    PaymentConfirmed {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        amount: Some(money_to_pb(payment.amount)),
        provider: provider_to_pb(payment.provider).into(),
        confirm_time: payment.confirm_time.map(time_to_pb),
    }
}

fn payment_failed(payment: &Payment, fail_time: Timestamp) -> PaymentFailed {
    PaymentFailed {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        reason: payment.failure_reason.map_or(0, |reason| failure_reason_to_pb(reason).into()),
        fail_time: Some(time_to_pb(fail_time)),
    }
}

fn payment_refunded(payment: &Payment, claim: &Claim) -> PaymentRefunded {
    let refund = payment.refund.as_ref();
    PaymentRefunded {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event: Some(summary_to_pb(&claim.event)),
        customer_id: payment.customer_id.to_string(),
        buyer_email: claim.buyer_email.clone(),
        buyer_locale: claim.buyer_locale.clone(),
        amount: Some(money_to_pb(payment.amount)),
        reason: refund.map_or(0, |refund| refund_reason_to_pb(refund.reason).into()),
        refund_time: refund.and_then(|refund| refund.complete_time).map(time_to_pb),
    }
}

fn summary_to_pb(event: &EventSummary) -> PbEventSummary {
    PbEventSummary {
        event_id: event.id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone(),
        time_zone: event.time_zone.clone(),
        start_time: event.start_time.map(time_to_pb),
    }
}
