//! Events in both directions: the events that Queue publishes, and those of Inventory and Claim that it consumes.

use onsale_proto::{
    claim::v1::ReleaseReason,
    convert::{time_from_pb, time_to_pb},
    events::v1::{
        ClaimReleased, EventActivated, EventCreated, EventEnded, InventoryAvailable, InventorySoldOut,
        MilestonePassed, OrderCompleted, QueueExpired, QueuePositionUpdate, QueueTurnGranted,
    },
    r#type::v1::EventSummary as SummaryMessage,
};
use onsale_storage::messaging::{HandlerError, NewEvent, OutgoingEvent};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId, ParseIdError, SectorId, Timestamp};

use super::responses;
use crate::domain::{
    entry::Entry,
    estimate::estimate,
    event::{InventoryUpdate, OutgoingQueueEvent},
    milestone::PassedMilestone,
    queue::{EventDetails, EventSummary, Queue, QueueAndLine, Sector},
    turn::{ClaimReleaseReason, Turn, TurnKey},
};

/// A malformed field of a consumed event. The event goes to the dead letters at once.
#[derive(Debug, thiserror::Error)]
#[error("the event's {field} is malformed")]
struct Malformed {
    field: &'static str,
}

impl OutgoingEvent for OutgoingQueueEvent<'_> {
    fn to_new_event(&self) -> NewEvent {
        match self {
            Self::TurnGranted { queue, entry, turn, checkout_url } => {
                turn_granted(queue, entry, turn, checkout_url)
            }
            Self::Expired { queue, entry } => expired(queue, entry),
            Self::PositionUpdate { current, milestone, passed } => {
                position_update(current, *milestone, passed)
            }
        }
    }
}

fn turn_granted(queue: &Queue, entry: &Entry, turn: &Turn, checkout_url: &str) -> NewEvent {
    let payload = QueueTurnGranted {
        event: Some(summary(queue)),
        entry_id: entry.entry_id.to_string(),
        customer_id: entry.customer_id.to_string(),
        fencing_number: turn.fencing_number,
        grant_time: Some(time_to_pb(turn.grant_time)),
        expire_time: Some(time_to_pb(turn.expire_time)),
        checkout_url: checkout_url.to_owned(),
    };
    NewEvent::new(entry.entry_id, &payload)
}

fn expired(queue: &Queue, entry: &Entry) -> NewEvent {
    let payload = QueueExpired {
        event: Some(summary(queue)),
        entry_id: entry.entry_id.to_string(),
        customer_id: entry.customer_id.to_string(),
        reason: entry.expire_reason.map(responses::expire_reason).unwrap_or_default().into(),
        fencing_number: entry.turn.map(|turn| turn.fencing_number).unwrap_or_default(),
        expire_time: entry.end_time.map(time_to_pb),
    };
    NewEvent::new(entry.entry_id, &payload)
}

fn position_update(current: &QueueAndLine, milestone: u64, passed: &[PassedMilestone]) -> NewEvent {
    let QueueAndLine { queue, line, .. } = current;
    let passed = passed.iter().map(|passed| {
        let estimate = estimate(passed.position, queue.state, &queue.policy, line.shown_service_time);
        MilestonePassed {
            entry_id: passed.entry_id.to_string(),
            customer_id: passed.customer_id.to_string(),
            position: passed.position,
            estimate: estimate.map(responses::estimate),
        }
    });
    let payload = QueuePositionUpdate { event: Some(summary(queue)), milestone, passed: passed.collect() };
    NewEvent::new(queue.event_id, &payload)
}

/// Reads `event.created`.
pub(crate) fn event_created(message: EventCreated) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event = message.event.ok_or_else(|| malformed("event"))?;
    let event_id = id(EventId::parse(&event.event_id), "event_id")?;
    let sectors = message.sectors.into_iter().map(|sector| {
        let sector_id = id(SectorId::parse(&sector.sector_id), "sector_id")?;
        Ok(Sector { sector_id, name: sector.name })
    });
    let details = EventDetails {
        revision: message.revision,
        organizer_id: id(OrganizerId::parse(&message.organizer_id), "organizer_id")?,
        sectors: sectors.collect::<Result<_, HandlerError>>()?,
        summary: EventSummary {
            name: event.name,
            venue_name: event.venue_name,
            venue_address: event.venue_address,
            time_zone: event.time_zone,
            start_time: optional_time(event.start_time, "start_time")?,
        },
    };
    Ok((event_id, InventoryUpdate::Created(details)))
}

