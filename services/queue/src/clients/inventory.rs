//! Inventory: what is still worth waiting for.

use std::collections::HashMap;

use onsale_kit::client::Channel;
use onsale_proto::inventory::v1::{
    EventState, GetAvailabilityRequest, inventory_service_client::InventoryServiceClient,
};
use onsale_types::{EventId, SectorId};

use crate::error::Error;

/// What is free in an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// Free units by sector.
    pub sectors: HashMap<SectorId, u32>,
    /// Whether the sale goes on.
    pub is_on_sale: bool,
}

impl Availability {
    /// Units that somebody who is admitted now could buy.
    #[must_use]
    pub fn free_units(&self) -> u64 {
        if self.is_on_sale { self.sectors.values().map(|free| u64::from(*free)).sum() } else { 0 }
    }
}

/// The neighbor. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Inventory {
    client: InventoryServiceClient<Channel>,
}

impl Inventory {
    /// Asks over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { client: InventoryServiceClient::new(channel) }
    }

    /// What is free in the event now.
    pub async fn availability(&self, event_id: EventId) -> Result<Availability, Error> {
        let request = GetAvailabilityRequest { event_id: event_id.to_string(), sector_ids: Vec::new() };
        let answer = self.client.clone().get_availability(request).await;
        let answer = answer.map_err(|status| Error::Inventory(Box::new(status)))?.into_inner();
        let availability = answer.availability.unwrap_or_default();
        let is_halted =
            matches!(availability.event_state(), EventState::Draft | EventState::Paused | EventState::Ended);
        let free = |sector: onsale_proto::inventory::v1::SectorAvailability| {
            Some((SectorId::parse(&sector.sector_id).ok()?, sector.free_count))
        };
        Ok(Availability {
            sectors: availability.sectors.into_iter().filter_map(free).collect(),
            is_on_sale: !is_halted,
        })
    }
}
