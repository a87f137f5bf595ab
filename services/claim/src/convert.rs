//! Between the contracts and the domain: the only place that names both.

mod clients;
mod events;
mod requests;
mod responses;

pub use clients::{event, reservation, selection_to_pb};
pub use events::{claim_released, order_completed};
pub use requests::{
    ListQuery, confirm_claim, create_claim, extend_claim, get_claim, list_claims, payment_confirmed,
    release_claim, turn_ended,
};
pub use responses::{claim_to_pb, claims_page};

use std::time::Duration;

use onsale_proto::r#type::v1::{self as common, EventSummary as PbEventSummary};
use onsale_types::{Currency, Money, Timestamp};

use crate::domain::EventSummary;

/// A point in time from the wire; none when it is unset or out of range.
#[must_use]
pub fn timestamp(time: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    time.and_then(|time| Timestamp::from_seconds_and_nanos(time.seconds, time.nanos))
}

/// A point in time for the wire.
#[must_use]
pub fn timestamp_to_pb(time: Timestamp) -> Option<prost_types::Timestamp> {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    Some(prost_types::Timestamp { seconds, nanos })
}

/// A span for the wire.
#[must_use]
pub fn duration(span: Duration) -> Option<prost_types::Duration> {
    span.try_into().ok()
}

fn money(money: Option<common::Money>) -> Result<Money, &'static str> {
    let money = money.ok_or("is required")?;
    if money.amount_minor < 0 {
        return Err("must not be negative");
    }
    let currency = Currency::parse(&money.currency_code).map_err(|_malformed| "has no currency code")?;
    Ok(Money::new(money.amount_minor, currency))
}

fn money_to_pb(money: Money) -> Option<common::Money> {
    let currency_code = money.currency().code().to_owned();
    Some(common::Money { amount_minor: money.amount_minor(), currency_code })
}

fn event_to_pb(event: &EventSummary) -> Option<PbEventSummary> {
    Some(PbEventSummary {
        event_id: event.id.to_string(),
        name: event.name.clone(),
        venue_name: event.venue_name.clone(),
        venue_address: event.venue_address.clone(),
        time_zone: event.time_zone.clone(),
        start_time: timestamp_to_pb(event.start_time),
    })
}
