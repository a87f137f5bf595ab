//! A customer's own tickets.

use onsale_types::{CustomerId, PageSize, TicketId};

use super::App;
use crate::{
    domain::{
        document::{self, Document, DocumentKind, Language},
        ticket::{ListPosition, Ticket, TicketFilter},
    },
    error::Error,
    store::tickets,
};

/// One page of a list.
#[derive(Debug)]
pub struct TicketPage {
    /// The tickets.
    pub tickets: Vec<Ticket>,
    /// Where the next page begins.
    pub next: Option<ListPosition>,
}

impl App {
    /// The customer's tickets that pass the filter, latest event first.
    pub async fn list_tickets(
        &self,
        customer: CustomerId,
        filter: &TicketFilter,
        after: Option<ListPosition>,
        size: PageSize,
    ) -> Result<TicketPage, Error> {
        let postgres = &self.stores.postgres;
        let mut found = tickets::list(postgres, customer, filter, after, size.rows_and_one()).await?;
        let rows = usize::try_from(size.rows()).unwrap_or(usize::MAX);
        let has_more = found.len() > rows;
        found.truncate(rows);
        let last = found.last().filter(|_| has_more);
        let next =
            last.map(|last| ListPosition { start_time: last.event.start_time, ticket_id: last.ticket_id });
        Ok(TicketPage { tickets: found, next })
    }

    /// One of the customer's tickets, and the files asked for while it admits.
    pub async fn get_ticket(
        &self,
        customer: CustomerId,
        ticket_id: TicketId,
        kinds: &[DocumentKind],
        language: Language,
    ) -> Result<(Ticket, Vec<Document>), Error> {
        let ticket = tickets::get(&self.stores.postgres, customer, ticket_id).await?;
        let ticket = ticket.ok_or(Error::TicketNotFound(ticket_id))?;
        let mut documents = Vec::new();
        if let Some(code) = ticket.valid_code() {
            for kind in kinds {
                documents.push(document::make(*kind, &ticket, code, language)?);
            }
        }
        Ok((ticket, documents))
    }
}
