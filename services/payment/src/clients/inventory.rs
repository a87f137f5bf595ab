//! Client of Inventory: finds the organizer of an event.

use onsale_kit::client::Channel;
use onsale_proto::{inventory::v1::event_service_client::EventServiceClient, r#type::v1::ErrorReason};
use onsale_types::{EventId, OrganizerId};

use super::neighbor::{NeighborError, has_reason};
use crate::convert::clients as convert;

/// Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct InventoryClient {
    events: EventServiceClient<Channel>,
}

impl InventoryClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { events: EventServiceClient::new(channel) }
    }

    /// Returns the organizer of an event, or `None` if Inventory does not know the event.
    pub(crate) async fn organizer_of(&self, event_id: EventId) -> Result<Option<OrganizerId>, NeighborError> {
        const ATTEMPT: &str = "get the event";
        match self.events.clone().get_event(convert::get_event(event_id)).await {
            Ok(response) => convert::organizer_id(response.into_inner())
                .map(Some)
                .map_err(NeighborError::response(ATTEMPT)),
            Err(status) if has_reason(&status, ErrorReason::EventNotFound.as_str_name()) => Ok(None),
            Err(status) => Err(NeighborError::status(ATTEMPT)(status)),
        }
    }
}
