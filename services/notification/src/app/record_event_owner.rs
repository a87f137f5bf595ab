//! `generation.completed`: consumers → app → store::event_owners.

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{error::ConsumeError, store};

impl App {
    /// Records the organizer of an event, who may see the deliveries about it.
    pub(crate) async fn record_event_owner(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        organizer_id: OrganizerId,
    ) -> Result<(), ConsumeError> {
        Ok(store::event_owners::record(transaction, event_id, organizer_id).await?)
    }
}
