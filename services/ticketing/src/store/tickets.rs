//! Tickets: read by their holders, issued, voided and checked in.

use onsale_storage::postgres::{
    self, Parameters, Postgres, Row, Transaction,
    row::{RowExt as _, SqlTime},
};
use onsale_types::{ClaimId, CustomerId, Named as _, TicketId, Timestamp};
use uuid::Uuid;

use super::{events, unit_arrays};
use crate::{
    domain::{
        check_in::CheckIn,
        code::Code,
        event::Seat,
        order::Order,
        ticket::{ListTickets, Ticket, TicketState},
    },
    error::Error,
};

/// Builds a statement that selects issued tickets with their sectors and events.
macro_rules! issued_tickets {
    ($rest:literal) => {
        concat!(
            "SELECT ticket_id, sector_id, sector.name AS sector_name, unit, row_label, seat_label, state, claim_id,
                code, issue_time, check_in_time, check_in_gate, void_time, event_id,
                event.name AS event_name, venue_name, venue_address, time_zone, start_time
            FROM ticket JOIN sector USING (sector_id) JOIN event USING (event_id)
            WHERE state <> 'GENERATED' AND ",
            $rest
        )
    };
}

const GET: &str = issued_tickets!("ticket_id = $1 AND customer_id = $2");
const LIST: &str = issued_tickets!(
    "customer_id = $1
        AND ($2::uuid IS NULL OR event_id = $2) AND ($3::uuid IS NULL OR claim_id = $3)
        AND (cardinality($4::text[]) = 0 OR state = ANY ($4))
        AND ($5::timestamptz IS NULL OR (start_time, ticket_id) < ($5, $6::uuid))
    ORDER BY start_time DESC, ticket_id DESC LIMIT $7"
);
const LIST_OF_CLAIM: &str = issued_tickets!("claim_id = $1 ORDER BY sector.place, unit");
const LOCK_ISSUED: &str = issued_tickets!("ticket_id = $1 FOR UPDATE OF ticket");
// Locks in the order of the units: two orders for the same units wait for each other and cannot deadlock.
const LOCK_ORDERED: &str = "SELECT ticket_id, state, seat_row.label AS row_label,
        coalesce(seat_labels[unit - first_unit + 1], (unit - first_unit + 1)::text) AS seat_label
    FROM unnest($2::uuid[], $3::integer[]) AS ordered (sector_id, unit)
    JOIN ticket USING (sector_id, unit)
    JOIN sector USING (sector_id)
    LEFT JOIN LATERAL (
        SELECT first_unit, label, seat_labels FROM seat_row
        WHERE seat_row.sector_id = ticket.sector_id AND first_unit <= ticket.unit
        ORDER BY first_unit DESC LIMIT 1) AS seat_row ON true
    WHERE event_id = $1
    ORDER BY sector_id, unit FOR UPDATE OF ticket";
const ISSUE: &str = "UPDATE ticket SET state = 'ISSUED', claim_id = $1, customer_id = $2, issue_time = now(),
        code = new.code, row_label = new.row_label, seat_label = new.seat_label
    FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[]) AS new (ticket_id, code, row_label, seat_label)
    WHERE ticket.ticket_id = new.ticket_id AND state = 'GENERATED'";
const LOCK_STATES: &str = "SELECT state FROM ticket WHERE claim_id = $1 ORDER BY sector_id, unit FOR UPDATE";
const VOID: &str =
    "UPDATE ticket SET state = 'VOID', void_time = now() WHERE claim_id = $1 AND state = 'ISSUED'";
const CHECK_IN: &str = "UPDATE ticket
    SET state = 'CHECKED_IN', check_in_time = coalesce($2, now()), check_in_gate = $3
    WHERE ticket_id = $1 AND state = 'ISSUED' RETURNING check_in_time";

/// The ticket of an ordered unit, with its row locked.
#[derive(Clone, Debug)]
pub(crate) struct OrderedTicket {
    pub(crate) ticket_id: TicketId,
    pub(crate) state: TicketState,
    /// `None` in general admission.
    pub(crate) seat: Option<Seat>,
}

/// Reads an issued ticket of the customer.
pub(crate) async fn get(
    postgres: &Postgres,
    customer_id: CustomerId,
    ticket_id: TicketId,
) -> Result<Option<Ticket>, postgres::Error> {
    let row = postgres.query_opt("get ticket", GET, &[&ticket_id.as_uuid(), &customer_id.as_uuid()]).await?;
    row.as_ref().map(ticket).transpose()
}

/// Reads a page of issued tickets, latest event first, and one ticket more if a further page exists.
pub(crate) async fn list(postgres: &Postgres, list: &ListTickets) -> Result<Vec<Ticket>, postgres::Error> {
    let states: Vec<&str> = list.filter.states.iter().map(|state| state.name()).collect();
    let values: Parameters<'_> = &[
        &list.customer_id.as_uuid(),
        &list.filter.event_id.map(|event_id| event_id.as_uuid()),
        &list.filter.claim_id.map(|claim_id| claim_id.as_uuid()),
        &states,
        &list.after.map(|after| SqlTime(after.start_time)),
        &list.after.map(|after| after.ticket_id.as_uuid()),
        &i64::from(list.page_size.rows_and_one()),
    ];
    postgres.query("list tickets", LIST, values).await?.iter().map(ticket).collect()
}

