//! Between the contracts and the domain: the only file that names both.

mod events;
mod requests;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    claim::v1 as claim_pb,
    inventory::v1::Event,
    payment::v1 as pb,
    r#type::v1::{EventSummary as PbEventSummary, Money as PbMoney},
};
use onsale_types::{ClaimId, Currency, CustomerId, EventId, Money, OrganizerId, PaymentId, Timestamp};

pub use self::{
    events::{confirmed, failed, refunded},
    requests::{CreatePayment, HandleWebhook, Lookup, RefundPayment, payment_id},
};
use crate::domain::{
    Claim, ClaimState, EventSummary, FailureReason, Payment, Provider, Refund, RefundReason, RefundState,
    State,
};

/// A payment, for an answer.
#[must_use]
pub fn payment(payment: &Payment) -> pb::Payment {
    let is_pending = payment.state == State::Pending;
    pb::Payment {
        payment_id: payment.id.to_string(),
        claim_id: payment.claim_id.to_string(),
        event_id: payment.event_id.to_string(),
        customer_id: payment.customer_id.to_string(),
        amount: Some(money(payment.amount)),
        provider: provider(payment.provider).into(),
        state: state(payment.state).into(),
        checkout_url: payment.checkout_url.clone().filter(|_| is_pending).unwrap_or_default(),
        provider_reference: payment.reference.clone().unwrap_or_default(),
        failure_reason: payment.failure_reason.map_or(0, |reason| failure_reason(reason).into()),
        create_time: Some(time(payment.create_time)),
        expire_time: is_pending.then(|| time(payment.expire_time)),
        confirm_time: payment.confirm_time.map(time),
        refund: payment.refund.as_ref().map(|it| refund(it, payment.amount)),
    }
}

fn refund(refund: &Refund, amount: Money) -> pb::Refund {
    let state = match refund.state {
        RefundState::Pending => pb::RefundState::Pending,
        RefundState::Completed => pb::RefundState::Completed,
    };
    pb::Refund {
        refund_id: refund.id.to_string(),
        amount: Some(money(amount)),
        reason: refund_reason(refund.reason).into(),
        state: state.into(),
        create_time: Some(time(refund.create_time)),
        complete_time: refund.complete_time.map(time),
    }
}

fn provider(provider: Provider) -> pb::Provider {
    match provider {
        Provider::Stripe => pb::Provider::Stripe,
        Provider::Paystack => pb::Provider::Paystack,
        Provider::Sandbox => pb::Provider::Sandbox,
    }
}

fn state(state: State) -> pb::PaymentState {
    match state {
        State::Initializing => pb::PaymentState::Initializing,
        State::Pending => pb::PaymentState::Pending,
        State::Confirmed => pb::PaymentState::Confirmed,
        State::Failed => pb::PaymentState::Failed,
        State::Refunded => pb::PaymentState::Refunded,
    }
}

fn failure_reason(reason: FailureReason) -> pb::FailureReason {
    match reason {
        FailureReason::Declined => pb::FailureReason::Declined,
        FailureReason::Canceled => pb::FailureReason::Canceled,
        FailureReason::Expired => pb::FailureReason::Expired,
        FailureReason::Provider => pb::FailureReason::Provider,
    }
}

fn refund_reason(reason: RefundReason) -> pb::RefundReason {
    match reason {
        RefundReason::ClaimRejected => pb::RefundReason::ClaimRejected,
        RefundReason::Duplicate => pb::RefundReason::Duplicate,
        RefundReason::EventCanceled => pb::RefundReason::EventCanceled,
        RefundReason::Goodwill => pb::RefundReason::Goodwill,
    }
}

/// An amount.
#[must_use]
pub fn money(money: Money) -> PbMoney {
    PbMoney { amount_minor: money.amount_minor(), currency_code: money.currency().code().to_owned() }
}

fn time(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

fn read_time(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos)
}

/// A claim, from Claim's answer.
pub fn claim(claim: Option<claim_pb::Claim>) -> Result<Claim, InvalidFields> {
    let mut violations = Violations::new();
    let claim = violations.require("claim", claim).unwrap_or_default();
    let id = violations.check("claim.claim_id", ClaimId::parse(&claim.claim_id));
    let customer_id = violations.check("claim.customer_id", CustomerId::parse(&claim.customer_id));
    let state = match claim.state() {
        claim_pb::ClaimState::Claimed => Some(ClaimState::Claimed),
        claim_pb::ClaimState::Confirmed => Some(ClaimState::Confirmed),
        claim_pb::ClaimState::Released => Some(ClaimState::Released),
        claim_pb::ClaimState::Unspecified => None,
    };
    let state = violations.require("claim.state", state);
    let event = violations.require("claim.event", claim.event);
    let event = event.and_then(|event| read_summary(event, &mut violations));
    let total = violations.require("claim.total", claim.total);
    let total = total.and_then(|total| {
        let currency =
            violations.check("claim.total.currency_code", Currency::parse(&total.currency_code))?;
        Some(Money::new(total.amount_minor, currency))
    });
    let payment_id = (!claim.payment_id.is_empty()).then_some(claim.payment_id);
    let payment_id = payment_id.map(|id| violations.check("claim.payment_id", PaymentId::parse(&id)));
    violations.build(|| {
        Some(Claim {
            id: id?,
            customer_id: customer_id?,
            event: event?,
            state: state?,
            total: total?,
            expire_time: claim.expire_time.and_then(read_time),
            payment_id: payment_id.flatten(),
            buyer_email: claim.buyer_email,
            buyer_locale: claim.buyer_locale,
        })
    })
}

fn read_summary(summary: PbEventSummary, violations: &mut Violations) -> Option<EventSummary> {
    let id = violations.check("claim.event.event_id", EventId::parse(&summary.event_id))?;
    Some(EventSummary {
        id,
        name: summary.name,
        venue_name: summary.venue_name,
        venue_address: summary.venue_address,
        time_zone: summary.time_zone,
        start_time: summary.start_time.and_then(read_time),
    })
}

/// The organizer of an event, from Inventory's answer.
pub fn organizer(event: Option<Event>) -> Result<OrganizerId, InvalidFields> {
    let mut violations = Violations::new();
    let event = violations.require("event", event).unwrap_or_default();
    let organizer = violations.check("event.organizer_id", OrganizerId::parse(&event.organizer_id));
    violations.build(|| organizer)
}
