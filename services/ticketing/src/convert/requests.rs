//! Messages of `TicketService` and `TicketInternalService`.

use std::time::Duration;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::ticketing::v1 as pb;
use onsale_types::{
    ClaimId, CustomerId, EventId, PageLimits, PageQuery, PageSize, PageToken, RequestId, TicketId, Timestamp,
};

use super::{ordered_units, summary_to_pb, text, timestamp, timestamp_to_pb, unit_to_pb};
use crate::{
    app::{check_in_ticket::Scan, list_tickets::TicketPage},
    domain::{
        code::Code,
        document::{Document, DocumentKind},
        order::Order,
        ticket::{CheckIn, CheckInOutcome, ListPosition, Ticket, TicketFilter, TicketState},
    },
};

const CODE_CHARS_MAX: usize = 512;
const GATE_CHARS_MAX: usize = 64;
const SECTORS_MAX: usize = 10;
const EMAIL_CHARS_MAX: usize = 254;
const LOCALE_CHARS_MAX: usize = 35;
/// A scanner's clock may be so much ahead of ours.
const CLOCK_LEEWAY: Duration = Duration::from_secs(60);

/// A list that was asked for.
#[derive(Debug)]
pub struct ListTickets {
    /// Which tickets.
    pub filter: TicketFilter,
    /// After which.
    pub after: Option<ListPosition>,
    /// How many.
    pub size: PageSize,
    /// What page tokens belong to.
    pub query: PageQuery,
}

/// Which of `customer`'s tickets to list.
pub fn list_tickets(
    customer: CustomerId,
    request: &pb::ListTicketsRequest,
) -> Result<ListTickets, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = optional(&request.event_id, EventId::parse);
    let event_id = violations.check("event_id", event_id);
    let claim_id = violations.check("claim_id", optional(&request.claim_id, ClaimId::parse));
    let states: Result<Vec<_>, _> = request.states.iter().map(|state| ticket_state(*state)).collect();
    let states = violations.check("states", states);
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let size = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let mut asked_states = request.states.clone();
    asked_states.sort_unstable();
    asked_states.dedup();
    let query = PageQuery::new("tickets")
        .with("customer", customer.to_string())
        .with("event", request.event_id.to_lowercase())
        .with("claim", request.claim_id.to_lowercase())
        .with("states", format!("{asked_states:?}"));
    let after = PageToken::parse(&request.page_token, &query).map_err(|error| error.to_string());
    let after =
        violations.check("page_token", after.and_then(|token| token.as_ref().map(position).transpose()));
    violations.build(|| {
        let filter = TicketFilter { event_id: event_id?, claim_id: claim_id?, states: states? };
        Some(ListTickets { filter, after: after?, size: size?, query })
    })
}

fn optional<T, E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
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

/// The position as a token carries it: the time, then the id.
fn position(token: &PageToken) -> Result<ListPosition, String> {
    let parts = token.position().split_first_chunk::<8>();
    let parts = parts.and_then(|(micros, id)| Some((*micros, uuid::Uuid::from_slice(id).ok()?)));
    let (micros, id) = parts.ok_or("the page token is malformed")?;
    let start_time = Timestamp::from_micros(i64::from_be_bytes(micros));
    Ok(ListPosition { start_time, ticket_id: TicketId::from_uuid(id) })
}

/// One page of a list, codes included: they are the caller's own.
#[must_use]
pub fn ticket_page(page: &TicketPage, query: &PageQuery) -> pb::ListTicketsResponse {
    let token = |next: ListPosition| {
        let mut position = next.start_time.as_micros().to_be_bytes().to_vec();
        position.extend_from_slice(next.ticket_id.as_uuid().as_bytes());
        PageToken::after(position).encode(query)
    };
    pb::ListTicketsResponse {
        tickets: page.tickets.iter().map(ticket_of_holder).collect(),
        next_page_token: page.next.map(token).unwrap_or_default(),
    }
}

