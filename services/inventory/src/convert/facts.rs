//! Events between services: what Inventory tells, and what it is told.

use std::collections::HashMap;

use onsale_proto::events::v1 as events;
use onsale_types::{EventId, ParseIdError, SectorId, Timestamp};

use super::{event, money, wire_time};
use crate::domain::{
    counts::Counts,
    event::{Event, Sector},
};

/// `event.created`: also sent, with a higher revision, when a draft changed.
#[must_use]
pub fn event_created(created: &Event, sectors: &[Sector]) -> events::EventCreated {
    let sector = |sector: &Sector| events::CreatedSector {
        sector_id: sector.id.to_string(),
        name: sector.name.clone(),
        capacity: sector.capacity,
        layout: sector.layout.as_ref().map(event::layout),
        price: Some(money(sector.price)),
    };
    events::EventCreated {
        event: Some(event::summary(created)),
        organizer_id: created.organizer_id.to_string(),
        revision: created.revision,
        on_sale_time: created.details.on_sale_time.map(wire_time),
        units_per_customer_max: created.details.units_per_customer_max,
        sectors: sectors.iter().map(sector).collect(),
    }
}

/// `event.activated`.
#[must_use]
pub fn event_activated(event: &Event) -> events::EventActivated {
    events::EventActivated {
        event_id: event.id.to_string(),
        revision: event.revision,
        on_sale_time: event.details.on_sale_time.map(wire_time),
        activate_time: event.activate_time.map(wire_time),
    }
}

/// `event.ended`.
#[must_use]
pub fn event_ended(event: &Event) -> events::EventEnded {
    events::EventEnded {
        event_id: event.id.to_string(),
        revision: event.revision,
        end_time: event.end_time.map(wire_time),
    }
}

/// `inventory.sold_out`.
#[must_use]
pub fn sold_out(event_id: EventId, revision: u64, time: Timestamp) -> events::InventorySoldOut {
    events::InventorySoldOut {
        event_id: event_id.to_string(),
        revision,
        sold_out_time: Some(wire_time(time)),
    }
}

/// `inventory.available`.
#[must_use]
pub fn available(
    event_id: EventId,
    revision: u64,
    time: Timestamp,
    sectors: &[Sector],
    counts: &HashMap<SectorId, Counts>,
) -> events::InventoryAvailable {
    let free = |sector: &Sector| counts.get(&sector.id).map_or(0, Counts::free);
    events::InventoryAvailable {
        event_id: event_id.to_string(),
        revision,
        sectors: sectors
            .iter()
            .filter(|sector| free(sector) > 0)
            .map(|sector| events::AvailableSector {
                sector_id: sector.id.to_string(),
                name: sector.name.clone(),
                free_count: free(sector),
            })
            .collect(),
        available_time: Some(wire_time(time)),
    }
}

/// `generation.completed`: which event, and which revision of it.
pub fn generation_completed(payload: &events::GenerationCompleted) -> Result<(EventId, u64), ParseIdError> {
    let event_id = payload.event.as_ref().map(|event| event.event_id.as_str()).unwrap_or_default();
    Ok((EventId::parse(event_id)?, payload.revision))
}
