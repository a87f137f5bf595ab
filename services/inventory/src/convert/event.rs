//! Events: requests about one or many, and the event as callers see it.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{EventId, OrganizerId, PageLimits, PageQuery, PageSize, PageToken, RequestId, Timestamp};

use super::{money, time, wire_time};
use crate::{
    app::{EventsPage, ListEvents},
    domain::{
        event::{Event, EventState, Sector},
        layout::{SeatLayout, SeatRow},
    },
};

/// A request to move an event.
#[derive(Clone, Copy, Debug)]
pub struct EventCommand {
    /// Names the request.
    pub request_id: RequestId,
    /// The event.
    pub event_id: EventId,
}

/// Reads a request to move an event.
pub fn event_command(request_id: &str, event_id: &str) -> Result<EventCommand, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request_id.parse());
    let event_id = violations.check("event_id", event_id.parse());
    violations.build(|| Some(EventCommand { request_id: request_id?, event_id: event_id? }))
}

/// Reads the id of an event.
pub fn event_id(text: &str) -> Result<EventId, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", text.parse());
    violations.build(|| event_id)
}

/// Reads a request for a page of events; also what its page tokens belong to.
pub fn list_events(request: &pb::ListEventsRequest) -> Result<(ListEvents, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let wanted = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(wanted, PageLimits::default()));
    let organizer_id = match request.organizer_id.as_str() {
        "" => None,
        text => violations.check("organizer_id", OrganizerId::parse(text)),
    };
    let states: Vec<EventState> = request
        .states
        .iter()
        .enumerate()
        .filter_map(|(index, state)| violations.check(format_args!("states[{index}]"), read_state(*state)))
        .collect();
    let mut bound = |field, given: Option<prost_types::Timestamp>| {
        given.and_then(|given| violations.check(field, time(given)))
    };
    let start_from = bound("start_from_time", request.start_from_time);
    let start_until = bound("start_until_time", request.start_until_time);
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    let micros = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    let query = PageQuery::new("events")
        .with("organizer_id", &request.organizer_id)
        .with("states", names.join(","))
        .with("start_from_time", micros(start_from))
        .with("start_until_time", micros(start_until));
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query)).flatten();
    let after = token.and_then(|token| violations.require("page_token", read_position(token.position())));
    let list = violations.build(|| {
        let page_size = page_size?;
        Some(ListEvents { organizer_id, states, start_from, start_until, page_size, after })
    })?;
    Ok((list, query))
}

/// The answer to a request for a page of events.
#[must_use]
pub fn listed(page: &EventsPage, query: &PageQuery) -> pb::ListEventsResponse {
    let next = page.next.map(|position| PageToken::after(write_position(position)).encode(query));
    pb::ListEventsResponse {
        events: page.events.iter().map(|(found, sectors)| event(found, sectors)).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

/// The event as callers see it.
#[must_use]
pub fn event(event: &Event, sectors: &[Sector]) -> pb::Event {
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
        start_time: Some(wire_time(details.start_time)),
        on_sale_time: details.on_sale_time.map(wire_time),
        currency_code: details.currency.to_string(),
        units_per_customer_max: details.units_per_customer_max,
        sectors: sectors.iter().map(sector).collect(),
        state: state(event.state).into(),
        capacity: event.capacity,
        revision: event.revision,
        create_time: Some(wire_time(event.create_time)),
        update_time: Some(wire_time(event.update_time)),
        activate_time: event.activate_time.map(wire_time),
        end_time: event.end_time.map(wire_time),
    }
}

/// The event as orders and mails tell it.
pub(super) fn summary(event: &Event) -> types::EventSummary {
    let details = &event.details;
    types::EventSummary {
        event_id: event.id.to_string(),
        name: details.name.clone(),
        venue_name: details.venue.name.clone(),
        venue_address: details.venue.address.clone(),
        time_zone: details.venue.time_zone.clone(),
        start_time: Some(wire_time(details.start_time)),
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

pub(super) fn layout(layout: &SeatLayout) -> types::SeatLayout {
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
        price: Some(money(sector.price)),
        capacity: sector.capacity,
        layout: sector.layout.as_ref().map(layout),
    }
}

fn read_state(wire: i32) -> Result<EventState, &'static str> {
    match pb::EventState::try_from(wire) {
        Ok(pb::EventState::Draft) => Ok(EventState::Draft),
        Ok(pb::EventState::OnSale) => Ok(EventState::OnSale),
        Ok(pb::EventState::Paused) => Ok(EventState::Paused),
        Ok(pb::EventState::SoldOut) => Ok(EventState::SoldOut),
        Ok(pb::EventState::Ended) => Ok(EventState::Ended),
        Ok(pb::EventState::Unspecified) | Err(_) => Err("is no state of an event"),
    }
}

/// The key of a page's last row: its start time and id.
fn write_position((time, event_id): (Timestamp, EventId)) -> Vec<u8> {
    let mut position = time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(event_id.as_uuid().as_bytes());
    position
}

fn read_position(position: &[u8]) -> Option<(Timestamp, EventId)> {
    let (micros, id) = position.split_first_chunk::<8>()?;
    let id = uuid::Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), EventId::from_uuid(id)))
}
