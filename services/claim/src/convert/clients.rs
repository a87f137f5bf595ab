//! Requests to Queue and Inventory, and their responses. An error names the missing or malformed field of a response.

use std::sync::Arc;

use onsale_proto::{
    convert,
    inventory::v1::{
        CommitHoldRequest, HoldState, ReleaseHoldRequest, ReserveUnitsRequest, ReserveUnitsResponse,
    },
    queue::v1::{ValidateTurnRequest, ValidateTurnResponse},
    r#type::v1::{EventSummary as PbEventSummary, LineItem, Money as PbMoney, Unit as PbUnit, UnitSelection},
};
use onsale_types::{EventId, HoldId, Money, QuotaId, RequestId, SectorId, Timestamp};

use crate::domain::{EventSummary, Item, Reservation, ReserveUnits, Seat, Selection, Turn, Unit, Wanted};

pub(crate) fn validate_turn(turn: &Turn) -> ValidateTurnRequest {
    ValidateTurnRequest {
        event_id: turn.event_id.to_string(),
        customer_id: turn.customer_id.to_string(),
        fencing_number: turn.fencing_number,
    }
}

/// Reads the end of a valid turn.
pub(crate) fn turn_end(response: ValidateTurnResponse) -> Result<Timestamp, &'static str> {
    let time = response.expire_time.ok_or("expire_time")?;
    convert::time_from_pb(time).map_err(|_out_of_range| "expire_time")
}

/// Encodes `ReserveUnits`. Inventory omits the event from its response if `known_event_revision` is current.
pub(crate) fn reserve_units(
    command: &ReserveUnits<'_>,
    known_event_revision: Option<u64>,
) -> ReserveUnitsRequest {
    ReserveUnitsRequest {
        request_id: step_id(command.hold_id, "reserve"),
        hold_id: command.hold_id.to_string(),
        event_id: command.event_id.to_string(),
        customer_id: command.customer_id.to_string(),
        selections: command.selections.iter().map(selection).collect(),
        invitation_token: command.invitation.map(|token| token.expose().to_owned()).unwrap_or_default(),
        release_after: Some(convert::duration_to_pb(command.release_after)),
        known_event_revision: known_event_revision.unwrap_or_default(),
    }
}

pub(crate) fn commit_hold(hold_id: HoldId) -> CommitHoldRequest {
    CommitHoldRequest { request_id: step_id(hold_id, "commit"), hold_id: hold_id.to_string() }
}

pub(crate) fn release_hold(hold_id: HoldId) -> ReleaseHoldRequest {
    ReleaseHoldRequest { request_id: step_id(hold_id, "release"), hold_id: hold_id.to_string() }
}

/// Derives the request id of a step in the life of a hold, which every process and every retry shares.
fn step_id(hold_id: HoldId, step: &str) -> String {
    RequestId::derive(hold_id.as_uuid(), step).to_string()
}

fn selection(selection: &Selection) -> UnitSelection {
    let (count, units) = match &selection.wanted {
        Wanted::Count(count) => (*count, Vec::new()),
        Wanted::Units(units) => (0, units.clone()),
    };
    UnitSelection { sector_id: selection.sector_id.to_string(), count, units }
}

/// Reads the units that Inventory has reserved. Returns `None` if the hold is no longer held: a repeated request is answered with
/// the hold as it is now.
pub(crate) fn reservation(
    response: ReserveUnitsResponse,
    event: Arc<EventSummary>,
) -> Result<Option<Reservation>, &'static str> {
    let hold = response.hold.ok_or("hold")?;
    if hold.state() != HoldState::Held {
        return Ok(None);
    }
    let quota_id = match hold.quota_id.as_str() {
        "" => None,
        text => Some(QuotaId::parse(text).map_err(|_malformed| "quota_id")?),
    };
    let items = hold.items.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    if items.is_empty() {
        return Err("items");
    }
    if response.units_per_customer_max == 0 {
        return Err("units_per_customer_max");
    }
    Ok(Some(Reservation { event, items, quota_id, units_max: response.units_per_customer_max }))
}

fn item(item: LineItem) -> Result<Item, &'static str> {
    if item.units.is_empty() {
        return Err("units");
    }
    Ok(Item {
        sector_id: SectorId::parse(&item.sector_id).map_err(|_malformed| "sector_id")?,
        sector_name: item.sector_name,
        units: item.units.into_iter().map(unit).collect(),
        unit_price: price(item.unit_price.as_ref()).ok_or("unit_price")?,
        group_count: item.group_count,
    })
}

fn price(price: Option<&PbMoney>) -> Option<Money> {
    price.and_then(|price| convert::money_from_pb(price).ok())
}

fn unit(unit: PbUnit) -> Unit {
    let seat = unit.seat.map(|seat| Seat { row_label: seat.row_label, seat_label: seat.seat_label });
    Unit { number: unit.number, seat }
}

/// Reads the event of a reservation.
pub(crate) fn event_summary(event: PbEventSummary) -> Result<EventSummary, &'static str> {
    let start_time = event.start_time.ok_or("start_time")?;
    Ok(EventSummary {
        id: EventId::parse(&event.event_id).map_err(|_malformed| "event_id")?,
        name: event.name,
        venue_name: event.venue_name,
        venue_address: event.venue_address,
        time_zone: event.time_zone,
        start_time: convert::time_from_pb(start_time).map_err(|_out_of_range| "start_time")?,
    })
}
