//! Claims as callers see them.

use onsale_proto::{
    claim::v1 as pb,
    r#type::v1::{LineItem, Seat as PbSeat, Unit as PbUnit},
};
use onsale_types::{Money, PageQuery, PageToken};

use super::{ListQuery, event_to_pb, money_to_pb, timestamp_to_pb};
use crate::domain::{Claim, Item, ReleaseReason, Stage, State, Transition};

/// The claim for the wire.
#[must_use]
pub fn claim_to_pb(claim: &Claim) -> pb::Claim {
    let stage = claim.life.stage();
    // A payment shows once it has paid; while it is being settled the claim is what it was.
    let payment_id = match claim.life.state {
        State::Confirmed { payment } => payment.to_string(),
        State::Claimed { .. } | State::Released { .. } | State::Rejected { .. } => String::new(),
    };
    let is_claimed = stage == Stage::Claimed;
    pb::Claim {
        claim_id: claim.id.to_string(),
        customer_id: claim.customer.to_string(),
        event: event_to_pb(&claim.event),
        state: state(stage).into(),
        items: claim.items.iter().map(item_to_pb).collect(),
        total: money_to_pb(claim.total),
        buyer_email: claim.buyer.email.clone(),
        buyer_locale: claim.buyer.locale.clone(),
        create_time: timestamp_to_pb(claim.lifetime.create_time),
        expire_time: if is_claimed { timestamp_to_pb(claim.lifetime.expire_time) } else { None },
        payment_id,
        release_reason: release_reason(stage).into(),
        history: claim.history.iter().map(transition_to_pb).collect(),
    }
}

/// A page of claims; `claims` has one more than the page when there is another after it.
#[must_use]
pub fn claims_page(claims: &[Claim], query: &ListQuery) -> pb::ListClaimsResponse {
    let rows = usize::try_from(query.page_size.rows()).unwrap_or(usize::MAX);
    let page = claims.get(..rows).unwrap_or(claims);
    let next = page.last().filter(|_| claims.len() > page.len());
    pb::ListClaimsResponse {
        claims: page.iter().map(claim_to_pb).collect(),
        next_page_token: next.map(|last| next_page_token(last, &query.page_query)).unwrap_or_default(),
    }
}

/// The token of the page that begins after `last`; `ListClaims` reads it back.
fn next_page_token(last: &Claim, query: &PageQuery) -> String {
    let mut position = last.lifetime.create_time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(last.id.as_uuid().as_bytes());
    PageToken::after(position).encode(query)
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
        sector_id: item.sector.to_string(),
        sector_name: item.sector_name.clone(),
        units: units.collect(),
        unit_price: money_to_pb(item.unit_price),
        // The claim's total was computed from the same amounts, so this one fits too.
        amount: money_to_pb(item.amount().unwrap_or(Money::zero(item.unit_price.currency()))),
        group_count: item.group_count,
    }
}

pub(super) fn release_reason(stage: Stage) -> pb::ReleaseReason {
    match stage {
        Stage::Claimed | Stage::Confirmed => pb::ReleaseReason::Unspecified,
        Stage::Released(ReleaseReason::Customer) => pb::ReleaseReason::Customer,
        Stage::Released(ReleaseReason::Expired) => pb::ReleaseReason::Expired,
        Stage::Released(ReleaseReason::PaymentFailed) => pb::ReleaseReason::PaymentFailed,
        Stage::Rejected => pb::ReleaseReason::Rejected,
    }
}

fn state(stage: Stage) -> pb::ClaimState {
    match stage {
        Stage::Claimed => pb::ClaimState::Claimed,
        Stage::Confirmed => pb::ClaimState::Confirmed,
        Stage::Released(_) | Stage::Rejected => pb::ClaimState::Released,
    }
}

fn transition_to_pb(transition: &Transition) -> pb::ClaimTransition {
    pb::ClaimTransition {
        state: state(transition.stage).into(),
        transition_time: timestamp_to_pb(transition.time),
        release_reason: release_reason(transition.stage).into(),
    }
}
