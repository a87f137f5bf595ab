//! Conversions between the contracts and the domain. No other module builds or reads protobuf messages.

pub(crate) mod events;
pub(crate) mod requests;
pub(crate) mod responses;

use onsale_kit::error::Violations;
use onsale_proto::{convert::time_to_pb, r#type::v1 as shared};
use onsale_types::SectorId;

use crate::domain::{
    event::{EventSummary, Seat},
    order::OrderedUnit,
};

/// Limit of an order's units. It is far above the number that a customer may buy.
const UNITS_MAX: usize = 1_000;

/// Returns the text, or `None` if it is empty.
fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Reads the items of an order, each a sector id and the numbers of its units. The units are returned in order.
fn ordered_units<'a>(
    violations: &mut Violations,
    items: impl IntoIterator<Item = (&'a str, Vec<u32>)>,
) -> Vec<OrderedUnit> {
    let mut units = Vec::new();
    for (index, (sector_id, numbers)) in items.into_iter().enumerate() {
        let sector_id =
            violations.check(format_args!("items[{index}].sector_id"), SectorId::parse(sector_id));
        if numbers.is_empty() || numbers.contains(&0) {
            violations
                .push(format_args!("items[{index}].units"), "must have at least one unit, and no unit 0");
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

fn summary_to_pb(event: &EventSummary) -> shared::EventSummary {
    shared::EventSummary {
        event_id: event.event_id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone().unwrap_or_default(),
        time_zone: event.time_zone.clone(),
        start_time: Some(time_to_pb(event.start_time)),
    }
}

fn unit_to_pb(number: u32, seat: Option<&Seat>) -> shared::Unit {
    let seat = seat
        .map(|seat| shared::Seat { row_label: seat.row_label.clone(), seat_label: seat.seat_label.clone() });
    shared::Unit { number, seat }
}