/// Reads all tickets of a claim, in the order of sectors and units.
pub(crate) async fn list_of_claim(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<Vec<Ticket>, postgres::Error> {
    transaction.query(LIST_OF_CLAIM, &[&claim_id.as_uuid()]).await?.iter().map(ticket).collect()
}

/// Locks a ticket. Returns `None` if it was not issued.
pub(crate) async fn lock_issued(
    transaction: &Transaction,
    ticket_id: TicketId,
) -> Result<Option<Ticket>, postgres::Error> {
    transaction.query_opt(LOCK_ISSUED, &[&ticket_id.as_uuid()]).await?.as_ref().map(ticket).transpose()
}

/// Locks the tickets of an order's units. Units whose tickets are not generated are left out.
pub(crate) async fn lock_ordered(
    transaction: &Transaction,
    order: &Order,
) -> Result<Vec<OrderedTicket>, postgres::Error> {
    let (sector_ids, units) = unit_arrays(&order.units);
    let rows = transaction.query(LOCK_ORDERED, &[&order.event_id.as_uuid(), &sector_ids, &units]).await?;
    let ordered = rows.iter().map(|row| {
        Ok(OrderedTicket {
            ticket_id: row.read_id("ticket_id")?,
            state: row.read_named("state")?,
            seat: seat(row)?,
        })
    });
    ordered.collect()
}

/// Issues locked GENERATED tickets to the buyer of `order`, each with its code.
pub(crate) async fn issue(
    transaction: &Transaction,
    order: &Order,
    tickets: &[(OrderedTicket, Code)],
) -> Result<(), Error> {
    let ticket_ids: Vec<Uuid> = tickets.iter().map(|(ticket, _)| ticket.ticket_id.as_uuid()).collect();
    let codes: Vec<&str> = tickets.iter().map(|(_, code)| code.expose()).collect();
    let seats = || tickets.iter().map(|(ticket, _)| ticket.seat.as_ref());
    let rows: Vec<Option<&str>> = seats().map(|seat| seat.map(|seat| seat.row_label.as_str())).collect();
    let labels: Vec<Option<&str>> = seats().map(|seat| seat.map(|seat| seat.seat_label.as_str())).collect();
    let (claim_id, customer_id) = (order.claim_id.as_uuid(), order.customer_id.as_uuid());
    let values: Parameters<'_> = &[&claim_id, &customer_id, &ticket_ids, &codes, &rows, &labels];
    let issued = transaction.execute(ISSUE, values).await?;
    if usize::try_from(issued).ok() == Some(tickets.len()) {
        Ok(())
    } else {
        Err(Error::Inconsistent { what: "a locked ticket was not GENERATED" })
    }
}

/// Locks all tickets of a claim and returns their states.
pub(crate) async fn lock_states(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<Vec<TicketState>, postgres::Error> {
    let rows = transaction.query(LOCK_STATES, &[&claim_id.as_uuid()]).await?;
    rows.iter().map(|row| row.read_named("state")).collect()
}

/// Makes the ISSUED tickets of a claim VOID.
pub(crate) async fn void(transaction: &Transaction, claim_id: ClaimId) -> Result<(), postgres::Error> {
    transaction.execute(VOID, &[&claim_id.as_uuid()]).await.map(drop)
}

/// Checks an ISSUED ticket in and returns the check-in. `scan_time` is `None` for now, by the database's clock.
pub(crate) async fn check_in(
    transaction: &Transaction,
    ticket_id: TicketId,
    scan_time: Option<Timestamp>,
    gate: &str,
) -> Result<CheckIn, postgres::Error> {
    let values: Parameters<'_> = &[&ticket_id.as_uuid(), &scan_time.map(SqlTime), &gate];
    let row = transaction.query_one(CHECK_IN, values).await?;
    Ok(CheckIn { time: row.read_time("check_in_time")?, gate: gate.to_owned() })
}

fn ticket(row: &Row) -> Result<Ticket, postgres::Error> {
    let gate: Option<String> = row.read("check_in_gate")?;
    let check_in =
        row.read_optional_time("check_in_time")?.zip(gate).map(|(time, gate)| CheckIn { time, gate });
    Ok(Ticket {
        ticket_id: row.read_id("ticket_id")?,
        event: events::summary(row)?,
        sector_id: row.read_id("sector_id")?,
        sector_name: row.read("sector_name")?,
        unit: row.read_count("unit")?,
        seat: seat(row)?,
        state: row.read_named("state")?,
        claim_id: row.read_id("claim_id")?,
        code: Code::from_text(row.read("code")?),
        issue_time: row.read_time("issue_time")?,
        check_in,
        void_time: row.read_optional_time("void_time")?,
    })
}

fn seat(row: &Row) -> Result<Option<Seat>, postgres::Error> {
    let row_label: Option<String> = row.read("row_label")?;
    let seat_label: Option<String> = row.read("seat_label")?;
    Ok(row_label.zip(seat_label).map(|(row_label, seat_label)| Seat { row_label, seat_label }))
}
