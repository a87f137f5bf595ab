//! `CreateEvent`: a draft with its sectors. Units need no rows, so any size is as quick.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent, postgres::Transaction};
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{
    convert,
    domain::event::{Details, Draft},
    error::Error,
    store,
};

impl App {
    /// Creates a draft of `organizer_id`.
    pub async fn create_event(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        draft: &Draft,
    ) -> Result<pb::CreateEventResponse, Error> {
        let response = self
            .once("create event", request, |transaction| async move {
                let (details, sectors) = draft.clone().settle(&[])?;
                self.check_time_zone(&transaction, &details).await?;
                let event_id = EventId::generate();
                let event =
                    store::events::insert(&transaction, event_id, organizer_id, &details, &sectors).await?;
                let payload = convert::event_created(&event, &sectors);
                self.stores.outbox.append(&transaction, &[NewEvent::new(event_id, &payload)]).await?;
                Ok(pb::CreateEventResponse { event: Some(convert::event(&event, &sectors)) })
            })
            .await?;
        Ok(response)
    }

    /// Whoever shows a time would fail on a time zone that nobody knows. Postgres knows which there are; asked once, as it
    /// takes its time.
    pub(super) async fn check_time_zone(
        &self,
        transaction: &Transaction,
        details: &Details,
    ) -> Result<(), Error> {
        let zones = self.time_zones.get_or_try_init(|| store::events::time_zones(transaction)).await?;
        if zones.contains(&details.venue.time_zone) {
            Ok(())
        } else {
            Err(convert::unknown_time_zone().into())
        }
    }
}
