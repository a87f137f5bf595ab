//! `UpdateEvent`: changes a draft, and nothing but a draft.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own};
use crate::{
    convert::{self, Change},
    domain::{event::EventState, quota::check_draft},
    error::Error,
    store,
};

impl App {
    /// Changes a draft of `organizer_id`.
    pub async fn update_event(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        event_id: EventId,
        change: &Change,
    ) -> Result<pb::UpdateEventResponse, Error> {
        let response = self
            .once("update event", request, |transaction| async move {
                let before = lock_own(&transaction, event_id, organizer_id).await?;
                if before.state != EventState::Draft {
                    return Err(Error::EventNotDraft { state: before.state });
                }
                if change.revision().is_some_and(|revision| revision != before.revision) {
                    return Err(Error::RevisionOutdated { revision: before.revision });
                }
                let present = store::events::sectors(&transaction, &before).await?;
                let (details, sectors) = change.apply(&before, &present)?.settle(&present)?;
                if details.venue.time_zone != before.details.venue.time_zone {
                    self.check_time_zone(&transaction, &details).await?;
                }
                let kept = store::quotas::kept_sectors(&transaction, event_id).await?;
                convert::check_draft(&check_draft(&kept, &present, &sectors, details.start_time))?;
                let event = store::events::update(&transaction, &before, &details, &sectors).await?;
                // Sent again as a whole: the highest revision counts.
                let payload = convert::event_created(&event, &sectors);
                self.stores.outbox.append(&transaction, &[NewEvent::new(event_id, &payload)]).await?;
                Ok(pb::UpdateEventResponse { event: Some(convert::event(&event, &sectors)) })
            })
            .await?;
        Ok(response)
    }
}
