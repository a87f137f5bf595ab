//! `UpdateEvent`: grpc → app → store → convert::requests (through `DraftChange`) → domain → store. Changes a draft; an event in
//! any other state is refused.

use std::sync::Arc;

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{EventId, OrganizerId};

use super::{App, lock_own_event};
use crate::{
    domain::{
        commands::DraftChange,
        domain_event::DomainEvent,
        event::{EventState, Offer},
        quota::check_draft,
        results::EventAndOffer,
    },
    error::{self, Error},
    store,
};

impl App {
    pub(crate) async fn update_event(
        &self,
        request: &Request<'_, EventAndOffer>,
        organizer_id: OrganizerId,
        event_id: EventId,
        change: &impl DraftChange,
    ) -> Result<Answer<EventAndOffer>, Error> {
        self.once("update event", request, |transaction| async move {
            let before = lock_own_event(&transaction, event_id, organizer_id).await?;
            if before.state != EventState::Draft {
                return Err(Error::EventNotDraft { state: before.state });
            }
            if change.expected_revision().is_some_and(|revision| revision != before.revision) {
                return Err(Error::RevisionOutdated { revision: before.revision });
            }
            let present = store::events::sectors(&transaction, &before).await?;
            let (details, sectors) = change.apply(&before, &present)?.assign_ids(&present)?;
            if details.venue.time_zone != before.details.venue.time_zone {
                self.check_time_zone(&transaction, &details).await?;
            }
            let kept = store::quotas::kept_sectors(&transaction, event_id).await?;
            error::refuse_draft_faults(&check_draft(&kept, &present, &sectors, details.start_time))?;
            let event = store::events::update(&transaction, &before, &details, &sectors).await?;
            let created = DomainEvent::EventCreated { event: &event, sectors: &sectors };
            self.stores.outbox.append(&transaction, &[created]).await?;
            let units_per_customer_max = details.units_per_customer_max;
            Ok(EventAndOffer { event, offer: Arc::new(Offer { units_per_customer_max, sectors }) })
        })
        .await
    }
}
