//! `ActivateEvent`: makes a draft public, or lets a halted sale go on.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own};
use crate::{convert, domain::event::Move, error::Error, store};

impl App {
    /// Puts an event of `organizer_id` on sale.
    pub async fn activate_event(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<pb::ActivateEventResponse, Error> {
        let response = self
            .once("activate event", request, |transaction| async move {
                let mut event = lock_own(&transaction, event_id, organizer_id).await?;
                if let Move::To(state) = event.state.activate()? {
                    event = store::events::move_to(&transaction, event_id, state).await?;
                    let payload = convert::event_activated(&event);
                    self.stores.outbox.append(&transaction, &[NewEvent::new(event_id, &payload)]).await?;
                    // Quotas may keep all there is.
                    event = self.sell_out(&transaction, event_id).await?;
                }
                let offer = self.offer_of(&transaction, &event).await?;
                let event = Some(convert::event(&event, &offer.sectors));
                Ok(pb::ActivateEventResponse { event })
            })
            .await?;
        Ok(response)
    }
}
