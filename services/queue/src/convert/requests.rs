//! Requests of customers and of Claim. Every field is checked, and all violations are reported at once.

pub(crate) mod admin;
mod policy;

use std::time::Duration;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{convert::duration_from_pb, queue::v1 as pb};
use onsale_storage::idempotency::Request;
use onsale_types::{ClaimId, CustomerId, EventId, RequestId};
use prost::Message;
use uuid::Uuid;

use super::responses::{COMPLETE_TURN, LEAVE_QUEUE};
use crate::domain::{entry::Entry, entry_view::EntryQuery, join::JoinRequest, turn::TurnKey};

const DISPLAY_NAME_CHARS_MAX: usize = 64;
const AVATAR_URL_CHARS_MAX: usize = 512;
const NEIGHBORS_MAX: u32 = 20;
const NEIGHBORS_DEFAULT: u32 = 5;

/// The event and the idempotency key of a changing request.
#[derive(Clone, Copy, Debug)]
struct EventRequest {
    event_id: EventId,
    request_id: RequestId,
}

/// Reads `JoinQueue`.
pub(crate) fn join_queue(
    customer_id: CustomerId,
    request: &pb::JoinQueueRequest,
) -> Result<JoinRequest, InvalidFields> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    check_text(&mut violations, "display_name", &request.display_name, DISPLAY_NAME_CHARS_MAX);
    check_text(&mut violations, "avatar_url", &request.avatar_url, AVATAR_URL_CHARS_MAX);
    if !request.avatar_url.is_empty() && !is_https(&request.avatar_url) {
        violations.push("avatar_url", "must be an https URL");
    }
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &request.encode_to_vec());
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        Some(JoinRequest {
            event_id,
            customer_id,
            request_id,
            fingerprint,
            display_name: request.display_name.clone(),
            avatar_url: request.avatar_url.clone(),
        })
    })
}

/// Reads a customer's question about their own entry.
pub(crate) fn entry_query(
    customer_id: CustomerId,
    event_id: &str,
    queue_token: String,
) -> Result<EntryQuery, InvalidFields> {
    let event_id = self::event_id(event_id)?;
    Ok(EntryQuery { event_id, customer_id, queue_token })
}

/// Reads the event of a request without other fields.
pub(crate) fn event_id(event_id: &str) -> Result<EventId, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(event_id));
    violations.build(|| event_id)
}

/// Reads `LeaveQueue` of `caller`.
pub(crate) fn leave_queue<'a>(
    caller: &'a str,
    request: &pb::LeaveQueueRequest,
) -> Result<(EventId, Request<'a, Option<Entry>>), InvalidFields> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        Some((event_id, LEAVE_QUEUE.request(caller, request_id, &request.encode_to_vec())))
    })
}

/// Reads `ListNeighbors`: the event and the number of neighbors on either side.
pub(crate) fn list_neighbors(request: &pb::ListNeighborsRequest) -> Result<(EventId, u32), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let wanted = if request.neighbors_max == 0 { NEIGHBORS_DEFAULT } else { request.neighbors_max };
    let neighbors_max = violations.check("neighbors_max", at_most(wanted, NEIGHBORS_MAX));
    violations.build(|| Some((event_id?, neighbors_max?)))
}

/// Reads `ValidateTurn`.
pub(crate) fn validate_turn(request: &pb::ValidateTurnRequest) -> Result<TurnKey, InvalidFields> {
    let mut violations = Violations::new();
    let turn = turn_key(&mut violations, &request.event_id, &request.customer_id, request.fencing_number);
    violations.build(|| turn)
}

/// Reads `CompleteTurn` of `caller`.
pub(crate) fn complete_turn<'a>(
    caller: &'a str,
    request: &pb::CompleteTurnRequest,
) -> Result<(TurnKey, ClaimId, Request<'a, Option<Entry>>), InvalidFields> {
    let mut violations = Violations::new();
    let turn = turn_key(&mut violations, &request.event_id, &request.customer_id, request.fencing_number);
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    violations.build(|| {
        let once = COMPLETE_TURN.request(caller, request_id?, &request.encode_to_vec());
        Some((turn?, claim_id?, once))
    })
}

fn event_request(violations: &mut Violations, event_id: &str, request_id: &str) -> Option<EventRequest> {
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let request_id = violations.check("request_id", RequestId::parse(request_id));
    Some(EventRequest { event_id: event_id?, request_id: request_id? })
}

fn turn_key(
    violations: &mut Violations,
    event_id: &str,
    customer_id: &str,
    fencing_number: u64,
) -> Option<TurnKey> {
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let customer_id = violations.check("customer_id", CustomerId::parse(customer_id));
    // The store counts up to `i64::MAX`.
    let is_number = (1..=i64::MAX.unsigned_abs()).contains(&fencing_number);
    let number = if is_number { Ok(fencing_number) } else { Err("is not a fencing number") };
    let fencing_number = violations.check("fencing_number", number);
    Some(TurnKey { event_id: event_id?, customer_id: customer_id?, fencing_number: fencing_number? })
}

fn at_most(value: u32, max: u32) -> Result<u32, String> {
    if value <= max { Ok(value) } else { Err(format!("must be at most {max}")) }
}

fn optional_span(
    span: Option<prost_types::Duration>,
    (min, max): (Duration, Duration),
) -> Result<Option<Duration>, String> {
    let Some(span) = span else { return Ok(None) };
    match duration_from_pb(span) {
        Ok(span) if (min..=max).contains(&span) => Ok(Some(span)),
        _ => Err(format!("must be from {} s to {} s", min.as_secs(), max.as_secs())),
    }
}

fn check_text(violations: &mut Violations, field: &str, text: &str, chars_max: usize) {
    if text.chars().count() > chars_max {
        violations.push(field, format!("must be at most {chars_max} characters"));
    }
    if text.chars().any(char::is_control) {
        violations.push(field, "must have no control characters");
    }
}

fn is_https(url: &str) -> bool {
    let host = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty()) && !url.contains(char::is_whitespace)
}
