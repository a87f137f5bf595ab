//! Gives the tickets of a paid order's units to its buyer: all or none, and once, however often the order is heard of.
//!
//! An order may be heard of before its tickets exist. It is kept then, and issued when they do: a paid order is never lost.

use onsale_kit::error::Chain;
use onsale_proto::ticketing::v1 as pb;
use onsale_storage::{
    idempotency::{self, Request},
    messaging::NewEvent,
    postgres::Transaction,
};

use super::App;
use crate::{
    convert::{events::ticket_generated, requests::ticket_without_code},
    domain::{
        code::CodeFacts,
        order::{Decision, IssuanceState, Order, decide},
        ticket::{Ticket, TicketState},
    },
    error::Error,
    metrics,
    store::{issuances, tickets},
};

/// The serial of a ticket's first code.
const FIRST_SERIAL: u16 = 0;
/// After so many looks an order has waited longer than any generation takes: somebody should know.
const LOOKS_ALERT: u32 = 10;

/// What came of an order.
#[derive(Debug)]
enum Outcome {
    /// Its tickets, issued now or before.
    Issued(Vec<Ticket>),
    /// Some do not exist yet.
    Waiting,
    /// Some are another's.
    Refused,
    /// The money went back before.
    Void,
}

/// How a round over waiting orders ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There may be more.
    Full,
    /// All that were worth a look had one.
    Done,
}

impl App {
    /// Issues an order that was heard of by event. One whose tickets do not exist yet is kept, and counts as handled.
    pub async fn take_order(&self, transaction: &Transaction, order: &Order) -> Result<(), Error> {
        let claim_id = order.claim_id;
        match self.issue(transaction, order).await? {
            Outcome::Issued(_) => self.stores.outbox.wake_relay(),
            Outcome::Waiting => tracing::info!(%claim_id, "order waits for its tickets to be generated"),
            Outcome::Void => tracing::info!(%claim_id, "order was refunded before its tickets were issued"),
            Outcome::Refused => {
                metrics::order_refused();
                return Err(Error::IssuedToAnother(claim_id));
            }
        }
        Ok(())
    }

    /// Issues an order that was asked for by call; the answer has the tickets, without their codes.
    pub async fn issue_tickets(
        &self,
        request: &Request<'_>,
        order: &Order,
    ) -> Result<pb::IssueTicketsResponse, Error> {
        let answer = self.stores.postgres.transaction("issue tickets", |transaction| async move {
            let work = async {
                match self.issue(&transaction, order).await? {
                    Outcome::Issued(tickets) => Ok(pb::IssueTicketsResponse {
                        tickets: tickets.iter().map(ticket_without_code).collect(),
                    }),
                    Outcome::Waiting => Err(Error::NotGenerated(order.event_id)),
                    Outcome::Refused | Outcome::Void => Err(Error::IssuedToAnother(order.claim_id)),
                }
            };
            idempotency::once(&transaction, request, work).await
        });
        let answer = answer.await?;
        self.stores.outbox.wake_relay();
        Ok(answer)
    }

    /// Looks at orders that wait for their tickets, so many at most as a round has.
    pub async fn issue_waiting(&self) -> Result<Round, Error> {
        let postgres = &self.stores.postgres;
        for _ in 0..self.issuing.round_max.get() {
            let taken = issuances::take_due(postgres, self.issuing.pause_max).await?;
            let Some((claim_id, order, looks)) = taken else {
                metrics::orders_pending(issuances::count_pending(postgres).await?);
                return Ok(Round::Done);
            };
            let looked = match order {
                Ok(order) => self.look_at_waiting(&order, looks).await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(()) => {}
                Err(error) if error.is_outage() => return Err(error),
                // It has its turn again later; the others have theirs now.
                Err(error) => {
                    tracing::error!(%claim_id, looks, error = %Chain(&error), "failed to look at a waiting order");
                }
            }
        }
        Ok(Round::Full)
    }

    async fn look_at_waiting(&self, order: &Order, looks: u32) -> Result<(), Error> {
        let (claim_id, event_id) = (order.claim_id, order.event_id);
        let looked = self.stores.postgres.transaction("issue waiting order", |transaction| async move {
            let outcome = self.issue(&transaction, order).await?;
            if let Outcome::Refused = outcome {
                issuances::move_to(&transaction, claim_id, IssuanceState::Refused).await?;
            }
            Ok::<_, Error>(outcome)
        });
        match looked.await? {
            Outcome::Issued(_) => self.stores.outbox.wake_relay(),
            Outcome::Void => {}
            Outcome::Waiting if looks > LOOKS_ALERT => {
                tracing::warn!(%claim_id, %event_id, looks, "order still waits for its tickets");
            }
            Outcome::Waiting => {}
            Outcome::Refused => {
                metrics::order_refused();
                tracing::error!(%claim_id, %event_id, "a ticket of a paid order is another's");
            }
        }
        Ok(())
    }

    async fn issue(&self, transaction: &Transaction, order: &Order) -> Result<Outcome, Error> {
        let state = issuances::enter(transaction, order).await?;
        let wanted = tickets::lock_units(transaction, order).await?;
        let states: Vec<TicketState> = wanted.iter().map(|ticket| ticket.state).collect();
        match decide(state, order.units.len(), &states) {
            Decision::Done => {
                return Ok(Outcome::Issued(tickets::of_claim(transaction, order.claim_id).await?));
            }
            Decision::Wait => return Ok(Outcome::Waiting),
            Decision::Refuse => return Ok(Outcome::Refused),
            Decision::Drop => return Ok(Outcome::Void),
            Decision::Issue => {}
        }
        let coded: Vec<_> = wanted
            .into_iter()
            .map(|ticket| {
                let (event_id, ticket_id) = (order.event_id, ticket.ticket_id);
                let code = self.codes.sign(&CodeFacts { event_id, ticket_id, serial: FIRST_SERIAL });
                (ticket, code)
            })
            .collect();
        let issued = tickets::issue(transaction, order, &coded).await?;
        if usize::try_from(issued).ok() != Some(coded.len()) {
            return Err(Error::Corrupt { what: "a locked ticket was not free" });
        }
        issuances::move_to(transaction, order.claim_id, IssuanceState::Issued).await?;
        let tickets = tickets::of_claim(transaction, order.claim_id).await?;
        let event = ticket_generated(order, &tickets)?;
        self.stores.outbox.append(transaction, &[NewEvent::new(order.claim_id, &event)]).await?;
        metrics::issued(tickets.len());
        Ok(Outcome::Issued(tickets))
    }
}
