//! Responses to callers. The idempotent methods also store theirs, so a change of an encoding must still decode stored responses
//! of the last 7 days.

use onsale_proto::{convert::time_to_pb, ticketing::v1 as pb};
use onsale_storage::idempotency::{Answer, Method};
use onsale_types::{PageQuery, PageToken};
use prost::Message as _;

use super::{summary_to_pb, unit_to_pb};
use crate::{
    domain::{
        check_in::{CheckIn, CheckInOutcome, CheckInResult},
        document::{Document, DocumentKind},
        generation::{Generation, GenerationState, SectorProgress},
        ticket::{ListPosition, Ticket, TicketPage, TicketState},
    },
    error::Error,
};

pub(super) const CHECK_IN_TICKET: Method<CheckInResult> =
    Method::new("CheckInTicket", |result| checked_in(result).encode_to_vec());
pub(super) const CREATE_GENERATION: Method<Generation> =
    Method::new("CreateGeneration", |generation| created(generation).encode_to_vec());
pub(super) const ISSUE_TICKETS: Method<Vec<Ticket>> =
    Method::new("IssueTickets", |tickets| issued(tickets).encode_to_vec());
pub(super) const VOID_TICKETS: Method<u32> =
    Method::new("VoidTickets", |void_count| voided(void_count).encode_to_vec());

/// Encodes a page of the caller's own tickets, codes included. The page token is the position that `requests::list_tickets`
/// reads: 8 bytes of microseconds, then the ticket id.
pub(crate) fn list_tickets(page: &TicketPage, query: &PageQuery) -> pb::ListTicketsResponse {
    let token = |next: ListPosition| {
        let mut position = next.start_time.as_micros().to_be_bytes().to_vec();
        position.extend_from_slice(next.ticket_id.as_uuid().as_bytes());
        PageToken::after(position).encode(query)
    };
    pb::ListTicketsResponse {
        tickets: page.tickets.iter().map(ticket_with_code).collect(),
        next_page_token: page.next.map(token).unwrap_or_default(),
    }
}

pub(crate) fn get_ticket(ticket: &Ticket, documents: Vec<Document>) -> pb::GetTicketResponse {
    pb::GetTicketResponse {
        ticket: Some(ticket_with_code(ticket)),
        documents: documents.into_iter().map(document_to_pb).collect(),
    }
}

fn document_to_pb(document: Document) -> pb::TicketDocument {
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

pub(crate) fn check_in_ticket(answer: Answer<CheckInResult>) -> Result<pb::CheckInTicketResponse, Error> {
    Ok(answer.into_response(checked_in, |bytes| pb::CheckInTicketResponse::decode(bytes))?)
}

fn checked_in(result: &CheckInResult) -> pb::CheckInTicketResponse {
    let outcome = match result.outcome {
        CheckInOutcome::Admitted => pb::CheckInOutcome::Admitted,
        CheckInOutcome::AlreadyCheckedIn => pb::CheckInOutcome::AlreadyCheckedIn,
        CheckInOutcome::Void => pb::CheckInOutcome::Void,
        CheckInOutcome::CodeReplaced => pb::CheckInOutcome::CodeReplaced,
        CheckInOutcome::WrongEvent => pb::CheckInOutcome::WrongEvent,
        CheckInOutcome::NotIssued => pb::CheckInOutcome::NotIssued,
    };
    pb::CheckInTicketResponse {
        outcome: outcome.into(),
        ticket: result.ticket.as_ref().map(ticket_without_code),
        first_check_in: result.first_check_in().map(check_in_to_pb),
    }
}

pub(crate) fn issue_tickets(answer: Answer<Vec<Ticket>>) -> Result<pb::IssueTicketsResponse, Error> {
    let response =
        answer.into_response(|tickets| issued(tickets), |bytes| pb::IssueTicketsResponse::decode(bytes));
    Ok(response?)
}

/// Leaves out the codes, which only the holder may see.
fn issued(tickets: &[Ticket]) -> pb::IssueTicketsResponse {
    pb::IssueTicketsResponse { tickets: tickets.iter().map(ticket_without_code).collect() }
}

pub(crate) fn void_tickets(answer: Answer<u32>) -> Result<pb::VoidTicketsResponse, Error> {
    Ok(answer.into_response(voided, |bytes| pb::VoidTicketsResponse::decode(bytes))?)
}

fn voided(void_count: &u32) -> pb::VoidTicketsResponse {
    pb::VoidTicketsResponse { void_count: *void_count }
}

pub(crate) fn create_generation(answer: Answer<Generation>) -> Result<pb::CreateGenerationResponse, Error> {
    Ok(answer.into_response(created, |bytes| pb::CreateGenerationResponse::decode(bytes))?)
}

fn created(generation: &Generation) -> pb::CreateGenerationResponse {
    pb::CreateGenerationResponse { generation: Some(generation_to_pb(generation)) }
}

pub(crate) fn get_generation(generation: &Generation) -> pb::GetGenerationResponse {
    pb::GetGenerationResponse { generation: Some(generation_to_pb(generation)) }
}

pub(crate) fn watch_generation(generation: &Generation) -> pb::WatchGenerationResponse {
    pb::WatchGenerationResponse { generation: Some(generation_to_pb(generation)) }
}

/// Encodes a ticket for its holder. The code is left out once it no longer admits.
fn ticket_with_code(ticket: &Ticket) -> pb::Ticket {
    let code = ticket.valid_code().map(|code| code.expose().to_owned()).unwrap_or_default();
    pb::Ticket { code, ..ticket_without_code(ticket) }
}

fn ticket_without_code(ticket: &Ticket) -> pb::Ticket {
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
        issue_time: Some(time_to_pb(ticket.issue_time)),
        check_in: ticket.check_in.as_ref().map(check_in_to_pb),
        void_time: ticket.void_time.map(time_to_pb),
    }
}

fn check_in_to_pb(check_in: &CheckIn) -> pb::CheckIn {
    pb::CheckIn { check_in_time: Some(time_to_pb(check_in.time)), gate: check_in.gate.clone() }
}

fn generation_to_pb(generation: &Generation) -> pb::Generation {
    let sector = |sector: &SectorProgress| pb::SectorGeneration {
        sector_id: sector.sector_id.to_string(),
        ticket_count: sector.ticket_count,
        generated_count: sector.generated_count,
    };
    let state = match generation.state {
        GenerationState::Pending => pb::GenerationState::Pending,
        GenerationState::Running => pb::GenerationState::Running,
        GenerationState::Completed => pb::GenerationState::Completed,
        GenerationState::Failed => pb::GenerationState::Failed,
    };
    pb::Generation {
        generation_id: generation.generation_id.to_string(),
        event_id: generation.event_id.to_string(),
        state: state.into(),
        ticket_count: generation.ticket_count(),
        generated_count: generation.generated_count(),
        sectors: generation.sectors.iter().map(sector).collect(),
        create_time: Some(time_to_pb(generation.create_time)),
        start_time: generation.start_time.map(time_to_pb),
        end_time: generation.end_time.map(time_to_pb),
    }
}
