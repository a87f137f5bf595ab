//! Requests of callers: every field is checked, and one error lists all violations.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    convert::time_from_pb,
    ticketing::v1::{
        self as pb, get_generation_request::Lookup as GetLookup,
        watch_generation_request::Lookup as WatchLookup,
    },
};
use onsale_storage::idempotency::Request;
use onsale_types::{
    ClaimId, CustomerId, EventId, GenerationId, PageLimits, PageQuery, PageSize, PageToken, RequestId,
    TicketId, Timestamp,
};
use prost::Message as _;

use super::{non_empty, ordered_units, responses};
use crate::domain::{
    check_in::{CheckInResult, Scan, check_scan_time},
    code::Code,
    document::DocumentKind,
    generation::{Generation, GenerationLookup},
    order::Order,
    ticket::{ListPosition, ListTickets, Ticket, TicketFilter, TicketState},
};

const CODE_CHARS_MAX: usize = 512;
const GATE_CHARS_MAX: usize = 64;
const SECTORS_MAX: usize = 10;
const EMAIL_CHARS_MAX: usize = 254;
const LOCALE_CHARS_MAX: usize = 35;

pub(crate) fn list_tickets(
    customer_id: CustomerId,
    request: &pb::ListTicketsRequest,
) -> Result<ListTickets, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.optional_id::<EventId>("event_id", &request.event_id);
    let claim_id = violations.optional_id::<ClaimId>("claim_id", &request.claim_id);
    let states: Result<Vec<_>, _> = request.states.iter().map(|state| ticket_state(*state)).collect();
    let states = violations.check("states", states);
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let query = list_query(customer_id, request);
    let after = PageToken::parse(&request.page_token, &query).map_err(|error| error.to_string());
    let after =
        violations.check("page_token", after.and_then(|token| token.as_ref().map(position).transpose()));
    violations.build(|| {
        let filter = TicketFilter { event_id: event_id?, claim_id: claim_id?, states: states? };
        Some(ListTickets { customer_id, filter, after: after?, page_size: page_size?, query })
    })
}

/// Returns the query to which page tokens are bound. Its states are sorted, so their order in the request does not matter.
fn list_query(customer_id: CustomerId, request: &pb::ListTicketsRequest) -> PageQuery {
    let mut states = request.states.clone();
    states.sort_unstable();
    states.dedup();
    PageQuery::new("tickets")
        .with("customer", customer_id.to_string())
        .with("event", request.event_id.to_lowercase())
        .with("claim", request.claim_id.to_lowercase())
        .with("states", format!("{states:?}"))
}

fn ticket_state(state: i32) -> Result<TicketState, &'static str> {
    match pb::TicketState::try_from(state) {
        Ok(pb::TicketState::Generated) => Ok(TicketState::Generated),
        Ok(pb::TicketState::Issued) => Ok(TicketState::Issued),
        Ok(pb::TicketState::CheckedIn) => Ok(TicketState::CheckedIn),
        Ok(pb::TicketState::Void) => Ok(TicketState::Void),
        Ok(pb::TicketState::Unspecified) | Err(_) => Err("must be states of a ticket"),
    }
}

/// Reads the position that `responses::list_tickets` wrote: 8 bytes of microseconds, then the ticket id.
fn position(token: &PageToken) -> Result<ListPosition, String> {
    let parts = token.position().split_first_chunk::<8>();
    let parts = parts.and_then(|(micros, id)| Some((*micros, uuid::Uuid::from_slice(id).ok()?)));
    let (micros, id) = parts.ok_or("the page token is malformed")?;
    let start_time = Timestamp::from_micros(i64::from_be_bytes(micros));
    Ok(ListPosition { start_time, ticket_id: TicketId::from_uuid(id) })
}

pub(crate) fn get_ticket(
    request: &pb::GetTicketRequest,
) -> Result<(TicketId, Vec<DocumentKind>), InvalidFields> {
    let mut violations = Violations::new();
    let ticket_id = violations.check("ticket_id", TicketId::parse(&request.ticket_id));
    let mut kinds = Vec::new();
    for (index, kind) in request.document_kinds.iter().enumerate() {
        let field = format!("document_kinds[{index}]");
        let Some(kind) = violations.check(field.as_str(), document_kind(*kind)) else { continue };
        if kinds.contains(&kind) {
            violations.push(field, "is requested twice");
        }
        kinds.push(kind);
    }
    violations.build(|| Some((ticket_id?, kinds)))
}

fn document_kind(kind: i32) -> Result<DocumentKind, &'static str> {
    match pb::DocumentKind::try_from(kind) {
        Ok(pb::DocumentKind::QrPng) => Ok(DocumentKind::QrPng),
        Ok(pb::DocumentKind::QrSvg) => Ok(DocumentKind::QrSvg),
        Ok(pb::DocumentKind::Pdf) => Ok(DocumentKind::Pdf),
        Ok(pb::DocumentKind::Unspecified) | Err(_) => Err("is not a kind of document"),
    }
}

