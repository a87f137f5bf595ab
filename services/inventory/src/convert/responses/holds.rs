//! Holds as Claim sees them.

use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    inventory::v1 as pb,
    r#type::v1 as types,
};
use onsale_types::MoneyError;

use super::summary;
use crate::{
    domain::{
        event::Offer,
        hold::{Hold, HoldItem, HoldState},
        layout::Seat,
        results::{HoldAndOffer, Reservation},
    },
    error::Error,
};

/// Leaves out the event for a caller that knows it at its current revision.
pub(crate) fn reserve_units(
    reservation: &Reservation,
    known_event_revision: u64,
) -> Result<pb::ReserveUnitsResponse, Error> {
    let Reservation { event, offer, hold: reserved } = reservation;
    Ok(pb::ReserveUnitsResponse {
        hold: Some(hold(reserved, offer)?),
        event: (event.revision != known_event_revision).then(|| summary(event)),
        units_per_customer_max: event.details.units_per_customer_max,
        event_revision: event.revision,
    })
}

pub(crate) fn commit_hold(committed: &HoldAndOffer) -> Result<pb::CommitHoldResponse, Error> {
    Ok(pb::CommitHoldResponse { hold: Some(hold(&committed.hold, &committed.offer)?) })
}

pub(crate) fn release_hold(released: &HoldAndOffer) -> Result<pb::ReleaseHoldResponse, Error> {
    Ok(pb::ReleaseHoldResponse { hold: Some(hold(&released.hold, &released.offer)?) })
}

fn hold(hold: &Hold, offer: &Offer) -> Result<pb::Hold, Error> {
    let state = match hold.state {
        HoldState::Held => pb::HoldState::Held,
        HoldState::Committed => pb::HoldState::Committed,
        HoldState::Released => pb::HoldState::Released,
    };
    Ok(pb::Hold {
        hold_id: hold.id.to_string(),
        event_id: if hold.is_tombstone() { String::new() } else { hold.event_id.to_string() },
        customer_id: if hold.is_tombstone() { String::new() } else { hold.customer_id.to_string() },
        state: state.into(),
        items: hold.items.iter().map(|item| line_item(item, offer)).collect::<Result<_, _>>()?,
        quota_id: hold.invited.map(|invited| invited.quota_id.to_string()).unwrap_or_default(),
        create_time: Some(time_to_pb(hold.create_time)),
        expire_time: Some(time_to_pb(hold.expire_time)),
    })
}

fn line_item(item: &HoldItem, offer: &Offer) -> Result<types::LineItem, Error> {
    let sector = offer.sector(item.sector_id).ok_or(Error::Inconsistent { what: "sector of a hold" })?;
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
        unit_price: Some(money_to_pb(sector.price)),
        amount: Some(money_to_pb(sector.price.checked_mul(count)?)),
        group_count: layout.map_or(0, |layout| layout.group_count(&item.units)),
    })
}
