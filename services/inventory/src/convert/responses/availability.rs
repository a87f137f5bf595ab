//! Availability as callers see it.

use std::time::Duration;

use onsale_proto::{
    convert::{duration_to_pb, time_to_pb},
    inventory::v1::{self as pb, watch_availability_response::Update},
};

use super::events;
use crate::domain::availability::{
    Availability, AvailabilityDelta, AvailabilityUpdate, SectorDelta, SectorStock,
};

/// Asks a caller without a stream to poll again after `poll_after`.
pub(crate) fn get_availability(found: &Availability, poll_after: Duration) -> pb::GetAvailabilityResponse {
    pb::GetAvailabilityResponse {
        availability: Some(availability(found)),
        next_poll_after: Some(duration_to_pb(poll_after)),
    }
}

pub(crate) fn availability_update(update: &AvailabilityUpdate) -> pb::WatchAvailabilityResponse {
    let update = match update {
        AvailabilityUpdate::Full(full) => Update::Availability(availability(full)),
        AvailabilityUpdate::Delta(part) => Update::Delta(delta(part)),
    };
    pb::WatchAvailabilityResponse { update: Some(update) }
}

fn availability(availability: &Availability) -> pb::Availability {
    let sector = |stock: &SectorStock| pb::SectorAvailability {
        sector_id: stock.sector_id.to_string(),
        capacity: stock.capacity,
        free_count: stock.free_count,
        held_count: stock.held_count,
        free_map: stock.free.as_ref().map(|free| free.as_bytes().to_vec()).unwrap_or_default(),
    };
    pb::Availability {
        event_id: availability.event_id.to_string(),
        revision: availability.revision,
        event_state: events::state(availability.state).into(),
        sectors: availability.sectors.iter().map(sector).collect(),
        availability_time: Some(time_to_pb(availability.time)),
    }
}

fn delta(delta: &AvailabilityDelta) -> pb::AvailabilityDelta {
    let sector = |stock: &SectorDelta| pb::SectorDelta {
        sector_id: stock.sector_id.to_string(),
        free_count: stock.free_count,
        held_count: stock.held_count,
        freed_units: stock.freed.clone(),
        taken_units: stock.taken.clone(),
    };
    pb::AvailabilityDelta {
        previous_revision: delta.previous_revision,
        revision: delta.revision,
        event_state: events::state(delta.state).into(),
        sectors: delta.sectors.iter().map(sector).collect(),
    }
}
