//! Calls to Inventory and its answers.

use onsale_proto::inventory::v1::{
    EventState, GetAvailabilityRequest, GetAvailabilityResponse, SectorAvailability,
};
use onsale_types::{EventId, SectorId};

use crate::domain::availability::Availability;

/// Builds the question for the free units of all sectors of an event.
pub(crate) fn get_availability(event_id: EventId) -> GetAvailabilityRequest {
    GetAvailabilityRequest { event_id: event_id.to_string(), sector_ids: Vec::new() }
}

/// Reads the free units. A sector with a malformed id is left out.
pub(crate) fn availability(response: GetAvailabilityResponse) -> Availability {
    let availability = response.availability.unwrap_or_default();
    let is_halted =
        matches!(availability.event_state(), EventState::Draft | EventState::Paused | EventState::Ended);
    let free =
        |sector: SectorAvailability| Some((SectorId::parse(&sector.sector_id).ok()?, sector.free_count));
    Availability {
        sectors: availability.sectors.into_iter().filter_map(free).collect(),
        is_on_sale: !is_halted,
    }
}