/// Reads `event.activated`.
pub(crate) fn event_activated(message: &EventActivated) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    let on_sale_time = optional_time(message.on_sale_time, "on_sale_time")?;
    Ok((event_id, InventoryUpdate::Activated { revision: message.revision, on_sale_time }))
}

/// Reads `event.ended`.
pub(crate) fn event_ended(message: &EventEnded) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::Ended { revision: message.revision }))
}

/// Reads `inventory.sold_out`.
pub(crate) fn inventory_sold_out(
    message: &InventorySoldOut,
) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::SoldOut { revision: message.revision }))
}

/// Reads `inventory.available`.
pub(crate) fn inventory_available(
    message: &InventoryAvailable,
) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::Available { revision: message.revision }))
}

/// Reads the turn and the claim of `order.completed`. `None` for a purchase by invitation, which has no turn.
pub(crate) fn order_completed(message: &OrderCompleted) -> Result<Option<(TurnKey, ClaimId)>, HandlerError> {
    let claim_id = id(ClaimId::parse(&message.claim_id), "claim_id")?;
    let turn = turn_key(message.event.as_ref(), &message.customer_id, message.fencing_number)?;
    Ok(turn.map(|turn| (turn, claim_id)))
}

/// Reads the reason of `claim.released`.
pub(crate) fn release_reason(message: &ClaimReleased) -> ClaimReleaseReason {
    match message.reason() {
        ReleaseReason::Unspecified => ClaimReleaseReason::Unspecified,
        ReleaseReason::Customer => ClaimReleaseReason::Customer,
        ReleaseReason::Expired => ClaimReleaseReason::Expired,
        ReleaseReason::PaymentFailed => ClaimReleaseReason::PaymentFailed,
        ReleaseReason::Rejected => ClaimReleaseReason::Rejected,
    }
}

/// Reads the turn of `claim.released`. `None` for a claim by invitation, which has no turn.
pub(crate) fn released_turn(message: &ClaimReleased) -> Result<Option<TurnKey>, HandlerError> {
    turn_key(message.event.as_ref(), &message.customer_id, message.fencing_number)
}

fn turn_key(
    event: Option<&SummaryMessage>,
    customer_id: &str,
    fencing_number: u64,
) -> Result<Option<TurnKey>, HandlerError> {
    if fencing_number == 0 {
        return Ok(None);
    }
    let event = event.ok_or_else(|| malformed("event"))?;
    Ok(Some(TurnKey {
        event_id: id(EventId::parse(&event.event_id), "event_id")?,
        customer_id: id(CustomerId::parse(customer_id), "customer_id")?,
        fencing_number,
    }))
}

fn summary(queue: &Queue) -> SummaryMessage {
    let summary = &queue.summary;
    SummaryMessage {
        event_id: queue.event_id.to_string(),
        name: summary.name.clone(),
        venue_name: summary.venue_name.clone(),
        venue_address: summary.venue_address.clone(),
        time_zone: summary.time_zone.clone(),
        start_time: summary.start_time.map(time_to_pb),
    }
}

fn id<T>(parsed: Result<T, ParseIdError>, field: &'static str) -> Result<T, HandlerError> {
    parsed.map_err(|_error| malformed(field))
}

fn optional_time(
    time: Option<prost_types::Timestamp>,
    field: &'static str,
) -> Result<Option<Timestamp>, HandlerError> {
    time.map(|time| time_from_pb(time).map_err(|_error| malformed(field))).transpose()
}

fn malformed(field: &'static str) -> HandlerError {
    HandlerError::Poison(Box::new(Malformed { field }))
}
