//! Events as callers see them.

use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    inventory::v1 as pb,
    r#type::v1 as types,
};
use onsale_types::{EventId, PageQuery, PageToken, Timestamp};

use crate::domain::{
    event::{Event, EventState, Sector},
    layout::{SeatLayout, SeatRow},
    results::{EventAndOffer, EventsPage},
};

pub(super) fn create_event(created: &EventAndOffer) -> pb::CreateEventResponse {
    pb::CreateEventResponse { event: Some(whole_event(created)) }
}

pub(super) fn update_event(updated: &EventAndOffer) -> pb::UpdateEventResponse {
    pb::UpdateEventResponse { event: Some(whole_event(updated)) }
}

pub(super) fn activate_event(activated: &EventAndOffer) -> pb::ActivateEventResponse {
    pb::ActivateEventResponse { event: Some(whole_event(activated)) }
}

pub(super) fn end_event(ended: &EventAndOffer) -> pb::EndEventResponse {
    pb::EndEventResponse { event: Some(whole_event(ended)) }
}

pub(crate) fn get_event(found: &EventAndOffer) -> pb::GetEventResponse {
    pb::GetEventResponse { event: Some(whole_event(found)) }
}

/// Encodes a page; `query` makes its token valid for the same list only.
pub(crate) fn list_events(page: &EventsPage, query: &PageQuery) -> pb::ListEventsResponse {
    let next = page.next.map(|position| PageToken::after(write_position(position)).encode(query));
    pb::ListEventsResponse {
        events: page.events.iter().map(|(found, sectors)| event(found, sectors)).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

fn whole_event(found: &EventAndOffer) -> pb::Event {
    event(&found.event, &found.offer.sectors)
}

pub(in crate::convert) fn event(event: &Event, sectors: &[Sector]) -> pb::Event {
    let details = &event.details;
    pb::Event {
        event_id: event.id.to_string(),
        organizer_id: event.organizer_id.to_string(),
        name: details.name.clone(),
        description: details.description.clone(),
        venue: Some(pb::Venue {
            name: details.venue.name.clone(),
            address: details.venue.address.clone(),
            time_zone: details.venue.time_zone.clone(),
        }),
        start_time: Some(time_to_pb(details.start_time)),
        on_sale_time: details.on_sale_time.map(time_to_pb),
        currency_code: details.currency.to_string(),
        units_per_customer_max: details.units_per_customer_max,
        sectors: sectors.iter().map(sector).collect(),
        state: state(event.state).into(),
        capacity: event.capacity,
        revision: event.revision,
        create_time: Some(time_to_pb(event.create_time)),
        update_time: Some(time_to_pb(event.update_time)),
        activate_time: event.activate_time.map(time_to_pb),
        end_time: event.end_time.map(time_to_pb),
    }
}

/// Returns the parts of an event that orders and mails show.
pub(in crate::convert) fn summary(event: &Event) -> types::EventSummary {
    let details = &event.details;
    types::EventSummary {
        event_id: event.id.to_string(),
        name: details.name.clone(),
        venue_name: details.venue.name.clone(),
        venue_address: details.venue.address.clone(),
        time_zone: details.venue.time_zone.clone(),
        start_time: Some(time_to_pb(details.start_time)),
    }
}

pub(super) fn state(state: EventState) -> pb::EventState {
    match state {
        EventState::Draft => pb::EventState::Draft,
        EventState::OnSale => pb::EventState::OnSale,
        EventState::Paused => pb::EventState::Paused,
        EventState::SoldOut => pb::EventState::SoldOut,
        EventState::Ended => pb::EventState::Ended,
    }
}

pub(in crate::convert) fn layout(layout: &SeatLayout) -> types::SeatLayout {
    let row = |row: &SeatRow| types::SeatRow {
        label: row.label.clone(),
        seat_count: row.seat_count,
        seat_labels: row.seat_labels.clone(),
    };
    types::SeatLayout { rows: layout.rows.iter().map(row).collect() }
}

fn sector(sector: &Sector) -> pb::Sector {
    pb::Sector {
        sector_id: sector.id.to_string(),
        name: sector.name.clone(),
        price: Some(money_to_pb(sector.price)),
        capacity: sector.capacity,
        layout: sector.layout.as_ref().map(layout),
    }
}

/// Writes the position of a page token: start time and id of the page's last event.
fn write_position((time, event_id): (Timestamp, EventId)) -> Vec<u8> {
    let mut position = time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(event_id.as_uuid().as_bytes());
    position
}
