//! Responses to callers. Three methods store their response, so its bytes must stay decodable for the retention of stored
//! responses, 7 days.

use onsale_proto::{
    claim::v1 as pb,
    convert::{money_to_pb, time_to_pb},
    r#type::v1::{
        EventSummary as PbEventSummary, LineItem, Money as PbMoney, Seat as PbSeat, Unit as PbUnit,
    },
};
use onsale_storage::idempotency::{Answer, Method};
use onsale_types::{Money, PageQuery, PageToken};
use prost::Message as _;

use super::requests::ListQuery;
use crate::{
    domain::{Claim, EventSummary, Item, ReleaseReason, Stage, State, Transition},
    error::Error,
};

pub(super) const RELEASE_CLAIM: Method<Claim> =
    Method::new("ReleaseClaim", |claim| released(claim).encode_to_vec());
pub(super) const CONFIRM_CLAIM: Method<Claim> =
    Method::new("ConfirmClaim", |claim| confirmed(claim).encode_to_vec());
pub(super) const EXTEND_CLAIM: Method<Claim> =
    Method::new("ExtendClaim", |claim| extended(claim).encode_to_vec());

pub(crate) fn create_claim(claim: &Claim) -> pb::CreateClaimResponse {
    pb::CreateClaimResponse { claim: Some(claim_to_pb(claim)) }
}

pub(crate) fn get_claim(claim: &Claim) -> pb::GetClaimResponse {
    pb::GetClaimResponse { claim: Some(claim_to_pb(claim)) }
}

/// Encodes a page of claims. `claims` has one more than the page if another page follows.
pub(crate) fn list_claims(claims: &[Claim], query: &ListQuery) -> pb::ListClaimsResponse {
    let rows = usize::try_from(query.page_size.rows()).unwrap_or(usize::MAX);
    let page = claims.get(..rows).unwrap_or(claims);
    let next = page.last().filter(|_| claims.len() > page.len());
    pb::ListClaimsResponse {
        claims: page.iter().map(claim_to_pb).collect(),
        next_page_token: next.map(|last| next_page_token(last, &query.page_query)).unwrap_or_default(),
    }
}

/// Encodes the response of `ReleaseClaim`, or decodes the stored one.
pub(crate) fn release_claim(answer: Answer<Claim>) -> Result<pb::ReleaseClaimResponse, Error> {
    Ok(answer.into_response(released, |bytes| pb::ReleaseClaimResponse::decode(bytes))?)
}

/// Encodes the response of `ConfirmClaim`, or decodes the stored one.
pub(crate) fn confirm_claim(answer: Answer<Claim>) -> Result<pb::ConfirmClaimResponse, Error> {
    Ok(answer.into_response(confirmed, |bytes| pb::ConfirmClaimResponse::decode(bytes))?)
}

/// Encodes the response of `ExtendClaim`, or decodes the stored one.
pub(crate) fn extend_claim(answer: Answer<Claim>) -> Result<pb::ExtendClaimResponse, Error> {
    Ok(answer.into_response(extended, |bytes| pb::ExtendClaimResponse::decode(bytes))?)
}

fn released(claim: &Claim) -> pb::ReleaseClaimResponse {
    pb::ReleaseClaimResponse { claim: Some(claim_to_pb(claim)) }
}

fn confirmed(claim: &Claim) -> pb::ConfirmClaimResponse {
    pb::ConfirmClaimResponse { claim: Some(claim_to_pb(claim)) }
}

fn extended(claim: &Claim) -> pb::ExtendClaimResponse {
    pb::ExtendClaimResponse { claim: Some(claim_to_pb(claim)) }
}

