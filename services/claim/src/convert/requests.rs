//! Requests and events from the wire: the form of every field, all violations in one answer.

use std::{collections::BTreeSet, fmt};

use onsale_kit::{
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{
    claim::v1 as pb,
    events::v1::{PaymentConfirmed, QueueExpired},
    queue::v1::ExpireReason,
    r#type::v1::UnitSelection,
};
use onsale_types::{
    ClaimId, CustomerId, EventId, PageLimits, PageQuery, PageSize, PageToken, PaymentId, RequestId, SectorId,
    Timestamp,
};
use prost::Message;
use uuid::Uuid;

use super::money;
use crate::{
    app::{ConfirmClaim, CreateClaim, ExtendClaim, Right, TurnEnded},
    domain::{Buyer, ReleaseReason, Selection, Wanted},
    store::claims::{Filter, ListedState},
};

/// From the contract.
const SELECTIONS_MAX: usize = 10;
/// The largest limit per customer that an event can have; the event's own is for Inventory to check.
const UNITS_MAX: u32 = 100;

/// A page of a list of claims.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Which claims; one more than the page has, to learn whether there is a next one.
    pub filter: Filter,
    /// How many to answer.
    pub page_size: PageSize,
    /// What the tokens of this list belong to.
    pub page_query: PageQuery,
}

/// `CreateClaim` of `customer`, who buys as `buyer` if they may.
pub fn create_claim(
    customer: CustomerId,
    buyer: Option<Buyer>,
    request: &pb::CreateClaimRequest,
) -> Result<CreateClaim, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event = violations.check("event_id", EventId::parse(&request.event_id));
    let right = match &request.right {
        Some(pb::create_claim_request::Right::TurnToken(token)) if !token.is_empty() => {
            Some(Right::Turn(Secret::new(token)))
        }
        Some(pb::create_claim_request::Right::InvitationToken(token)) if !token.is_empty() => {
            Some(Right::Invitation(Secret::new(token)))
        }
        Some(_) | None => None,
    };
    let right = violations.require("turn_token", right);
    let selections = selections(&mut violations, &request.selections);
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &request.encode_to_vec());
    violations.build(|| {
        let (request_id, event, right) = (request_id?, event?, right?);
        Some(CreateClaim { request_id, fingerprint, customer, buyer, event, right, selections })
    })
}

/// `GetClaim`.
pub fn get_claim(request: &pb::GetClaimRequest) -> Result<ClaimId, InvalidFields> {
    let mut violations = Violations::new();
    let claim = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| claim)
}

/// `ListClaims` of `customer`.
pub fn list_claims(
    customer: CustomerId,
    request: &pb::ListClaimsRequest,
) -> Result<ListQuery, InvalidFields> {
    let mut violations = Violations::new();
    let event = match request.event_id.as_str() {
        "" => None,
        text => violations.check("event_id", EventId::parse(text)),
    };
    let states = states(&mut violations, &request.states);
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let page_query = PageQuery::new("claims")
        .with("customer", customer.as_uuid())
        .with("event", event.map(|event| event.to_string()).unwrap_or_default())
        .with("states", format!("{states:?}"));
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &page_query));
    let after = match token.flatten() {
        None => None,
        Some(token) => violations.check("page_token", position(&token).ok_or("the page token is malformed")),
    };
    violations.build(|| {
        let page_size = page_size?;
        let count_max = page_size.rows_and_one();
        Some(ListQuery {
            filter: Filter { customer, event, states, after, count_max },
            page_size,
            page_query,
        })
    })
}

/// `ReleaseClaim`.
pub fn release_claim(request: &pb::ReleaseClaimRequest) -> Result<(RequestId, ClaimId), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| Some((request_id?, claim?)))
}

/// `ConfirmClaim`.
pub fn confirm_claim(request: &pb::ConfirmClaimRequest) -> Result<(RequestId, ConfirmClaim), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let payment = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    let amount = violations.check("amount", money(request.amount.clone()));
    violations
        .build(|| Some((request_id?, ConfirmClaim { claim: claim?, payment: payment?, amount: amount? })))
}

/// `ExtendClaim`.
pub fn extend_claim(request: &pb::ExtendClaimRequest) -> Result<(RequestId, ExtendClaim), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let payment = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    violations.build(|| Some((request_id?, ExtendClaim { claim: claim?, payment: payment? })))
}

