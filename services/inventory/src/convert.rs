//! Between the contract and the domain: the only place that names both. Checks the form of fields, and tells all that is
//! wrong with a request at once.

mod draft;
mod event;
mod facts;
mod quota;
mod stock;

use std::{fmt::Display, time::Duration};

use onsale_kit::{
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{HoldId, Money, MoneyError, ParseIdError, RequestId, SectorId, Timestamp};
use prost_types::Timestamp as WireTime;

pub use self::{
    draft::{Change, CreateEvent, UpdateEvent, create_event, unknown_time_zone, update_event},
    event::{EventCommand, event, event_command, event_id, list_events, listed},
    facts::{available, event_activated, event_created, event_ended, generation_completed, sold_out},
    quota::{
        Accept, CreateQuota, Invite, accept_invitation, accepted, check_draft, check_invitees, create_quota,
        invitation, invite_to_quota, invited_selection, list_quotas, listed_quotas, quota, quota_invitation,
        return_time, unit_selection,
    },
    stock::{availability, availability_query, availability_response, change},
};
use crate::{
    app::ReserveUnits,
    domain::{
        event::{Event, Sector},
        hold::{Hold, HoldItem, HoldState, Selection, SelectionFault, UnitChoice},
        layout::Seat,
    },
    error::Error,
};

/// Most sectors one reservation may touch.
const SELECTIONS_MAX: usize = 10;
/// Most units of one selection, whatever the event allows.
const UNITS_MAX: u32 = 100;
/// How long a hold may be kept.
const RELEASE_AFTER_MIN: Duration = Duration::from_secs(1);
const RELEASE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a request to reserve units.
pub fn reserve_units(request: &pb::ReserveUnitsRequest) -> Result<ReserveUnits, InvalidFields> {
    let mut violations = Violations::new();
    check_request_id(&mut violations, &request.request_id);
    let hold_id = violations.check("hold_id", request.hold_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let customer_id = violations.check("customer_id", request.customer_id.parse());
    let selections = selections(&mut violations, &request.selections);
    let release_after = violations.require("release_after", request.release_after);
    let release_after = release_after.and_then(|span| violations.check("release_after", release_span(span)));
    violations.build(|| {
        Some(ReserveUnits {
            hold_id: hold_id?,
            event_id: event_id?,
            customer_id: customer_id?,
            selections,
            release_after: release_after?,
            invitation_token: (!request.invitation_token.is_empty())
                .then(|| Secret::new(&request.invitation_token)),
            known_event_revision: request.known_event_revision,
        })
    })
}

/// Reads a request to commit a hold.
pub fn commit_hold(request: &pb::CommitHoldRequest) -> Result<HoldId, InvalidFields> {
    ended_hold(&request.request_id, &request.hold_id)
}

/// Reads a request to release a hold.
pub fn release_hold(request: &pb::ReleaseHoldRequest) -> Result<HoldId, InvalidFields> {
    ended_hold(&request.request_id, &request.hold_id)
}

/// What a caller hears of a selection that does not fit the event.
#[must_use]
pub fn selection_fault(fault: SelectionFault) -> Error {
    let field = match fault {
        SelectionFault::UnknownSector(sector_id) => return Error::SectorNotFound { sector_id },
        SelectionFault::NotSeated { index } | SelectionFault::UnknownUnit { index, .. } => {
            format!("selections[{index}].units")
        }
        SelectionFault::TooMany { .. } => "selections".to_owned(),
    };
    invalid(field, fault).into()
}

/// The answer to a reservation in `event`, which has these `sectors`, for who knows `known_revision` of the event.
pub fn reserved(
    event: &Event,
    sectors: &[Sector],
    kept: &Hold,
    known_revision: u64,
) -> Result<pb::ReserveUnitsResponse, Error> {
    Ok(pb::ReserveUnitsResponse {
        hold: Some(hold(kept, sectors)?),
        event: (event.revision != known_revision).then(|| event::summary(event)),
        units_per_customer_max: event.details.units_per_customer_max,
        event_revision: event.revision,
    })
}

/// The answer to a commit of a hold in an event with these `sectors`.
pub fn committed(kept: &Hold, sectors: &[Sector]) -> Result<pb::CommitHoldResponse, Error> {
    Ok(pb::CommitHoldResponse { hold: Some(hold(kept, sectors)?) })
}

/// The answer to a release of a hold in an event with these `sectors`.
pub fn released(kept: &Hold, sectors: &[Sector]) -> Result<pb::ReleaseHoldResponse, Error> {
    Ok(pb::ReleaseHoldResponse { hold: Some(hold(kept, sectors)?) })
}

/// One field is wrong.
pub fn invalid(field: impl Display, message: impl Display) -> InvalidFields {
    let mut violations = Violations::new();
    violations.push(field, message.to_string());
    violations.finish().err().unwrap_or(InvalidFields { violations: Vec::new() })
}

fn ended_hold(request_id: &str, hold_id: &str) -> Result<HoldId, InvalidFields> {
    let mut violations = Violations::new();
    check_request_id(&mut violations, request_id);
    let hold_id = violations.check("hold_id", hold_id.parse());
    violations.build(|| hold_id)
}

/// The id names the request in logs; the hold says what was done of it.
fn check_request_id(violations: &mut Violations, request_id: &str) {
    let _id: Option<RequestId> = violations.check("request_id", request_id.parse());
}

fn selections(violations: &mut Violations, selections: &[types::UnitSelection]) -> Vec<Selection> {
    if selections.is_empty() || selections.len() > SELECTIONS_MAX {
        violations.push("selections", format!("must be 1 to {SELECTIONS_MAX}"));
        return Vec::new();
    }
    let mut read: Vec<Selection> = Vec::with_capacity(selections.len());
    for (index, selection) in selections.iter().enumerate() {
        let field = format_args!("selections[{index}].sector_id");
        let sector_id = violations.check(field, selection.sector_id.parse());
        let wanted = violations.check(format_args!("selections[{index}]"), read_choice(selection, UNITS_MAX));
        let (Some(sector_id), Some(wanted)) = (sector_id, wanted) else { continue };
        if read.iter().any(|other| other.sector_id == sector_id) {
            violations.push(field, "names a sector twice");
        }
        read.push(Selection { sector_id, choice: wanted });
    }
    read
}

/// How many units, or which, at most `units_max`.
fn read_choice(selection: &types::UnitSelection, units_max: u32) -> Result<UnitChoice, String> {
    match (selection.count, &selection.units[..]) {
        (0, []) => Err("needs count or units".to_owned()),
        (1.., [_, ..]) => Err("has both count and units".to_owned()),
        (count, []) if count <= units_max => Ok(UnitChoice::Count(count)),
        (0, units) if u32::try_from(units.len()).is_ok_and(|count| count <= units_max) => {
            let mut sorted = units.to_vec();
            sorted.sort_unstable();
            let is_distinct = sorted.is_sorted_by(|before, after| before < after);
            if is_distinct { Ok(UnitChoice::Units(sorted)) } else { Err("names a unit twice".to_owned()) }
        }
        (_, _) => Err(format!("asks for more than {units_max} units")),
    }
}

fn release_span(span: prost_types::Duration) -> Result<Duration, &'static str> {
    let span = Duration::try_from(span).ok();
    span.filter(|span| (RELEASE_AFTER_MIN..=RELEASE_AFTER_MAX).contains(span)).ok_or("must be 1 s to 24 h")
}

fn hold(hold: &Hold, sectors: &[Sector]) -> Result<pb::Hold, Error> {
    Ok(pb::Hold {
        hold_id: hold.id.to_string(),
        event_id: if hold.is_tombstone() { String::new() } else { hold.event_id.to_string() },
        customer_id: if hold.is_tombstone() { String::new() } else { hold.customer_id.to_string() },
        state: hold_state(hold.state).into(),
        items: hold.items.iter().map(|item| line_item(item, sectors)).collect::<Result<_, _>>()?,
        quota_id: hold.invited.map(|invited| invited.quota_id.to_string()).unwrap_or_default(),
        create_time: Some(wire_time(hold.create_time)),
        expire_time: Some(wire_time(hold.expire_time)),
    })
}

fn hold_state(state: HoldState) -> pb::HoldState {
    match state {
        HoldState::Held => pb::HoldState::Held,
        HoldState::Committed => pb::HoldState::Committed,
        HoldState::Released => pb::HoldState::Released,
    }
}

fn line_item(item: &HoldItem, sectors: &[Sector]) -> Result<types::LineItem, Error> {
    let sector = sectors.iter().find(|sector| sector.id == item.sector_id);
    let sector = sector.ok_or(Error::Stored { what: "sector of a hold", source: None })?;
    let layout = sector.layout.as_ref();
    let seat = |unit| {
        let Seat { row_label, seat_label } = layout?.seat(unit)?;
        Some(types::Seat { row_label, seat_label })
    };
    let count = i64::try_from(item.units.len()).map_err(|_too_many| MoneyError::Overflow)?;
    Ok(types::LineItem {
        sector_id: sector.id.to_string(),
        sector_name: sector.name.clone(),
        units: item.units.iter().map(|unit| types::Unit { number: *unit, seat: seat(*unit) }).collect(),
        unit_price: Some(money(sector.price)),
        amount: Some(money(sector.price.checked_mul(count)?)),
        group_count: layout.map_or(0, |layout| layout.group_count(&item.units)),
    })
}

fn money(money: Money) -> types::Money {
    types::Money { amount_minor: money.amount_minor(), currency_code: money.currency().to_string() }
}

fn wire_time(time: Timestamp) -> WireTime {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    WireTime { seconds, nanos }
}

fn time(wire: WireTime) -> Result<Timestamp, &'static str> {
    Timestamp::from_seconds_and_nanos(wire.seconds, wire.nanos).ok_or("is no time of the years 1 to 9999")
}

/// Ids of sectors that a caller asks about; none means all.
fn sector_ids(violations: &mut Violations, texts: &[String], ids_max: usize) -> Vec<SectorId> {
    if texts.len() > ids_max {
        violations.push("sector_ids", format!("must be at most {ids_max}"));
        return Vec::new();
    }
    let parse = |(index, text): (usize, &String)| {
        let parsed: Result<SectorId, ParseIdError> = text.parse();
        violations.check(format_args!("sector_ids[{index}]"), parsed)
    };
    texts.iter().enumerate().filter_map(parse).collect()
}
