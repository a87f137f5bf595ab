//! Requests of callers. Each conversion checks the form of every field and reports all violations at once.

use std::{collections::BTreeSet, fmt};

use onsale_kit::{
    auth::Identity,
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{claim::v1 as pb, r#type::v1::UnitSelection};
use onsale_storage::idempotency;
use onsale_types::{
    ClaimId, CustomerId, EventId, PageLimits, PageQuery, PageSize, PageToken, PaymentId, RequestId, SectorId,
    Timestamp,
};
use prost::Message;
use uuid::Uuid;

use super::responses::{CONFIRM_CLAIM, EXTEND_CLAIM, RELEASE_CLAIM};
use crate::domain::{
    Buyer, Claim, ClaimFilter, ClaimState, ConfirmClaim, CreateClaim, Credential, ExtendClaim, Selection,
    Wanted,
};

/// Limit of the contract.
const SELECTIONS_MAX: usize = 10;
/// Highest limit per customer that an event may have. Inventory checks the event's own limit.
const UNITS_MAX: u32 = 100;

/// A command with the idempotency record of its request.
pub(crate) type Idempotent<'a, T> = (T, idempotency::Request<'a, Claim>);

/// A page of a customer's claims.
#[derive(Clone, Debug)]
pub(crate) struct ListQuery {
    /// Its `count_max` is one more than the page size, to find out whether another page follows.
    pub(crate) filter: ClaimFilter,
    pub(crate) page_size: PageSize,
    /// Parameters of the list. A page token is valid only with the same parameters.
    pub(crate) page_query: PageQuery,
}

/// Reads a `CreateClaim` of the caller.
pub(crate) fn create_claim(
    identity: &Identity,
    request: &pb::CreateClaimRequest,
) -> Result<CreateClaim, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let credential = match &request.right {
        Some(pb::create_claim_request::Right::TurnToken(token)) if !token.is_empty() => {
            Some(Credential::Turn(Secret::new(token)))
        }
        Some(pb::create_claim_request::Right::InvitationToken(token)) if !token.is_empty() => {
            Some(Credential::Invitation(Secret::new(token)))
        }
        Some(_) | None => None,
    };
    let credential = violations.require("turn_token", credential);
    let selections = selections(&mut violations, &request.selections);
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &request.encode_to_vec());
    violations.build(|| {
        Some(CreateClaim {
            request_id: request_id?,
            fingerprint,
            customer_id: identity.customer_id(),
            buyer: buyer(identity),
            event_id: event_id?,
            credential: credential?,
            selections,
        })
    })
}

/// Returns the buyer, or `None` without a verified email address.
fn buyer(identity: &Identity) -> Option<Buyer> {
    let email = identity.email.clone().filter(|email| !email.is_empty())?;
    Some(Buyer { email, locale: identity.locale.clone().unwrap_or_default() })
}

pub(crate) fn get_claim(request: &pb::GetClaimRequest) -> Result<ClaimId, InvalidFields> {
    let mut violations = Violations::new();
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| claim_id)
}

/// Reads a `ListClaims` of a customer.
pub(crate) fn list_claims(
    customer_id: CustomerId,
    request: &pb::ListClaimsRequest,
) -> Result<ListQuery, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.optional_id::<EventId>("event_id", &request.event_id).flatten();
    let states = states(&mut violations, &request.states);
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let page_query = PageQuery::new("claims")
        .with("customer", customer_id.as_uuid())
        .with("event", event_id.map(|event_id| event_id.to_string()).unwrap_or_default())
        .with("states", format!("{states:?}"));
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &page_query));
    let after = match token.flatten() {
        None => None,
        Some(token) => violations.check("page_token", position(&token).ok_or("the page token is malformed")),
    };
    violations.build(|| {
        let page_size = page_size?;
        let count_max = page_size.rows_and_one();
        let filter = ClaimFilter { customer_id, event_id, states, after, count_max };
        Some(ListQuery { filter, page_size, page_query })
    })
}

pub(crate) fn release_claim<'a>(
    caller: &'a str,
    request: &pb::ReleaseClaimRequest,
) -> Result<Idempotent<'a, ClaimId>, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| {
        let idempotent = RELEASE_CLAIM.request(caller, request_id?, &request.encode_to_vec());
        Some((claim_id?, idempotent))
    })
}

pub(crate) fn confirm_claim<'a>(
    caller: &'a str,
    request: &pb::ConfirmClaimRequest,
) -> Result<Idempotent<'a, ConfirmClaim>, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let payment_id = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    let amount = violations.require_money("amount", request.amount.clone());
    violations.build(|| {
        let command = ConfirmClaim { claim_id: claim_id?, payment_id: payment_id?, amount: amount? };
        Some((command, CONFIRM_CLAIM.request(caller, request_id?, &request.encode_to_vec())))
    })
}

pub(crate) fn extend_claim<'a>(
    caller: &'a str,
    request: &pb::ExtendClaimRequest,
) -> Result<Idempotent<'a, ExtendClaim>, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let payment_id = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    violations.build(|| {
        let command = ExtendClaim { claim_id: claim_id?, payment_id: payment_id? };
        Some((command, EXTEND_CLAIM.request(caller, request_id?, &request.encode_to_vec())))
    })
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
        let sector_id =
            violations.check(format_args!("{field}.sector_id"), SectorId::parse(&selection.sector_id));
        if let Some(sector_id) = sector_id
            && !sectors.insert(sector_id)
        {
            violations.push(format_args!("{field}.sector_id"), "must not be repeated");
        }
        let wanted = wanted(violations, field, selection);
        if let (Some(sector_id), Some(wanted)) = (sector_id, wanted) {
            selections.push(Selection { sector_id, wanted });
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
        violations.push(format_args!("{field}.count"), "exactly one of count and units must be set");
    } else if count > UNITS_MAX {
        violations.push(format_args!("{field}.count"), format!("must be 1 to {UNITS_MAX}"));
    } else if units.contains(&0) || distinct.len() != units.len() {
        violations.push(format_args!("{field}.units"), "must be distinct and at least 1");
    } else if u32::try_from(units.len()).unwrap_or(u32::MAX) > UNITS_MAX {
        violations.push(format_args!("{field}.units"), format!("must be at most {UNITS_MAX}"));
    } else if count > 0 {
        return Some(Wanted::Count(count));
    } else {
        return Some(Wanted::Units(units.clone()));
    }
    None
}

/// Returns the distinct states in a fixed order, so that page tokens do not depend on the order of the request.
fn states(violations: &mut Violations, requested: &[i32]) -> Vec<ClaimState> {
    let mut states = BTreeSet::new();
    for (index, state) in requested.iter().enumerate() {
        match pb::ClaimState::try_from(*state) {
            Ok(pb::ClaimState::Claimed) => states.insert(ClaimState::Claimed),
            Ok(pb::ClaimState::Confirmed) => states.insert(ClaimState::Confirmed),
            Ok(pb::ClaimState::Released) => states.insert(ClaimState::Released),
            Ok(pb::ClaimState::Unspecified) | Err(_) => {
                violations.push(format!("states[{index}]"), "is not a state of a claim");
                false
            }
        };
    }
    states.into_iter().collect()
}

/// Reads the creation time and id of the last claim on the previous page.
fn position(token: &PageToken) -> Option<(Timestamp, ClaimId)> {
    let (micros, id) = token.position().split_first_chunk::<8>()?;
    let id = Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), ClaimId::from_uuid(id)))
}
