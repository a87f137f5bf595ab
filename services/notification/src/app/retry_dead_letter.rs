//! `RetryDeadLetter`: grpc → app → app::get_delivery → store::dead_letters (lock, requeue).

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::OrganizerId;
use uuid::Uuid;

use super::App;
use crate::{
    domain::delivery::{Delivery, DeliveryState},
    error::Error,
    store,
};

impl App {
    /// Returns a dead letter about one of the organizer's events to the queue, with a new round of attempts.
    pub(crate) async fn retry_dead_letter(
        &self,
        organizer_id: OrganizerId,
        request: &Request<'_, Delivery>,
        delivery_id: Uuid,
    ) -> Result<Answer<Delivery>, Error> {
        // The event of a delivery never changes, so its owner can be checked before the transaction.
        self.get_delivery(organizer_id, delivery_id).await?;
        let answer = self
            .stores
            .postgres
            .transaction("retry dead letter", |transaction| async move {
                let work = async {
                    let delivery = store::dead_letters::lock(&transaction, delivery_id).await?;
                    let delivery = delivery.ok_or(Error::DeliveryNotFound { delivery_id })?;
                    if delivery.state != DeliveryState::Dead {
                        return Err(Error::DeliveryNotDead { delivery_id, state: delivery.state });
                    }
                    Ok(store::dead_letters::requeue(&transaction, delivery).await?)
                };
                request.once(&transaction, work).await
            })
            .await?;
        self.delivery_hints.notify_one();
        Ok(answer)
    }
}
