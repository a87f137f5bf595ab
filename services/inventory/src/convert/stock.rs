//! What is free, as callers see it.

use std::time::Duration;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::inventory::v1::{self as pb, watch_availability_response::Update};
use onsale_types::{EventId, SectorId};

use super::{event, sector_ids, wire_time};
use crate::domain::availability::{Availability, Change, Delta, Stock, StockDelta};

/// Most sectors a caller may name.
const SECTORS_MAX: usize = 200;

/// Reads which event and which of its sectors are asked about.
pub fn availability_query(
    event_id: &str,
    sectors: &[String],
) -> Result<(EventId, Vec<SectorId>), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", event_id.parse());
    let sectors = sector_ids(&mut violations, sectors, SECTORS_MAX);
    violations.build(|| Some((event_id?, sectors)))
}

/// The answer to who asked once.
#[must_use]
pub fn availability_response(found: &Availability, poll_after: Duration) -> pb::GetAvailabilityResponse {
    pb::GetAvailabilityResponse {
        availability: Some(availability(found)),
        next_poll_after: prost_types::Duration::try_from(poll_after).ok(),
    }
}

/// One message to a watcher.
#[must_use]
pub fn change(change: &Change) -> pb::WatchAvailabilityResponse {
    let update = match change {
        Change::Whole(whole) => Update::Availability(availability(whole)),
        Change::Part(part) => Update::Delta(delta(part)),
    };
    pb::WatchAvailabilityResponse { update: Some(update) }
}

/// What is free.
#[must_use]
pub fn availability(availability: &Availability) -> pb::Availability {
    let sector = |stock: &Stock| pb::SectorAvailability {
        sector_id: stock.sector_id.to_string(),
        capacity: stock.capacity,
        free_count: stock.free_count,
        held_count: stock.held_count,
        free_map: stock.free.as_ref().map(|free| free.as_bytes().to_vec()).unwrap_or_default(),
    };
    pb::Availability {
        event_id: availability.event_id.to_string(),
        revision: availability.revision,
        event_state: event::state(availability.state).into(),
        sectors: availability.sectors.iter().map(sector).collect(),
        availability_time: Some(wire_time(availability.time)),
    }
}

fn delta(delta: &Delta) -> pb::AvailabilityDelta {
    let sector = |stock: &StockDelta| pb::SectorDelta {
        sector_id: stock.sector_id.to_string(),
        free_count: stock.free_count,
        held_count: stock.held_count,
        freed_units: stock.freed.clone(),
        taken_units: stock.taken.clone(),
    };
    pb::AvailabilityDelta {
        previous_revision: delta.previous_revision,
        revision: delta.revision,
        event_state: event::state(delta.state).into(),
        sectors: delta.sectors.iter().map(sector).collect(),
    }
}