/// Which ticket, and as which files.
pub fn get_ticket(request: &pb::GetTicketRequest) -> Result<(TicketId, Vec<DocumentKind>), InvalidFields> {
    let mut violations = Violations::new();
    let ticket_id = violations.check("ticket_id", TicketId::parse(&request.ticket_id));
    let mut kinds = Vec::new();
    for (index, kind) in request.document_kinds.iter().enumerate() {
        let field = format!("document_kinds[{index}]");
        let Some(kind) = violations.check(field.as_str(), document_kind(*kind)) else { continue };
        if kinds.contains(&kind) {
            violations.push(field, "is asked for twice");
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

/// A file for the ticket's holder.
#[must_use]
pub fn document_to_pb(document: Document) -> pb::TicketDocument {
    let kind = match document.kind {
        DocumentKind::QrPng => pb::DocumentKind::QrPng,
        DocumentKind::QrSvg => pb::DocumentKind::QrSvg,
        DocumentKind::Pdf => pb::DocumentKind::Pdf,
    };
    pb::TicketDocument {
        kind: kind.into(),
        media_type: document.kind.media_type().to_owned(),
        content: document.content,
    }
}

/// What was scanned, at `now`.
pub fn check_in_ticket(
    request: &pb::CheckInTicketRequest,
    now: Timestamp,
) -> Result<(RequestId, Scan), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    if request.code.is_empty() || request.code.chars().count() > CODE_CHARS_MAX {
        violations.push("code", format!("must have 1 to {CODE_CHARS_MAX} characters"));
    }
    if request.gate.is_empty() || request.gate.chars().count() > GATE_CHARS_MAX {
        violations.push("gate", format!("must have 1 to {GATE_CHARS_MAX} characters"));
    }
    let scan_time = request.scan_time.map(timestamp).transpose();
    let scan_time = violations.check("scan_time", scan_time).flatten();
    if scan_time.is_some_and(|time| time.saturating_since(now) > CLOCK_LEEWAY) {
        violations.push("scan_time", "must not be in the future");
    }
    let scan = |event_id| Scan {
        event_id,
        code: Code::from_text(request.code.clone()),
        gate: request.gate.clone(),
        scan_time: scan_time.map(|time| time.min(now)),
    };
    violations.build(|| Some((request_id?, scan(event_id?))))
}

/// What the scanner shows. When admitted the ticket's check-in is this one, else the earlier one.
#[must_use]
pub fn check_in_response(outcome: CheckInOutcome, ticket: Option<&Ticket>) -> pb::CheckInTicketResponse {
    let first = match outcome {
        CheckInOutcome::Admitted | CheckInOutcome::AlreadyCheckedIn => {
            ticket.and_then(|ticket| ticket.check_in.as_ref())
        }
        CheckInOutcome::Void
        | CheckInOutcome::CodeReplaced
        | CheckInOutcome::WrongEvent
        | CheckInOutcome::NotIssued => None,
    };
    let outcome = match outcome {
        CheckInOutcome::Admitted => pb::CheckInOutcome::Admitted,
        CheckInOutcome::AlreadyCheckedIn => pb::CheckInOutcome::AlreadyCheckedIn,
        CheckInOutcome::Void => pb::CheckInOutcome::Void,
        CheckInOutcome::CodeReplaced => pb::CheckInOutcome::CodeReplaced,
        CheckInOutcome::WrongEvent => pb::CheckInOutcome::WrongEvent,
        CheckInOutcome::NotIssued => pb::CheckInOutcome::NotIssued,
    };
    pb::CheckInTicketResponse {
        outcome: outcome.into(),
        ticket: ticket.map(ticket_without_code),
        first_check_in: first.map(check_in_to_pb),
    }
}

/// Which order's tickets to issue.
pub fn issue_tickets(request: pb::IssueTicketsRequest) -> Result<(RequestId, Order), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    let buyer_email = email(&mut violations, request.buyer_email);
    let buyer_locale = locale(&mut violations, request.buyer_locale);
    if request.items.len() > SECTORS_MAX {
        violations.push("items", format!("must have 1 to {SECTORS_MAX} sectors"));
    }
    let items = request.items.into_iter().map(|item| (item.sector_id, item.units));
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
        Some((request_id?, order))
    })
}

fn email(violations: &mut Violations, email: String) -> Option<String> {
    let is_address = email.len() <= EMAIL_CHARS_MAX && email.contains('@');
    violations.check("buyer_email", if is_address { Ok(email) } else { Err("is not an email address") })
}

fn locale(violations: &mut Violations, locale: String) -> Option<Option<String>> {
    let is_tag = locale.len() <= LOCALE_CHARS_MAX;
    violations
        .check("buyer_locale", if is_tag { Ok(text(locale)) } else { Err("is too long for a language tag") })
}

/// Which claim's tickets to void.
pub fn void_tickets(request: &pb::VoidTicketsRequest) -> Result<(RequestId, ClaimId), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    violations.build(|| Some((request_id?, claim_id?)))
}

/// A ticket for its holder: with its code while that admits.
#[must_use]
pub fn ticket_of_holder(ticket: &Ticket) -> pb::Ticket {
    let code = ticket.valid_code().map(|code| code.expose().to_owned()).unwrap_or_default();
    pb::Ticket { code, ..ticket_without_code(ticket) }
}

/// A ticket for all others.
#[must_use]
pub fn ticket_without_code(ticket: &Ticket) -> pb::Ticket {
    let state = match ticket.state {
        TicketState::Generated => pb::TicketState::Generated,
        TicketState::Issued => pb::TicketState::Issued,
        TicketState::CheckedIn => pb::TicketState::CheckedIn,
        TicketState::Void => pb::TicketState::Void,
    };
    pb::Ticket {
        ticket_id: ticket.ticket_id.to_string(),
        event: Some(summary_to_pb(&ticket.event)),
        sector_id: ticket.sector_id.to_string(),
        sector_name: ticket.sector_name.clone(),
        unit: Some(unit_to_pb(ticket.unit, ticket.seat.as_ref())),
        state: state.into(),
        claim_id: ticket.claim_id.to_string(),
        code: String::new(),
        issue_time: Some(timestamp_to_pb(ticket.issue_time)),
        check_in: ticket.check_in.as_ref().map(check_in_to_pb),
        void_time: ticket.void_time.map(timestamp_to_pb),
    }
}

fn check_in_to_pb(check_in: &CheckIn) -> pb::CheckIn {
    pb::CheckIn { check_in_time: Some(timestamp_to_pb(check_in.time)), gate: check_in.gate.clone() }
}
