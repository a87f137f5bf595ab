//! Events between services: those that Inventory publishes, and those that it receives.

use std::collections::HashMap;

use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    events::v1 as pb,
};
use onsale_storage::messaging::{NewEvent, OutgoingEvent};
use onsale_types::{EventId, ParseIdError, SectorId};

use super::responses::{layout, summary};
use crate::domain::{
    counts::Counts,
    domain_event::DomainEvent,
    event::{Event, Sector},
};

impl OutgoingEvent for DomainEvent<'_> {
    fn to_new_event(&self) -> NewEvent {
        match self {
            Self::EventCreated { event, sectors } => NewEvent::new(event.id, &event_created(event, sectors)),
            Self::EventActivated(event) => NewEvent::new(event.id, &event_activated(event)),
            Self::EventEnded(event) => NewEvent::new(event.id, &event_ended(event)),
            Self::InventorySoldOut { event_id, revision, time } => {
                let sold_out = pb::InventorySoldOut {
                    event_id: event_id.to_string(),
                    revision: *revision,
                    sold_out_time: Some(time_to_pb(*time)),
                };
                NewEvent::new(event_id, &sold_out)
            }
            Self::InventoryAvailable { event_id, revision, time, sectors, counts } => {
                let available = pb::InventoryAvailable {
                    event_id: event_id.to_string(),
                    revision: *revision,
                    sectors: available_sectors(sectors, counts),
                    available_time: Some(time_to_pb(*time)),
                };
                NewEvent::new(event_id, &available)
            }
            Self::QuotaInvitation { event, sector, quota, invitation, invitee, accept_url } => {
                let invitation = pb::QuotaInvitation {
                    invitation_id: invitation.id.to_string(),
                    event: Some(summary(event)),
                    quota_name: quota.name.clone(),
                    sector_name: sector.name.clone(),
                    unit_count: invitation.unit_count,
                    email: invitation.email.clone(),
                    locale: invitee.locale.clone(),
                    accept_url: accept_url.clone(),
                    expire_time: Some(time_to_pb(quota.return_time)),
                };
                NewEvent::new(&invitation.invitation_id, &invitation)
            }
        }
    }
}

/// Reads `generation.completed`: the event and its generated revision.
pub(crate) fn generation_completed(
    payload: &pb::GenerationCompleted,
) -> Result<(EventId, u64), ParseIdError> {
    let event_id = payload.event.as_ref().map(|event| event.event_id.as_str()).unwrap_or_default();
    Ok((EventId::parse(event_id)?, payload.revision))
}

fn event_created(event: &Event, sectors: &[Sector]) -> pb::EventCreated {
    let sector = |sector: &Sector| pb::CreatedSector {
        sector_id: sector.id.to_string(),
        name: sector.name.clone(),
        capacity: sector.capacity,
        layout: sector.layout.as_ref().map(layout),
        price: Some(money_to_pb(sector.price)),
    };
    pb::EventCreated {
        event: Some(summary(event)),
        organizer_id: event.organizer_id.to_string(),
        revision: event.revision,
        on_sale_time: event.details.on_sale_time.map(time_to_pb),
        units_per_customer_max: event.details.units_per_customer_max,
        sectors: sectors.iter().map(sector).collect(),
    }
}

fn event_activated(event: &Event) -> pb::EventActivated {
    pb::EventActivated {
        event_id: event.id.to_string(),
        revision: event.revision,
        on_sale_time: event.details.on_sale_time.map(time_to_pb),
        activate_time: event.activate_time.map(time_to_pb),
    }
}

fn event_ended(event: &Event) -> pb::EventEnded {
    pb::EventEnded {
        event_id: event.id.to_string(),
        revision: event.revision,
        end_time: event.end_time.map(time_to_pb),
    }
}

/// Returns the sectors with free units.
fn available_sectors(sectors: &[Sector], counts: &HashMap<SectorId, Counts>) -> Vec<pb::AvailableSector> {
    let free_count = |sector: &Sector| counts.get(&sector.id).map_or(0, Counts::free);
    sectors
        .iter()
        .filter(|sector| free_count(sector) > 0)
        .map(|sector| pb::AvailableSector {
            sector_id: sector.id.to_string(),
            name: sector.name.clone(),
            free_count: free_count(sector),
        })
        .collect()
}
