//! `ListTickets`: grpc → app → store::tickets.

use super::App;
use crate::{
    domain::ticket::{ListTickets, TicketPage},
    error::Error,
    store::tickets,
};

impl App {
    /// Returns a page of the customer's tickets, latest event first.
    pub(crate) async fn list_tickets(&self, list: &ListTickets) -> Result<TicketPage, Error> {
        let found = tickets::list(&self.stores.postgres, list).await?;
        Ok(TicketPage::new(found, list.page_size))
    }
}
