//! `GetTicket`: grpc → app → store::tickets → domain::document.

use onsale_types::{CustomerId, TicketId};

use super::App;
use crate::{
    domain::{
        document::{self, Document, DocumentKind, Language},
        ticket::Ticket,
    },
    error::Error,
    store::tickets,
};

impl App {
    /// Returns a ticket of the customer with the documents of the given kinds. A ticket that no longer admits has no documents.
    pub(crate) async fn get_ticket(
        &self,
        customer_id: CustomerId,
        ticket_id: TicketId,
        kinds: &[DocumentKind],
        language: Language,
    ) -> Result<(Ticket, Vec<Document>), Error> {
        let ticket = tickets::get(&self.stores.postgres, customer_id, ticket_id).await?;
        let ticket = ticket.ok_or(Error::TicketNotFound { ticket_id })?;
        let mut documents = Vec::new();
        if let Some(code) = ticket.valid_code() {
            for kind in kinds {
                documents.push(document::render(*kind, &ticket, code, language)?);
            }
        }
        Ok((ticket, documents))
    }
}
