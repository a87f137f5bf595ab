//! Calls to the neighbors, and their responses.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    claim::v1 as claim_pb, convert::money_to_pb, inventory::v1 as inventory_pb,
    ticketing::v1 as ticketing_pb, r#type::v1::EventSummary as PbEventSummary,
};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId, PaymentId, RequestId};

use crate::domain::{Claim, ClaimState, EventSummary, Payment, Verdict};

pub(crate) fn get_claim(claim_id: ClaimId) -> claim_pb::GetClaimRequest {
    claim_pb::GetClaimRequest { claim_id: claim_id.to_string() }
}

pub(crate) fn extend_claim(payment: &Payment) -> claim_pb::ExtendClaimRequest {
    claim_pb::ExtendClaimRequest {
        request_id: RequestId::derive(payment.id.as_uuid(), "extend-claim").to_string(),
        claim_id: payment.claim_id.to_string(),
        payment_id: payment.id.to_string(),
    }
}

pub(crate) fn confirm_claim(payment: &Payment) -> claim_pb::ConfirmClaimRequest {
    claim_pb::ConfirmClaimRequest {
        request_id: RequestId::derive(payment.id.as_uuid(), "confirm-claim").to_string(),
        claim_id: payment.claim_id.to_string(),
        payment_id: payment.id.to_string(),
        amount: Some(money_to_pb(payment.amount)),
    }
}

pub(crate) fn get_event(event_id: EventId) -> inventory_pb::GetEventRequest {
    inventory_pb::GetEventRequest { event_id: event_id.to_string() }
}

pub(crate) fn void_tickets(claim_id: ClaimId) -> ticketing_pb::VoidTicketsRequest {
    ticketing_pb::VoidTicketsRequest {
        request_id: RequestId::derive(claim_id.as_uuid(), "void-tickets").to_string(),
        claim_id: claim_id.to_string(),
    }
}

/// Reads a claim from Claim's response.
pub(crate) fn claim(claim: Option<claim_pb::Claim>) -> Result<Claim, InvalidFields> {
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
    let event = event.and_then(|event| summary(event, &mut violations));
    let total = violations.require_money("claim.total", claim.total);
    let expire_time = violations.optional_time("claim.expire_time", claim.expire_time);
    let payment_id = violations.optional_id("claim.payment_id", &claim.payment_id);
    violations.build(|| {
        Some(Claim {
            id: id?,
            customer_id: customer_id?,
            event: event?,
            state: state?,
            total: total?,
            expire_time: expire_time?,
            payment_id: payment_id?,
            buyer_email: claim.buyer_email,
            buyer_locale: claim.buyer_locale,
        })
    })
}

fn summary(summary: PbEventSummary, violations: &mut Violations) -> Option<EventSummary> {
    let id = violations.check("claim.event.event_id", EventId::parse(&summary.event_id));
    let start_time = violations.optional_time("claim.event.start_time", summary.start_time);
    Some(EventSummary {
        id: id?,
        name: summary.name,
        venue_name: summary.venue_name,
        venue_address: summary.venue_address,
        time_zone: summary.time_zone,
        start_time: start_time?,
    })
}

/// Reads Claim's verdict on a payment. A claim that is neither confirmed nor released is a violation.
pub(crate) fn verdict(
    response: claim_pb::ConfirmClaimResponse,
    payment_id: PaymentId,
) -> Result<Verdict, InvalidFields> {
    let claim = claim(response.claim)?;
    let mut violations = Violations::new();
    let verdict = violations.require("claim.state", claim.verdict(payment_id));
    violations.build(|| verdict)
}

/// Reads the organizer of an event from Inventory's response.
pub(crate) fn organizer_id(response: inventory_pb::GetEventResponse) -> Result<OrganizerId, InvalidFields> {
    let mut violations = Violations::new();
    let event = violations.require("event", response.event).unwrap_or_default();
    let organizer_id = violations.check("event.organizer_id", OrganizerId::parse(&event.organizer_id));
    violations.build(|| organizer_id)
}
