//! Events of other services on their way in, and the events that Ticketing publishes.

use std::collections::BTreeSet;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    convert::time_to_pb,
    events::v1::{
        CreatedSector, EventActivated, EventCreated, EventEnded, GeneratedTicket, GenerationCompleted,
        OrderCompleted, TicketGenerated,
    },
    r#type::v1 as shared,
};
use onsale_storage::messaging::{NewEvent, OutgoingEvent};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId, SectorId, Timestamp};

use super::{non_empty, ordered_units, summary_to_pb, unit_to_pb};
use crate::domain::{
    event::{EventPlan, EventSummary, SeatRow, SectorPlan},
    generation::OpenGeneration,
    order::Order,
    ticket::Ticket,
    ticketing_event::TicketingEvent,
};

pub(crate) fn event_created(event: EventCreated) -> Result<EventPlan, InvalidFields> {
    let mut violations = Violations::new();
    let summary = violations.require("event", event.event);
    let summary = summary.and_then(|event| event_summary(&mut violations, event));
    let organizer_id = violations.check("organizer_id", OrganizerId::parse(&event.organizer_id));
    // Postgres stores revisions as bigint.
    let revision = violations.check("revision", i64::try_from(event.revision).map(|_fits| event.revision));
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
    let start_time = violations.require_time("event.start_time", event.start_time);
    Some(EventSummary {
        event_id: event_id?,
        name: event.name,
        venue_name: event.venue_name,
        venue_address: non_empty(event.venue_address),
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

/// Reads the rows and numbers their units from 1. Together they must have as many seats as the sector has units.
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

pub(crate) fn event_activated(event: &EventActivated) -> Result<(EventId, Timestamp), InvalidFields> {
    event_and_time(&event.event_id, "activate_time", event.activate_time)
}

pub(crate) fn event_ended(event: &EventEnded) -> Result<(EventId, Timestamp), InvalidFields> {
    event_and_time(&event.event_id, "end_time", event.end_time)
}

fn event_and_time(
    event_id: &str,
    field: &'static str,
    time: Option<prost_types::Timestamp>,
) -> Result<(EventId, Timestamp), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let time = violations.require_time(field, time);
    violations.build(|| Some((event_id?, time?)))
}

/// Reads a paid order. Because it is paid, only fields without which its tickets cannot be found or issued are checked.
pub(crate) fn order_completed(event: OrderCompleted) -> Result<Order, InvalidFields> {
    let mut violations = Violations::new();
    let claim_id = violations.check("claim_id", ClaimId::parse(&event.claim_id));
    let event_id = violations.require("event", event.event);
    let event_id =
        event_id.and_then(|event| violations.check("event.event_id", EventId::parse(&event.event_id)));
    let customer_id = violations.check("customer_id", CustomerId::parse(&event.customer_id));
    let items = event.items.iter().map(|item| {
        let units: Vec<u32> = item.units.iter().map(|unit| unit.number).collect();
        (item.sector_id.as_str(), units)
    });
    let units = ordered_units(&mut violations, items);
    violations.build(|| {
        Some(Order {
            claim_id: claim_id?,
            event_id: event_id?,
            customer_id: customer_id?,
            buyer_email: event.buyer_email,
            buyer_locale: non_empty(event.buyer_locale),
            units,
        })
    })
}

impl OutgoingEvent for TicketingEvent<'_> {
    fn to_new_event(&self) -> NewEvent {
        match *self {
            Self::TicketsIssued { order, tickets, first } => {
                NewEvent::new(order.claim_id, &ticket_generated(order, tickets, first))
            }
            Self::GenerationCompleted { generation, complete_time } => {
                let payload = generation_completed(generation, complete_time);
                NewEvent::new(generation.event.event_id, &payload)
            }
        }
    }
}

fn ticket_generated(order: &Order, tickets: &[Ticket], first: &Ticket) -> TicketGenerated {
    let generated = |ticket: &Ticket| GeneratedTicket {
        ticket_id: ticket.ticket_id.to_string(),
        sector_id: ticket.sector_id.to_string(),
        sector_name: ticket.sector_name.clone(),
        unit: Some(unit_to_pb(ticket.unit, ticket.seat.as_ref())),
        code: ticket.code.expose().to_owned(),
    };
    TicketGenerated {
        claim_id: order.claim_id.to_string(),
        event: Some(summary_to_pb(&first.event)),
        customer_id: order.customer_id.to_string(),
        recipient_email: order.buyer_email.clone(),
        recipient_locale: order.buyer_locale.clone().unwrap_or_default(),
        tickets: tickets.iter().map(generated).collect(),
        issue_time: Some(time_to_pb(first.issue_time)),
    }
}

fn generation_completed(generation: &OpenGeneration, complete_time: Timestamp) -> GenerationCompleted {
    GenerationCompleted {
        generation_id: generation.generation_id.to_string(),
        event: Some(summary_to_pb(&generation.event)),
        organizer_id: generation.organizer_id.to_string(),
        revision: generation.revision,
        ticket_count: generation.ticket_count,
        complete_time: Some(time_to_pb(complete_time)),
    }
}
