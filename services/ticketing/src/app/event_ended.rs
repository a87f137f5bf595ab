//! Event `event.ended`: workers::consumers → app → store::events.

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Timestamp};

use super::App;
use crate::{error::Error, store::events};

impl App {
    /// Records that the event's sale is over. Its tickets stay valid.
    pub(crate) async fn event_ended(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        end_time: Timestamp,
    ) -> Result<(), Error> {
        Ok(events::record_end(transaction, event_id, end_time).await?)
    }
}
