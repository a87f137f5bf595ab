//! `EndEvent`: ends the sale for good. What is held may still be paid.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own};
use crate::{convert, domain::event::Move, error::Error, store};

impl App {
    /// Ends an event of `organizer_id`.
    pub async fn end_event(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<pb::EndEventResponse, Error> {
        let response = self
            .once("end event", request, |transaction| async move {
                let mut event = lock_own(&transaction, event_id, organizer_id).await?;
                if let Move::To(state) = event.state.end()? {
                    event = store::events::move_to(&transaction, event_id, state).await?;
                    let payload = convert::event_ended(&event);
                    self.stores.outbox.append(&transaction, &[NewEvent::new(event_id, &payload)]).await?;
                }
                let offer = self.offer_of(&transaction, &event).await?;
                Ok(pb::EndEventResponse { event: Some(convert::event(&event, &offer.sectors)) })
            })
            .await?;
        for sector in &self.offer(event_id).await?.sectors {
            self.pools.remove(event_id, sector.id).await;
        }
        Ok(response)
    }
}
