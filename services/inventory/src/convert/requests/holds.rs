//! Requests to reserve units, and to commit or release a hold.

use std::time::Duration;

use onsale_kit::{
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{HoldId, RequestId};

use crate::domain::{
    commands::ReserveUnits,
    hold::{Selection, UnitChoice},
};

/// Most sectors of one reservation.
const SELECTIONS_MAX: usize = 10;
/// Most units of one selection; the event may allow fewer.
const UNITS_MAX: u32 = 100;
/// Bounds of the time for which a hold is kept.
const RELEASE_AFTER_MIN: Duration = Duration::from_secs(1);
const RELEASE_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn reserve_units(request: &pb::ReserveUnitsRequest) -> Result<ReserveUnits, InvalidFields> {
    let mut violations = Violations::new();
    check_request_id(&mut violations, &request.request_id);
    let hold_id = violations.check("hold_id", request.hold_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let customer_id = violations.check("customer_id", request.customer_id.parse());
    let selections = selections(&mut violations, &request.selections);
    let release_after = violations.require_duration("release_after", request.release_after);
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
        })
    })
}

pub(crate) fn commit_hold(request: &pb::CommitHoldRequest) -> Result<HoldId, InvalidFields> {
    hold_to_end(&request.request_id, &request.hold_id)
}

pub(crate) fn release_hold(request: &pb::ReleaseHoldRequest) -> Result<HoldId, InvalidFields> {
    hold_to_end(&request.request_id, &request.hold_id)
}

fn hold_to_end(request_id: &str, hold_id: &str) -> Result<HoldId, InvalidFields> {
    let mut violations = Violations::new();
    check_request_id(&mut violations, request_id);
    let hold_id = violations.check("hold_id", hold_id.parse());
    violations.build(|| hold_id)
}

/// Checks the request id, which is used in logs only: these methods are idempotent by the hold id.
fn check_request_id(violations: &mut Violations, request_id: &str) {
    let _id: Option<RequestId> = violations.check("request_id", request_id.parse());
}

fn selections(violations: &mut Violations, selections: &[types::UnitSelection]) -> Vec<Selection> {
    if selections.is_empty() || selections.len() > SELECTIONS_MAX {
        violations.push("selections", format!("must have 1 to {SELECTIONS_MAX} entries"));
        return Vec::new();
    }
    let mut read: Vec<Selection> = Vec::with_capacity(selections.len());
    for (index, selection) in selections.iter().enumerate() {
        let field = format_args!("selections[{index}].sector_id");
        let sector_id = violations.check(field, selection.sector_id.parse());
        let choice = violations.check(format_args!("selections[{index}]"), unit_choice(selection, UNITS_MAX));
        let (Some(sector_id), Some(choice)) = (sector_id, choice) else { continue };
        if read.iter().any(|other| other.sector_id == sector_id) {
            violations.push(field, "names a sector twice");
        }
        read.push(Selection { sector_id, choice });
    }
    read
}

/// Reads a count or a set of at most `units_max` units.
pub(super) fn unit_choice(selection: &types::UnitSelection, units_max: u32) -> Result<UnitChoice, String> {
    match (selection.count, &selection.units[..]) {
        (0, []) => Err("must have count or units".to_owned()),
        (1.., [_, ..]) => Err("must not have both count and units".to_owned()),
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

fn release_span(span: Duration) -> Result<Duration, &'static str> {
    Some(span)
        .filter(|span| (RELEASE_AFTER_MIN..=RELEASE_AFTER_MAX).contains(span))
        .ok_or("must be 1 s to 24 h")
}
