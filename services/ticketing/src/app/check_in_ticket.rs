//! `CheckInTicket`: grpc → app → domain::code → store::tickets → domain::ticket → store::tickets.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::Named as _;

use super::App;
use crate::{
    domain::{
        check_in::{CheckInOutcome, CheckInResult, Scan, Scanner},
        code::CodePayload,
        ticket::{Ticket, TicketState},
    },
    error::Error,
    metrics,
    store::{events, tickets},
};

impl App {
    /// Decides on a scan and records an admission, once per `request`. Refused scans are outcomes, not errors, except for codes
    /// that are not ours.
    pub(crate) async fn check_in_ticket(
        &self,
        scanner: Scanner,
        request: &Request<'_, CheckInResult>,
        scan: &Scan,
    ) -> Result<Answer<CheckInResult>, Error> {
        let event_id = scan.event_id;
        match scanner {
            Scanner::Organizer(organizer_id) => self.check_owner(event_id, organizer_id).await?,
            Scanner::Staff => {
                let owner = events::get_owner(&self.stores.postgres, event_id).await?;
                owner.ok_or(Error::EventNotFound { event_id })?;
            }
        }
        let payload = self.codes.read(&scan.code)?;
        let work = |transaction: Transaction| async move {
            let check_in = async {
                let result = check_in(&transaction, scan, payload).await?;
                metrics::checked_in(result.outcome.name());
                Ok::<_, Error>(result)
            };
            request.once(&transaction, check_in).await
        };
        self.stores.postgres.transaction("check in ticket", work).await
    }
}

/// Checks the scanned ticket in if it admits. The row lock makes concurrent scans of one ticket wait for each other.
async fn check_in(
    transaction: &Transaction,
    scan: &Scan,
    payload: CodePayload,
) -> Result<CheckInResult, Error> {
    if payload.event_id != scan.event_id {
        return Ok(CheckInResult { outcome: CheckInOutcome::WrongEvent, ticket: None });
    }
    let Some(ticket) = tickets::lock_issued(transaction, payload.ticket_id).await? else {
        return Ok(CheckInResult { outcome: CheckInOutcome::NotIssued, ticket: None });
    };
    let outcome = ticket.check_in(&scan.code);
    if outcome != CheckInOutcome::Admitted {
        return Ok(CheckInResult { outcome, ticket: Some(ticket) });
    }
    let check_in = tickets::check_in(transaction, ticket.ticket_id, scan.scan_time, &scan.gate).await?;
    let ticket = Ticket { state: TicketState::CheckedIn, check_in: Some(check_in), ..ticket };
    Ok(CheckInResult { outcome, ticket: Some(ticket) })
}
