//! `GetDelivery`: grpc → app → store::dead_letters → store::event_owners.

use onsale_types::OrganizerId;
use uuid::Uuid;

use super::App;
use crate::{domain::delivery::Delivery, error::Error, store};

impl App {
    /// Returns a delivery about one of the organizer's events.
    pub(crate) async fn get_delivery(
        &self,
        organizer_id: OrganizerId,
        delivery_id: Uuid,
    ) -> Result<Delivery, Error> {
        let delivery = store::dead_letters::get(&self.stores.postgres, delivery_id).await?;
        let delivery = delivery.ok_or(Error::DeliveryNotFound { delivery_id })?;
        match self.check_event_owner(organizer_id, delivery.event_id).await {
            Ok(()) => Ok(delivery),
            Err(Error::EventNotOwned { .. } | Error::EventNotFound { .. }) => {
                Err(Error::DeliveryNotFound { delivery_id })
            }
            Err(error) => Err(error),
        }
    }
}
