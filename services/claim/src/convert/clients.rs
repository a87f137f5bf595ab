//! What is asked of Inventory, and what it answers.

use std::sync::Arc;

use onsale_proto::{
    inventory::v1::{HoldState, ReserveUnitsResponse},
    r#type::v1::{EventSummary as PbEventSummary, LineItem, Unit as PbUnit, UnitSelection},
};
use onsale_types::{EventId, QuotaId, SectorId};

use super::{money, timestamp};
use crate::domain::{EventSummary, Item, Reservation, Seat, Selection, Unit, Wanted};

/// A selection for the wire.
#[must_use]
pub fn selection_to_pb(selection: &Selection) -> UnitSelection {
    let (count, units) = match &selection.wanted {
        Wanted::Count(count) => (*count, Vec::new()),
        Wanted::Units(units) => (0, units.clone()),
    };
    UnitSelection { sector_id: selection.sector.to_string(), count, units }
}

/// What Inventory set aside of an `event`; none when the hold does not stand any more, as an old one is answered as it is. The
/// error names the part that makes no sense.
pub fn reservation(
    answer: ReserveUnitsResponse,
    event: Arc<EventSummary>,
) -> Result<Option<Reservation>, &'static str> {
    let hold = answer.hold.ok_or("hold")?;
    if hold.state() != HoldState::Held {
        return Ok(None);
    }
    let quota = match hold.quota_id.as_str() {
        "" => None,
        text => Some(QuotaId::parse(text).map_err(|_malformed| "quota_id")?),
    };
    let items = hold.items.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    if items.is_empty() {
        return Err("items");
    }
    if answer.units_per_customer_max == 0 {
        return Err("units_per_customer_max");
    }
    Ok(Some(Reservation { event, items, quota, units_max: answer.units_per_customer_max }))
}

fn item(item: LineItem) -> Result<Item, &'static str> {
    if item.units.is_empty() {
        return Err("units");
    }
    Ok(Item {
        sector: SectorId::parse(&item.sector_id).map_err(|_malformed| "sector_id")?,
        sector_name: item.sector_name,
        units: item.units.into_iter().map(unit).collect(),
        unit_price: money(item.unit_price).map_err(|_malformed| "unit_price")?,
        group_count: item.group_count,
    })
}

fn unit(unit: PbUnit) -> Unit {
    let seat = unit.seat.map(|seat| Seat { row_label: seat.row_label, seat_label: seat.seat_label });
    Unit { number: unit.number, seat }
}

/// What Inventory says of an event. The error names the part that makes no sense.
pub fn event(event: PbEventSummary) -> Result<EventSummary, &'static str> {
    Ok(EventSummary {
        id: EventId::parse(&event.event_id).map_err(|_malformed| "event_id")?,
        name: event.name,
        venue_name: event.venue_name,
        venue_address: event.venue_address,
        time_zone: event.time_zone,
        start_time: timestamp(event.start_time).ok_or("start_time")?,
    })
}
