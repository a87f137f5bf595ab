//! What organizers see and do: the dead letters of their own events.

use onsale_proto::notification::v1::RetryDeadLetterResponse;
use onsale_storage::idempotency::{self, Request};
use onsale_types::{EventId, OrganizerId, PageSize};
use uuid::Uuid;

use super::App;
use crate::{
    convert,
    domain::delivery::{Delivery, State},
    error::Error,
    store::{
        self,
        dead_letters::{Filter, Position},
    },
};

/// Which dead letters.
#[derive(Clone, Debug)]
pub struct ListDeadLetters {
    /// Which.
    pub filter: Filter,
    /// Where to begin.
    pub after: Option<Position>,
    /// How many.
    pub page: PageSize,
}

/// Some of them.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// Newest first.
    pub deliveries: Vec<Delivery>,
    /// Where the next page begins; none on the last.
    pub next: Option<Position>,
}

impl App {
    /// Dead letters about the organizer's own event.
    pub async fn list_dead_letters(
        &self,
        organizer: OrganizerId,
        list: ListDeadLetters,
    ) -> Result<DeadLetters, Error> {
        self.own_event(organizer, list.filter.event_id).await?;
        let ListDeadLetters { filter, after, page } = list;
        let mut deliveries = store::dead_letters::list(&self.stores.postgres, &filter, after, page).await?;
        let rows = usize::try_from(page.rows()).unwrap_or(usize::MAX);
        let has_more = deliveries.len() > rows;
        deliveries.truncate(rows);
        let last = deliveries.last().filter(|_| has_more);
        let next = last
            .and_then(|it| it.end_time.map(|end_time| Position { end_time, delivery_id: it.delivery_id }));
        Ok(DeadLetters { deliveries, next })
    }

    /// One delivery about the organizer's own event.
    pub async fn get_delivery(&self, organizer: OrganizerId, delivery_id: Uuid) -> Result<Delivery, Error> {
        let delivery = store::dead_letters::get(&self.stores.postgres, delivery_id).await?;
        let delivery = delivery.ok_or(Error::DeliveryNotFound { delivery_id })?;
        self.own_delivery(organizer, delivery.event_id, delivery_id).await?;
        Ok(delivery)
    }

    /// Takes a delivery out of the dead letters.
    pub async fn retry_dead_letter(
        &self,
        organizer: OrganizerId,
        request: &Request<'_>,
        delivery_id: Uuid,
    ) -> Result<RetryDeadLetterResponse, Error> {
        // What a delivery is about never changes, so this may be asked before the transaction.
        self.get_delivery(organizer, delivery_id).await?;
        let answer = self
            .stores
            .postgres
            .transaction("retry dead letter", |transaction| async move {
                let work = async {
                    let delivery = store::dead_letters::lock(&transaction, delivery_id).await?;
                    let delivery = delivery.ok_or(Error::DeliveryNotFound { delivery_id })?;
                    if delivery.state != State::Dead {
                        return Err(Error::DeliveryNotDead { delivery_id, state: delivery.state });
                    }
                    let delivery = store::dead_letters::requeue(&transaction, delivery).await?;
                    Ok(RetryDeadLetterResponse { delivery: Some(convert::delivery(delivery)) })
                };
                idempotency::once(&transaction, request, work).await
            })
            .await?;
        self.hint.notify_one();
        Ok(answer)
    }

    async fn own_event(&self, organizer: OrganizerId, event_id: EventId) -> Result<(), Error> {
        match store::event_owners::find(&self.stores.postgres, event_id).await? {
            Some(owned) if owned.organizer_id == organizer => Ok(()),
            Some(owned) if owned.has_jobs => Err(Error::EventNotOwned { event_id }),
            // Unknown, or maybe another's draft, which is as if it were not there.
            Some(_) | None => Err(Error::EventNotFound { event_id }),
        }
    }

    async fn own_delivery(
        &self,
        organizer: OrganizerId,
        event_id: EventId,
        delivery_id: Uuid,
    ) -> Result<(), Error> {
        match self.own_event(organizer, event_id).await {
            Err(Error::EventNotOwned { .. } | Error::EventNotFound { .. }) => {
                Err(Error::DeliveryNotFound { delivery_id })
            }
            other => other,
        }
    }
}
