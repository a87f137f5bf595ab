//! `ActivateEvent`: grpc → app → store → domain::event → store. Makes a draft public, or resumes a paused sale.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own_event};
use crate::{
    domain::{domain_event::DomainEvent, event::Move, results::EventAndOffer},
    error::Error,
    store,
};

impl App {
    pub(crate) async fn activate_event(
        &self,
        request: &Request<'_, EventAndOffer>,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<Answer<EventAndOffer>, Error> {
        self.once("activate event", request, |transaction| async move {
            let mut event = lock_own_event(&transaction, event_id, organizer_id).await?;
            if let Move::To(state) = event.state.activate()? {
                event = store::events::move_to(&transaction, event_id, state).await?;
                let activated = DomainEvent::EventActivated(&event);
                self.stores.outbox.append(&transaction, &[activated]).await?;
                // Quotas may keep all units.
                event = self.engine.sell_out(&transaction, event_id).await?;
            }
            let offer = self.engine.offer_of(&transaction, &event).await?;
            Ok(EventAndOffer { event, offer })
        })
        .await
    }
}
