//! Between the contracts' messages and the domain: the only place that names both. Checks the form of fields, all of them
//! before it answers; decides nothing.

pub mod events;
pub mod requests;
pub mod responses;

use onsale_kit::error::Violations;
use onsale_proto::r#type::v1 as shared;
use onsale_types::{SectorId, Timestamp};

use crate::domain::{
    event::{EventSummary, Seat},
    order::OrderedUnit,
};

/// An order of more units than any customer may buy is a mistake.
const UNITS_MAX: usize = 1_000;

fn timestamp_to_pb(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

fn timestamp(time: prost_types::Timestamp) -> Result<Timestamp, &'static str> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos).ok_or("is not a time of the years 1 to 9999")
}

/// An empty text is an unset one.
fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn summary_to_pb(event: &EventSummary) -> shared::EventSummary {
    shared::EventSummary {
        event_id: event.event_id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone().unwrap_or_default(),
        time_zone: event.time_zone.clone(),
        start_time: Some(timestamp_to_pb(event.start_time)),
    }
}

fn unit_to_pb(number: u32, seat: Option<&Seat>) -> shared::Unit {
    let seat = seat
        .map(|seat| shared::Seat { row_label: seat.row_label.clone(), seat_label: seat.seat_label.clone() });
    shared::Unit { number, seat }
}

/// The units of an order, given as sectors and numbers.
fn ordered_units(
    violations: &mut Violations,
    items: impl IntoIterator<Item = (String, Vec<u32>)>,
) -> Vec<OrderedUnit> {
    let mut units = Vec::new();
    for (index, (sector_id, numbers)) in items.into_iter().enumerate() {
        let sector_id = violations.check(format!("items[{index}].sector_id"), SectorId::parse(&sector_id));
        if numbers.is_empty() || numbers.contains(&0) {
            violations.push(format!("items[{index}].units"), "must have at least one unit, and no unit 0");
        }
        let Some(sector_id) = sector_id else { continue };
        units.extend(numbers.into_iter().map(|unit| OrderedUnit { sector_id, unit }));
    }
    let given = units.len();
    units.sort_unstable();
    units.dedup();
    if units.len() < given {
        violations.push("items", "must not name a unit twice");
    }
    if given == 0 || given > UNITS_MAX {
        violations.push("items", format!("must have 1 to {UNITS_MAX} units"));
    }
    units
}