/// Reads a scan that arrived at `now`.
pub(crate) fn check_in_ticket<'a>(
    caller: &'a str,
    request: &pb::CheckInTicketRequest,
    now: Timestamp,
) -> Result<(Scan, Request<'a, CheckInResult>), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    if request.code.is_empty() || request.code.chars().count() > CODE_CHARS_MAX {
        violations.push("code", format!("must have 1 to {CODE_CHARS_MAX} characters"));
    }
    if request.gate.is_empty() || request.gate.chars().count() > GATE_CHARS_MAX {
        violations.push("gate", format!("must have 1 to {GATE_CHARS_MAX} characters"));
    }
    let scan_time = request.scan_time.map(|time| {
        let time = time_from_pb(time).map_err(|error| error.to_string())?;
        check_scan_time(time, now).map_err(|error| error.to_string())
    });
    let scan_time = violations.check("scan_time", scan_time.transpose());
    violations.build(|| {
        let (event_id, scan_time) = (event_id?, scan_time?);
        let code = Code::from_text(request.code.clone());
        let scan = Scan { event_id, code, gate: request.gate.clone(), scan_time };
        Some((scan, responses::CHECK_IN_TICKET.request(caller, request_id?, &request.encode_to_vec())))
    })
}

pub(crate) fn issue_tickets<'a>(
    caller: &'a str,
    request: &pb::IssueTicketsRequest,
) -> Result<(Order, Request<'a, Vec<Ticket>>), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    let buyer_email = violations.check("buyer_email", email(&request.buyer_email));
    let buyer_locale = violations.check("buyer_locale", locale(&request.buyer_locale));
    if request.items.len() > SECTORS_MAX {
        violations.push("items", format!("must have 1 to {SECTORS_MAX} sectors"));
    }
    let items = request.items.iter().map(|item| (item.sector_id.as_str(), item.units.clone()));
    let units = ordered_units(&mut violations, items);
    violations.build(|| {
        let order = Order {
            claim_id: claim_id?,
            event_id: event_id?,
            customer_id: customer_id?,
            buyer_email: buyer_email?,
            buyer_locale: buyer_locale?,
            units,
        };
        Some((order, responses::ISSUE_TICKETS.request(caller, request_id?, &request.encode_to_vec())))
    })
}

fn email(email: &str) -> Result<String, &'static str> {
    let is_address = email.len() <= EMAIL_CHARS_MAX && email.contains('@');
    if is_address { Ok(email.to_owned()) } else { Err("is not an email address") }
}

fn locale(locale: &str) -> Result<Option<String>, &'static str> {
    let is_tag = locale.len() <= LOCALE_CHARS_MAX;
    if is_tag { Ok(non_empty(locale.to_owned())) } else { Err("is too long for a language tag") }
}

pub(crate) fn void_tickets<'a>(
    caller: &'a str,
    request: &pb::VoidTicketsRequest,
) -> Result<(ClaimId, Request<'a, u32>), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| {
        let claim_id = claim_id?;
        Some((claim_id, responses::VOID_TICKETS.request(caller, request_id?, &request.encode_to_vec())))
    })
}

pub(crate) fn create_generation<'a>(
    caller: &'a str,
    request: &pb::CreateGenerationRequest,
) -> Result<(EventId, Request<'a, Generation>), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    violations.build(|| {
        let event_id = event_id?;
        Some((event_id, responses::CREATE_GENERATION.request(caller, request_id?, &request.encode_to_vec())))
    })
}

pub(crate) fn get_generation(request: &pb::GetGenerationRequest) -> Result<GenerationLookup, InvalidFields> {
    match &request.lookup {
        Some(GetLookup::GenerationId(id)) => lookup_by_id(id),
        Some(GetLookup::EventId(id)) => lookup_by_event(id),
        None => lookup_missing(),
    }
}

pub(crate) fn watch_generation(
    request: &pb::WatchGenerationRequest,
) -> Result<GenerationLookup, InvalidFields> {
    match &request.lookup {
        Some(WatchLookup::GenerationId(id)) => lookup_by_id(id),
        Some(WatchLookup::EventId(id)) => lookup_by_event(id),
        None => lookup_missing(),
    }
}

fn lookup_by_id(id: &str) -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    let generation_id = violations.check("generation_id", GenerationId::parse(id));
    violations.build(|| generation_id.map(GenerationLookup::Id))
}

fn lookup_by_event(id: &str) -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(id));
    violations.build(|| event_id.map(GenerationLookup::NewestOf))
}

fn lookup_missing() -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    violations.push("lookup", "is required: generation_id or event_id");
    violations.build(|| None)
}