/// `payment.confirmed` asks for what `ConfirmClaim` asks for.
pub fn payment_confirmed(event: &PaymentConfirmed) -> Result<ConfirmClaim, InvalidFields> {
    let mut violations = Violations::new();
    let claim = violations.check("claim_id", ClaimId::parse(&event.claim_id));
    let payment = violations.check("payment_id", PaymentId::parse(&event.payment_id));
    let amount = violations.check("amount", money(event.amount.clone()));
    violations.build(|| Some(ConfirmClaim { claim: claim?, payment: payment?, amount: amount? }))
}

/// A turn whose open claim is to be given up with it; none when the claim may run its own time.
///
/// It may when the turn ran out, for a claim ends with its turn at the latest, by its own clock, unless a payment in progress
/// has extended it; and when the queue closed or lost sight of the customer, who may be paying at this moment. Who left or was
/// blocked is not waited for.
pub fn turn_ended(event: &QueueExpired) -> Result<Option<TurnEnded>, InvalidFields> {
    let reason = match event.reason() {
        ExpireReason::Left => ReleaseReason::Customer,
        ExpireReason::Blocked => ReleaseReason::Expired,
        ExpireReason::Unspecified
        | ExpireReason::NotSeen
        | ExpireReason::TurnExpired
        | ExpireReason::QueueClosed => return Ok(None),
    };
    if event.fencing_number == 0 {
        // It never had a turn.
        return Ok(None);
    }
    let mut violations = Violations::new();
    let summary = violations.require("event", event.event.as_ref());
    let id = summary.and_then(|it| violations.check("event.event_id", EventId::parse(&it.event_id)));
    let customer = violations.check("customer_id", CustomerId::parse(&event.customer_id));
    let fencing_number = event.fencing_number;
    violations.build(|| Some(Some(TurnEnded { event: id?, customer: customer?, fencing_number, reason })))
}

fn selections(violations: &mut Violations, requested: &[UnitSelection]) -> Vec<Selection> {
    if requested.is_empty() || requested.len() > SELECTIONS_MAX {
        violations.push("selections", format!("must be 1 to {SELECTIONS_MAX}"));
        return Vec::new();
    }
    let mut selections = Vec::with_capacity(requested.len());
    let mut sectors = BTreeSet::new();
    for (index, selection) in requested.iter().enumerate() {
        let field = format_args!("selections[{index}]");
        let sector =
            violations.check(format_args!("{field}.sector_id"), SectorId::parse(&selection.sector_id));
        if let Some(sector) = sector
            && !sectors.insert(sector)
        {
            violations.push(format_args!("{field}.sector_id"), "is named twice");
        }
        let wanted = wanted(violations, field, selection);
        if let (Some(sector), Some(wanted)) = (sector, wanted) {
            selections.push(Selection { sector, wanted });
        }
    }
    selections
}

fn wanted(
    violations: &mut Violations,
    field: fmt::Arguments<'_>,
    selection: &UnitSelection,
) -> Option<Wanted> {
    let (count, units) = (selection.count, &selection.units);
    let distinct: BTreeSet<_> = units.iter().collect();
    if (count == 0) == units.is_empty() {
        violations.push(format_args!("{field}.count"), "exactly one of count and units is to be given");
    } else if count > UNITS_MAX {
        violations.push(format_args!("{field}.count"), format!("must be 1 to {UNITS_MAX}"));
    } else if units.contains(&0) || distinct.len() != units.len() {
        violations.push(format_args!("{field}.units"), "must be distinct and count from 1");
    } else if u32::try_from(units.len()).unwrap_or(u32::MAX) > UNITS_MAX {
        violations.push(format_args!("{field}.units"), format!("must be at most {UNITS_MAX}"));
    } else if count > 0 {
        return Some(Wanted::Count(count));
    } else {
        return Some(Wanted::Units(units.clone()));
    }
    None
}

/// Each state once, in one order.
fn states(violations: &mut Violations, requested: &[i32]) -> Vec<ListedState> {
    let mut states = BTreeSet::new();
    for (index, state) in requested.iter().enumerate() {
        match pb::ClaimState::try_from(*state) {
            Ok(pb::ClaimState::Claimed) => states.insert(ListedState::Claimed),
            Ok(pb::ClaimState::Confirmed) => states.insert(ListedState::Confirmed),
            Ok(pb::ClaimState::Released) => states.insert(ListedState::Released),
            Ok(pb::ClaimState::Unspecified) | Err(_) => {
                violations.push(format!("states[{index}]"), "is no state of a claim");
                false
            }
        };
    }
    states.into_iter().collect()
}

fn position(token: &PageToken) -> Option<(Timestamp, ClaimId)> {
    let (micros, id) = token.position().split_first_chunk::<8>()?;
    let id = Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), ClaimId::from_uuid(id)))
}
