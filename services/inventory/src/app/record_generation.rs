//! `generation.completed`: workers::consumers → app → store. Records that Ticketing has made all tickets of an event.

use onsale_storage::postgres::Transaction;
use onsale_types::EventId;

use super::App;
use crate::{error::Error, store};

impl App {
    /// Records the generated revision with the event, for operators. `transaction` is the inbox's.
    pub(crate) async fn record_generation(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        revision: u64,
    ) -> Result<(), Error> {
        store::events::record_generation(transaction, event_id, revision).await
    }
}
