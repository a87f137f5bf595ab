//! `EndEvent`: grpc → app → store → domain::event → store. Ends a sale for good; held units may still be paid for.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own_event};
use crate::{
    domain::{domain_event::DomainEvent, event::Move, results::EventAndOffer},
    error::Error,
    store,
};

impl App {
    pub(crate) async fn end_event(
        &self,
        request: &Request<'_, EventAndOffer>,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<Answer<EventAndOffer>, Error> {
        let answer = self.once("end event", request, |transaction| async move {
            let mut event = lock_own_event(&transaction, event_id, organizer_id).await?;
            if let Move::To(state) = event.state.end()? {
                event = store::events::move_to(&transaction, event_id, state).await?;
                let ended = DomainEvent::EventEnded(&event);
                self.stores.outbox.append(&transaction, &[ended]).await?;
            }
            let offer = self.engine.offer_of(&transaction, &event).await?;
            Ok(EventAndOffer { event, offer })
        });
        let answer = answer.await?;
        for sector in &self.engine.offer(event_id).await?.sectors {
            self.engine.pools.remove(event_id, sector.id).await;
        }
        Ok(answer)
    }
}
