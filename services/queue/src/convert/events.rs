//! Events: what Queue tells the mesh, and what it hears from it.

use onsale_proto::{
    events::v1::{
        ClaimReleased, EventActivated, EventCreated, EventEnded, InventoryAvailable, InventorySoldOut,
        MilestonePassed, OrderCompleted, QueueExpired, QueuePositionUpdate, QueueTurnGranted,
    },
    r#type::v1::EventSummary as SummaryMessage,
};
use onsale_storage::messaging::{HandlerError, NewEvent};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId, ParseIdError, SectorId, Timestamp};

use super::{
    read_timestamp,
    responses::{self as answers, expire_reason},
    timestamp,
};
use crate::{
    app::apply_inventory_update::InventoryUpdate,
    domain::{
        entry::{Entry, TurnKey},
        estimate::estimate,
        queue::{EventDetails, EventSummary, Queue, Sector},
    },
    store::{milestones::PassedMilestone, queues::QueueAndLine},
};

/// A field of an event that makes no sense: no try will help.
#[derive(Debug, thiserror::Error)]
#[error("the event's {field} is malformed")]
struct Malformed {
    field: &'static str,
}

/// A turn was granted. None for an entry without one.
pub(crate) fn granted(queue: &Queue, entry: &Entry, checkout_url: &str) -> Option<NewEvent> {
    let turn = entry.turn?;
    let payload = QueueTurnGranted {
        event: Some(summary(queue)),
        entry_id: entry.entry_id.to_string(),
        customer_id: entry.customer_id.to_string(),
        fencing_number: turn.fencing_number,
        grant_time: Some(timestamp(turn.grant_time)),
        expire_time: Some(timestamp(turn.expire_time)),
        checkout_url: checkout_url.to_owned(),
    };
    Some(NewEvent::new(entry.entry_id, &payload))
}

/// An entry ended without a purchase.
pub(crate) fn expired(queue: &Queue, entry: &Entry) -> NewEvent {
    let payload = QueueExpired {
        event: Some(summary(queue)),
        entry_id: entry.entry_id.to_string(),
        customer_id: entry.customer_id.to_string(),
        reason: entry.expire_reason.map(expire_reason).unwrap_or_default().into(),
        fencing_number: entry.turn.map(|turn| turn.fencing_number).unwrap_or_default(),
        expire_time: entry.end_time.map(timestamp),
    };
    NewEvent::new(entry.entry_id, &payload)
}

/// Customers without an open stream passed a milestone.
pub(crate) fn position_update(
    current: &QueueAndLine,
    milestone: u64,
    passed: &[PassedMilestone],
) -> NewEvent {
    let QueueAndLine { queue, line, .. } = current;
    let passed = passed.iter().map(|passed| {
        let range = estimate(passed.position, queue.state, &queue.policy, line.shown_service_time);
        MilestonePassed {
            entry_id: passed.entry_id.to_string(),
            customer_id: passed.customer_id.to_string(),
            position: passed.position,
            estimate: range.map(answers::estimate),
        }
    });
    let payload = QueuePositionUpdate { event: Some(summary(queue)), milestone, passed: passed.collect() };
    NewEvent::new(queue.event_id, &payload)
}

/// What Inventory reports when it created an event.
pub(crate) fn created(message: EventCreated) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event = message.event.ok_or_else(|| malformed("event"))?;
    let event_id = id(EventId::parse(&event.event_id), "event_id")?;
    let sectors = message.sectors.into_iter().map(|sector| {
        let sector_id = id(SectorId::parse(&sector.sector_id), "sector_id")?;
        Ok(Sector { sector_id, name: sector.name })
    });
    let created = EventDetails {
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
    Ok((event_id, InventoryUpdate::Created(created)))
}

/// What it reports when it made one public.
pub(crate) fn activated(message: &EventActivated) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    let on_sale_time = optional_time(message.on_sale_time, "on_sale_time")?;
    Ok((event_id, InventoryUpdate::Activated { revision: message.revision, on_sale_time }))
}

/// What it reports when one ended.
pub(crate) fn ended(message: &EventEnded) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::Ended { revision: message.revision }))
}

/// What it reports when nothing is left.
pub(crate) fn sold_out(message: &InventorySoldOut) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::SoldOut { revision: message.revision }))
}

/// What it reports when units came back.
pub(crate) fn available(message: &InventoryAvailable) -> Result<(EventId, InventoryUpdate), HandlerError> {
    let event_id = id(EventId::parse(&message.event_id), "event_id")?;
    Ok((event_id, InventoryUpdate::Available { revision: message.revision }))
}

/// The turn of a completed order and its claim; none when it was bought by invitation.
pub(crate) fn completed(message: &OrderCompleted) -> Result<Option<(TurnKey, ClaimId)>, HandlerError> {
    let claim_id = id(ClaimId::parse(&message.claim_id), "claim_id")?;
    let turn = turn_name(message.event.as_ref(), &message.customer_id, message.fencing_number)?;
    Ok(turn.map(|turn| (turn, claim_id)))
}

/// The turn that a released claim ends; none when it goes on, or there was none.
pub(crate) fn lost(message: &ClaimReleased) -> Result<Option<TurnKey>, HandlerError> {
    use onsale_proto::claim::v1::ReleaseReason;
    match message.reason() {
        ReleaseReason::Expired | ReleaseReason::Rejected => {
            turn_name(message.event.as_ref(), &message.customer_id, message.fencing_number)
        }
        ReleaseReason::Unspecified | ReleaseReason::Customer | ReleaseReason::PaymentFailed => Ok(None),
    }
}

fn turn_name(
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
        start_time: summary.start_time.map(timestamp),
    }
}

fn id<T>(parsed: Result<T, ParseIdError>, field: &'static str) -> Result<T, HandlerError> {
    parsed.map_err(|_error| malformed(field))
}

fn optional_time(
    time: Option<prost_types::Timestamp>,
    field: &'static str,
) -> Result<Option<Timestamp>, HandlerError> {
    time.map(|time| read_timestamp(time).ok_or_else(|| malformed(field))).transpose()
}

fn malformed(field: &'static str) -> HandlerError {
    HandlerError::Poison(Box::new(Malformed { field }))
}
