//! Events that Ticketing publishes to the other services.

use onsale_types::Timestamp;

use super::{generation::OpenGeneration, order::Order, ticket::Ticket};

#[derive(Clone, Copy, Debug)]
pub(crate) enum TicketingEvent<'a> {
    /// `ticket.generated`: all tickets of an order were issued to its buyer.
    TicketsIssued {
        order: &'a Order,
        tickets: &'a [Ticket],
        /// One of the tickets. All have the same event and time of issue.
        first: &'a Ticket,
    },
    /// `generation.completed`: every unit of an event has its ticket.
    GenerationCompleted { generation: &'a OpenGeneration, complete_time: Timestamp },
}

impl<'a> TicketingEvent<'a> {
    /// Returns the event of an issued order, or `None` if it has no tickets.
    pub(crate) fn tickets_issued(order: &'a Order, tickets: &'a [Ticket]) -> Option<Self> {
        Some(Self::TicketsIssued { order, tickets, first: tickets.first()? })
    }
}
