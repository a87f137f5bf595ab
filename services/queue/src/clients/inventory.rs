//! Inventory: the free units of an event.

use onsale_kit::client::Channel;
use onsale_proto::inventory::v1::inventory_service_client::InventoryServiceClient;
use onsale_types::EventId;

use crate::{convert::clients, domain::availability::Availability, error::Error};

/// The client of Inventory. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    client: InventoryServiceClient<Channel>,
}

impl Inventory {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { client: InventoryServiceClient::new(channel) }
    }

    /// Returns the units of the event that are free now.
    pub(crate) async fn availability(&self, event_id: EventId) -> Result<Availability, Error> {
        let response = self.client.clone().get_availability(clients::get_availability(event_id)).await;
        let response = response.map_err(|status| Error::Inventory(Box::new(status)))?;
        Ok(clients::availability(response.into_inner()))
    }
}
