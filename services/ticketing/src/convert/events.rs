//! Events of other services on their way in, and our own on their way out.

use std::collections::BTreeSet;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    events::v1::{
        CreatedSector, EventActivated, EventCreated, EventEnded, GeneratedTicket, GenerationCompleted,
        OrderCompleted, TicketGenerated,
    },
    r#type::v1 as shared,
};
use onsale_types::{ClaimId, CustomerId, EventId, GenerationId, OrganizerId, SectorId, Timestamp};

use super::{ordered_units, summary_to_pb, text, timestamp, timestamp_to_pb, unit_to_pb};
use crate::{
    domain::{
        event::{EventPlan, EventSummary, SeatRow, SectorPlan},
        generation::OpenJob,
        order::Order,
        ticket::Ticket,
    },
    error::Error,
};

/// What a created or changed draft says about its tickets.
pub fn event_plan(event: EventCreated) -> Result<EventPlan, InvalidFields> {
    let mut violations = Violations::new();
    let summary = violations.require("event", event.event);
    let summary = summary.and_then(|event| event_summary(&mut violations, event));
    let organizer_id = violations.check("organizer_id", OrganizerId::parse(&event.organizer_id));
    let revision = violations.check("revision", i64::try_from(event.revision));
    let mut sectors = Vec::with_capacity(event.sectors.len());
    for (index, sector) in event.sectors.into_iter().enumerate() {
        sectors.extend(sector_plan(&mut violations, index, sector));
    }
    let distinct: BTreeSet<SectorId> = sectors.iter().map(|sector| sector.sector_id).collect();
    if sectors.is_empty() || distinct.len() < sectors.len() {
        violations.push("sectors", "must be one or more, and distinct");
    }
    violations.build(|| {
        Some(EventPlan { event: summary?, organizer_id: organizer_id?, revision: revision?, sectors })
    })
}

fn event_summary(violations: &mut Violations, event: shared::EventSummary) -> Option<EventSummary> {
    let event_id = violations.check("event.event_id", EventId::parse(&event.event_id));
    let start_time = violations.require("event.start_time", event.start_time);
    let start_time = start_time.and_then(|time| violations.check("event.start_time", timestamp(time)));
    Some(EventSummary {
        event_id: event_id?,
        name: event.name,
        venue_name: event.venue_name,
        venue_address: text(event.venue_address),
        time_zone: event.time_zone,
        start_time: start_time?,
    })
}

fn sector_plan(violations: &mut Violations, index: usize, sector: CreatedSector) -> Option<SectorPlan> {
    let field = |name: &str| format!("sectors[{index}].{name}");
    let sector_id = violations.check(field("sector_id"), SectorId::parse(&sector.sector_id));
    if sector.capacity == 0 || i32::try_from(sector.capacity).is_err() {
        violations.push(field("capacity"), "must be at least 1 and below 2^31");
    }
    let rows = sector.layout.map_or(Ok(Vec::new()), |layout| seat_rows(layout, sector.capacity));
    let rows = violations.check(field("layout"), rows);
    Some(SectorPlan { sector_id: sector_id?, name: sector.name, capacity: sector.capacity, rows: rows? })
}

/// The rows with the units they begin with; together they must have as many seats as the sector has units.
fn seat_rows(layout: shared::SeatLayout, capacity: u32) -> Result<Vec<SeatRow>, &'static str> {
    let mut first_unit: u32 = 1;
    let mut rows = Vec::with_capacity(layout.rows.len());
    for row in layout.rows {
        if row.seat_count == 0 {
            return Err("has a row without seats");
        }
        let next = first_unit.checked_add(row.seat_count).ok_or("has too many seats")?;
        rows.push(SeatRow { first_unit, label: row.label, seat_labels: row.seat_labels });
        first_unit = next;
    }
    if first_unit.checked_sub(1) == Some(capacity) {
        Ok(rows)
    } else {
        Err("must have a seat for every unit")
    }
}

/// Which event is public, and since when.
pub fn activation(event: EventActivated) -> Result<(EventId, Timestamp), InvalidFields> {
    phase(&event.event_id, "activate_time", event.activate_time)
}

/// Which event's sale is over, and since when.
pub fn end(event: EventEnded) -> Result<(EventId, Timestamp), InvalidFields> {
    phase(&event.event_id, "end_time", event.end_time)
}

fn phase(
    event_id: &str,
    field: &'static str,
    time: Option<prost_types::Timestamp>,
) -> Result<(EventId, Timestamp), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let time = violations.require(field, time).and_then(|time| violations.check(field, timestamp(time)));
    violations.build(|| Some((event_id?, time?)))
}

/// What was bought, and by whom. It is paid: only what its tickets cannot be found without may be wrong with it.
pub fn completed_order(event: OrderCompleted) -> Result<Order, InvalidFields> {
    let mut violations = Violations::new();
    let claim_id = violations.check("claim_id", ClaimId::parse(&event.claim_id));
    let event_id = violations.require("event", event.event);
    let event_id =
        event_id.and_then(|event| violations.check("event.event_id", EventId::parse(&event.event_id)));
    let customer_id = violations.check("customer_id", CustomerId::parse(&event.customer_id));
    let items = event
        .items
        .into_iter()
        .map(|item| (item.sector_id, item.units.iter().map(|unit| unit.number).collect::<Vec<_>>()));
    let units = ordered_units(&mut violations, items);
    violations.build(|| {
        Some(Order {
            claim_id: claim_id?,
            event_id: event_id?,
            customer_id: customer_id?,
            buyer_email: event.buyer_email,
            buyer_locale: text(event.buyer_locale),
            units,
        })
    })
}

/// Tells that an order's tickets were issued.
pub fn ticket_generated(order: &Order, tickets: &[Ticket]) -> Result<TicketGenerated, Error> {
    let first = tickets.first().ok_or(Error::Corrupt { what: "an issued order has no tickets" })?;
    let generated = |ticket: &Ticket| GeneratedTicket {
        ticket_id: ticket.ticket_id.to_string(),
        sector_id: ticket.sector_id.to_string(),
        sector_name: ticket.sector_name.clone(),
        unit: Some(unit_to_pb(ticket.unit, ticket.seat.as_ref())),
        code: ticket.code.expose().to_owned(),
    };
    Ok(TicketGenerated {
        claim_id: order.claim_id.to_string(),
        event: Some(summary_to_pb(&first.event)),
        customer_id: order.customer_id.to_string(),
        recipient_email: order.buyer_email.clone(),
        recipient_locale: order.buyer_locale.clone().unwrap_or_default(),
        tickets: tickets.iter().map(generated).collect(),
        issue_time: Some(timestamp_to_pb(first.issue_time)),
    })
}

/// Tells that all tickets of an event exist.
#[must_use]
pub fn generation_completed(id: GenerationId, job: &OpenJob, time: Timestamp) -> GenerationCompleted {
    GenerationCompleted {
        generation_id: id.to_string(),
        event: Some(summary_to_pb(&job.event)),
        organizer_id: job.organizer_id.to_string(),
        revision: job.revision.unsigned_abs(),
        ticket_count: job.ticket_count,
        complete_time: Some(timestamp_to_pb(time)),
    }
}