fn claim_to_pb(claim: &Claim) -> pb::Claim {
    let (state, release_reason) = match claim.lifecycle.state {
        State::Claimed { .. } => (pb::ClaimState::Claimed, pb::ReleaseReason::Unspecified),
        State::Confirmed { .. } => (pb::ClaimState::Confirmed, pb::ReleaseReason::Unspecified),
        State::Released { reason, .. } => (pb::ClaimState::Released, released_for(reason)),
        State::Rejected { .. } => (pb::ClaimState::Released, pb::ReleaseReason::Rejected),
    };
    // The contract shows the payment of a confirmed claim only. During the settlement the claim keeps its previous state.
    let payment_id = match claim.lifecycle.state {
        State::Confirmed { payment_id } => payment_id.to_string(),
        State::Claimed { .. } | State::Released { .. } | State::Rejected { .. } => String::new(),
    };
    let is_claimed = state == pb::ClaimState::Claimed;
    pb::Claim {
        claim_id: claim.id.to_string(),
        customer_id: claim.customer_id.to_string(),
        event: Some(event_to_pb(&claim.event)),
        state: state.into(),
        items: claim.items.iter().map(item_to_pb).collect(),
        total: Some(money_to_pb(claim.total)),
        buyer_email: claim.buyer.email.clone(),
        buyer_locale: claim.buyer.locale.clone(),
        create_time: Some(time_to_pb(claim.expiry.create_time)),
        expire_time: is_claimed.then(|| time_to_pb(claim.expiry.expire_time)),
        payment_id,
        release_reason: release_reason.into(),
        history: claim.history.iter().map(transition_to_pb).collect(),
    }
}

fn transition_to_pb(transition: &Transition) -> pb::ClaimTransition {
    let state = match transition.stage {
        Stage::Claimed => pb::ClaimState::Claimed,
        Stage::Confirmed => pb::ClaimState::Confirmed,
        Stage::Released(_) | Stage::Rejected => pb::ClaimState::Released,
    };
    pb::ClaimTransition {
        state: state.into(),
        transition_time: Some(time_to_pb(transition.time)),
        release_reason: release_reason(transition.stage).into(),
    }
}

/// Returns the release reason of a stage; UNSPECIFIED for a claim that is not released.
pub(super) fn release_reason(stage: Stage) -> pb::ReleaseReason {
    match stage {
        Stage::Claimed | Stage::Confirmed => pb::ReleaseReason::Unspecified,
        Stage::Released(reason) => released_for(reason),
        Stage::Rejected => pb::ReleaseReason::Rejected,
    }
}

fn released_for(reason: ReleaseReason) -> pb::ReleaseReason {
    match reason {
        ReleaseReason::Customer => pb::ReleaseReason::Customer,
        ReleaseReason::Expired => pb::ReleaseReason::Expired,
        ReleaseReason::PaymentFailed => pb::ReleaseReason::PaymentFailed,
    }
}

pub(super) fn event_to_pb(event: &EventSummary) -> PbEventSummary {
    PbEventSummary {
        event_id: event.id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone(),
        time_zone: event.time_zone.clone(),
        start_time: Some(time_to_pb(event.start_time)),
    }
}

pub(super) fn item_to_pb(item: &Item) -> LineItem {
    let units = item.units.iter().map(|unit| PbUnit {
        number: unit.number,
        seat: unit
            .seat
            .as_ref()
            .map(|seat| PbSeat { row_label: seat.row_label.clone(), seat_label: seat.seat_label.clone() }),
    });
    LineItem {
        sector_id: item.sector_id.to_string(),
        sector_name: item.sector_name.clone(),
        units: units.collect(),
        unit_price: Some(money_to_pb(item.unit_price)),
        amount: Some(amount_to_pb(item)),
        group_count: item.group_count,
    }
}

/// Encodes the price of an item. It cannot overflow, because the claim's total was computed from the same amounts.
fn amount_to_pb(item: &Item) -> PbMoney {
    money_to_pb(item.amount().unwrap_or(Money::zero(item.unit_price.currency())))
}

/// Encodes the token of the page that begins after `last`; `requests::list_claims` reads it.
fn next_page_token(last: &Claim, query: &PageQuery) -> String {
    let mut position = last.expiry.create_time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(last.id.as_uuid().as_bytes());
    PageToken::after(position).encode(query)
}
