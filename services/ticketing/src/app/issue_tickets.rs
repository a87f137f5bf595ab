//! `IssueTickets`: grpc → app → store::issuances → store::tickets → domain::order → domain::code → store::tickets → outbox.
//!
//! [`App::issue`] is the one function that issues tickets. It is shared with the event `order.completed` and with the issuer.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};

use super::App;
use crate::{
    domain::{
        code::CodePayload,
        order::{IssuanceState, IssueDecision, Order, decide_issue},
        ticket::{Ticket, TicketState},
        ticketing_event::TicketingEvent,
    },
    error::Error,
    metrics,
    store::{issuances, tickets},
};

/// Serial of a ticket's first code.
const FIRST_SERIAL: u16 = 0;

/// Outcome of an attempt to issue an order's tickets.
#[derive(Debug)]
pub(super) enum IssueOutcome {
    /// The order's tickets, issued now or earlier.
    Issued(Vec<Ticket>),
    /// Some tickets are not generated yet. The order is stored as PENDING.
    Pending,
    /// Some tickets belong to other claims. Nothing was issued.
    Refused,
    /// The claim's tickets were voided before.
    Void,
}

impl App {
    /// Issues the tickets of an order and returns them, once per `request` and once per claim.
    pub(crate) async fn issue_tickets(
        &self,
        request: &Request<'_, Vec<Ticket>>,
        order: &Order,
    ) -> Result<Answer<Vec<Ticket>>, Error> {
        let (claim_id, event_id) = (order.claim_id, order.event_id);
        let work = |transaction: Transaction| async move {
            let issue = async {
                match self.issue(&transaction, order).await? {
                    IssueOutcome::Issued(tickets) => Ok(tickets),
                    // The error rolls back, so a call leaves no pending order behind.
                    IssueOutcome::Pending => Err(Error::NotGenerated { event_id }),
                    IssueOutcome::Refused | IssueOutcome::Void => Err(Error::IssuedToAnother { claim_id }),
                }
            };
            request.once(&transaction, issue).await
        };
        let answer = self.stores.postgres.transaction("issue tickets", work).await?;
        self.stores.outbox.wake_relay();
        Ok(answer)
    }

    /// Issues all tickets of an order with their codes and the event `ticket.generated`, or none. The locked issuance makes
    /// attempts for one claim wait for each other; a claim whose tickets are issued keeps them.
    pub(super) async fn issue(
        &self,
        transaction: &Transaction,
        order: &Order,
    ) -> Result<IssueOutcome, Error> {
        let claim_id = order.claim_id;
        let state = issuances::lock_for_issue(transaction, order).await?;
        let ordered = tickets::lock_ordered(transaction, order).await?;
        let states: Vec<TicketState> = ordered.iter().map(|ticket| ticket.state).collect();
        match decide_issue(state, order.units.len(), &states) {
            IssueDecision::AlreadyIssued => {
                return Ok(IssueOutcome::Issued(tickets::list_of_claim(transaction, claim_id).await?));
            }
            IssueDecision::Wait => return Ok(IssueOutcome::Pending),
            IssueDecision::Refuse => return Ok(IssueOutcome::Refused),
            IssueDecision::AlreadyVoid => return Ok(IssueOutcome::Void),
            IssueDecision::Issue => {}
        }
        let with_codes: Vec<_> = ordered
            .into_iter()
            .map(|ticket| {
                let (event_id, ticket_id) = (order.event_id, ticket.ticket_id);
                let code = self.codes.sign(&CodePayload { event_id, ticket_id, serial: FIRST_SERIAL });
                (ticket, code)
            })
            .collect();
        tickets::issue(transaction, order, &with_codes).await?;
        issuances::set_state(transaction, claim_id, IssuanceState::Issued).await?;
        let tickets = tickets::list_of_claim(transaction, claim_id).await?;
        let event = TicketingEvent::tickets_issued(order, &tickets)
            .ok_or(Error::Inconsistent { what: "an issued order has no tickets" })?;
        self.stores.outbox.append(transaction, &[event]).await?;
        metrics::issued(tickets.len());
        Ok(IssueOutcome::Issued(tickets))
    }
}
