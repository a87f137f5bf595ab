//! Inventory: whose an event is.

use onsale_kit::client::Channel;
use onsale_proto::{
    inventory::v1::{GetEventRequest, event_service_client::EventServiceClient},
    r#type::v1::ErrorReason,
};
use onsale_types::{EventId, OrganizerId};

use super::neighbor::{NeighborError, has_reason};
use crate::convert;

/// Calls Inventory. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Events {
    events: EventServiceClient<Channel>,
}

impl Events {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { events: EventServiceClient::new(channel) }
    }

    /// The organizer an event belongs to; `None` when there is no such event.
    pub async fn organizer(&self, id: EventId) -> Result<Option<OrganizerId>, NeighborError> {
        const ATTEMPT: &str = "get the event";
        let request = GetEventRequest { event_id: id.to_string() };
        match self.events.clone().get_event(request).await {
            Ok(answer) => convert::organizer(answer.into_inner().event)
                .map(Some)
                .map_err(NeighborError::answer(ATTEMPT)),
            Err(status) if has_reason(&status, ErrorReason::EventNotFound.as_str_name()) => Ok(None),
            Err(status) => Err(NeighborError::status(ATTEMPT)(status)),
        }
    }
}
