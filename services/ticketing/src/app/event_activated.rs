//! Event `event.activated`: workers::consumers → app → store::events.

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Timestamp};

use super::App;
use crate::{error::Error, store::events};

impl App {
    /// Records that the event is public. `event.created` may not have arrived yet.
    pub(crate) async fn event_activated(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        activate_time: Timestamp,
    ) -> Result<(), Error> {
        Ok(events::record_activation(transaction, event_id, activate_time).await?)
    }
}
