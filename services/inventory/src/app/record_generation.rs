//! `generation.completed`: Ticketing has made all tickets of an event.

use onsale_storage::postgres::Transaction;
use onsale_types::EventId;

use super::App;
use crate::{error::Error, store};

impl App {
    /// Notes it with the event, for operators. Inside the transaction that handles the message.
    pub async fn record_generation(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        revision: u64,
    ) -> Result<(), Error> {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        store::events::record_generation(transaction, event_id, revision).await
    }
}
