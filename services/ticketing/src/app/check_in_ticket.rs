//! Lets a ticket's holder in, once.

use onsale_proto::ticketing::v1 as pb;
use onsale_storage::{
    idempotency::{self, Request},
    postgres::Transaction,
};
use onsale_types::{EventId, OrganizerId, Timestamp};

use super::App;
use crate::{
    convert::requests::check_in_response,
    domain::{
        code::{Code, CodeFacts},
        ticket::{CheckInOutcome, Ticket, TicketState},
    },
    error::Error,
    metrics,
    store::{events, tickets},
};

/// Who stands at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanner {
    /// Staff: at every event.
    Staff,
    /// An organizer: at their own events.
    Organizer(OrganizerId),
}

/// What was scanned, where, and when.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The event that is checked in.
    pub event_id: EventId,
    /// What was shown.
    pub code: Code,
    /// Where the scanner stands.
    pub gate: String,
    /// When, if it was not now.
    pub scan_time: Option<Timestamp>,
}

impl App {
    /// Decides on a scan, and keeps the decision.
    pub async fn check_in_ticket(
        &self,
        scanner: Scanner,
        request: &Request<'_>,
        scan: &Scan,
    ) -> Result<pb::CheckInTicketResponse, Error> {
        match scanner {
            Scanner::Organizer(organizer) => self.admit(organizer, scan.event_id).await?,
            Scanner::Staff => {
                let known = events::owner(&self.stores.postgres, scan.event_id).await?;
                known.ok_or(Error::EventNotFound(scan.event_id))?;
            }
        }
        let facts = self.codes.read(&scan.code)?;
        let answer = self.stores.postgres.transaction("check in ticket", |transaction| async move {
            let work = async {
                let (outcome, ticket) = decide(&transaction, scan, facts).await?;
                metrics::checked_in(outcome);
                Ok(check_in_response(outcome, ticket.as_ref()))
            };
            idempotency::once(&transaction, request, work).await
        });
        answer.await
    }
}

/// The outcome, and the ticket as it is after it; none when the code is of another event, or was never sold.
async fn decide(
    transaction: &Transaction,
    scan: &Scan,
    facts: CodeFacts,
) -> Result<(CheckInOutcome, Option<Ticket>), Error> {
    if facts.event_id != scan.event_id {
        return Ok((CheckInOutcome::WrongEvent, None));
    }
    let Some(ticket) = tickets::lock(transaction, facts.ticket_id).await? else {
        return Ok((CheckInOutcome::NotIssued, None));
    };
    let outcome = ticket.check_in(&scan.code);
    if outcome != CheckInOutcome::Admitted {
        return Ok((outcome, Some(ticket)));
    }
    let check_in = tickets::check_in(transaction, ticket.ticket_id, scan.scan_time, &scan.gate).await?;
    let ticket = Ticket { state: TicketState::CheckedIn, check_in: Some(check_in), ..ticket };
    Ok((outcome, Some(ticket)))
}
