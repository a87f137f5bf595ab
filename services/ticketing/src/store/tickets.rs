//! Tickets: read by their holders, issued, voided, checked in.

use onsale_storage::postgres::{self, Parameters, Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, SectorId, TicketId, Timestamp};
use uuid::Uuid;

use super::{count, events, sql_time, sql_units, time, time_opt};
use crate::{
    domain::{
        code::Code,
        event::Seat,
        order::Order,
        ticket::{CheckIn, ListPosition, Ticket, TicketFilter, TicketState},
    },
    error::Error,
};

/// All columns of a ticket that was issued, with its sector and event.
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
const OF_CLAIM: &str = issued_tickets!("claim_id = $1 ORDER BY sector.place, unit");
const LOCK: &str = issued_tickets!("ticket_id = $1 FOR UPDATE OF ticket");
// In one order, so that two orders that want the same units wait for each other instead of locking each other out.
const LOCK_UNITS: &str = "SELECT ticket_id, state, seat_row.label AS row_label,
        coalesce(seat_labels[unit - first_unit + 1], (unit - first_unit + 1)::text) AS seat_label
    FROM unnest($2::uuid[], $3::integer[]) AS wanted (sector_id, unit)
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
const LOCK_CLAIM: &str = "SELECT state FROM ticket WHERE claim_id = $1 ORDER BY sector_id, unit FOR UPDATE";
const VOID: &str =
    "UPDATE ticket SET state = 'VOID', void_time = now() WHERE claim_id = $1 AND state = 'ISSUED'";
const CHECK_IN: &str = "UPDATE ticket
    SET state = 'CHECKED_IN', check_in_time = coalesce($2, now()), check_in_gate = $3
    WHERE ticket_id = $1 AND state = 'ISSUED' RETURNING check_in_time";

/// A ticket that an order wants, locked.
#[derive(Clone, Debug)]
pub struct WantedTicket {
    /// The ticket.
    pub ticket_id: TicketId,
    /// Whether it is free.
    pub state: TicketState,
    /// The seat it is for.
    pub seat: Option<Seat>,
}

/// A holder's ticket.
pub async fn get(
    postgres: &Postgres,
    customer_id: CustomerId,
    ticket_id: TicketId,
) -> Result<Option<Ticket>, Error> {
    let row = postgres.query_opt("get ticket", GET, &[&ticket_id.as_uuid(), &customer_id.as_uuid()]).await?;
    row.as_ref().map(ticket).transpose()
}

/// A holder's tickets after `after`, latest event first, at most `rows`.
pub async fn list(
    postgres: &Postgres,
    customer_id: CustomerId,
    filter: &TicketFilter,
    after: Option<ListPosition>,
    rows: u32,
) -> Result<Vec<Ticket>, Error> {
    let event_id = filter.event_id.map(|id| id.as_uuid());
    let claim_id = filter.claim_id.map(|id| id.as_uuid());
    let states: Vec<&str> = filter.states.iter().map(|state| state_name(*state)).collect();
    let after_time = after.map(|after| sql_time(after.start_time)).transpose()?;
    let after_id = after.map(|after| after.ticket_id.as_uuid());
    let customer_id = customer_id.as_uuid();
    let rows = i64::from(rows);
    let values: Parameters<'_> =
        &[&customer_id, &event_id, &claim_id, &states, &after_time, &after_id, &rows];
    postgres.query("list tickets", LIST, values).await?.iter().map(ticket).collect()
}

/// All tickets of a claim, in the event's order.
pub async fn of_claim(transaction: &Transaction, claim_id: ClaimId) -> Result<Vec<Ticket>, Error> {
    transaction.query(OF_CLAIM, &[&claim_id.as_uuid()]).await?.iter().map(ticket).collect()
}

/// A ticket that was issued, locked.
pub async fn lock(transaction: &Transaction, ticket_id: TicketId) -> Result<Option<Ticket>, Error> {
    transaction.query_opt(LOCK, &[&ticket_id.as_uuid()]).await?.as_ref().map(ticket).transpose()
}

/// Those of an order's tickets that exist, locked.
pub async fn lock_units(transaction: &Transaction, order: &Order) -> Result<Vec<WantedTicket>, Error> {
    let (sector_ids, units) = sql_units(&order.units)?;
    let rows = transaction.query(LOCK_UNITS, &[&order.event_id.as_uuid(), &sector_ids, &units]).await?;
    let wanted = |row: &Row| {
        Ok(WantedTicket {
            ticket_id: TicketId::from_uuid(column(row, "ticket_id")?),
            state: state(column(row, "state")?)?,
            seat: seat(row)?,
        })
    };
    rows.iter().map(wanted).collect()
}

/// Issues tickets that are free, each with its code; answers how many were.
pub async fn issue(
    transaction: &Transaction,
    order: &Order,
    tickets: &[(WantedTicket, Code)],
) -> Result<u64, Error> {
    let ids: Vec<Uuid> = tickets.iter().map(|(ticket, _)| ticket.ticket_id.as_uuid()).collect();
    let codes: Vec<&str> = tickets.iter().map(|(_, code)| code.expose()).collect();
    let seats = || tickets.iter().map(|(ticket, _)| ticket.seat.as_ref());
    let rows: Vec<Option<&str>> = seats().map(|seat| seat.map(|seat| seat.row_label.as_str())).collect();
    let labels: Vec<Option<&str>> = seats().map(|seat| seat.map(|seat| seat.seat_label.as_str())).collect();
    let (claim_id, customer_id) = (order.claim_id.as_uuid(), order.customer_id.as_uuid());
    Ok(transaction.execute(ISSUE, &[&claim_id, &customer_id, &ids, &codes, &rows, &labels]).await?)
}

/// The states of a claim's tickets, locked.
pub async fn lock_claim(transaction: &Transaction, claim_id: ClaimId) -> Result<Vec<TicketState>, Error> {
    let rows = transaction.query(LOCK_CLAIM, &[&claim_id.as_uuid()]).await?;
    rows.iter().map(|row| state(column(row, "state")?)).collect()
}

/// Makes a claim's issued tickets void.
pub async fn void(transaction: &Transaction, claim_id: ClaimId) -> Result<(), postgres::Error> {
    transaction.execute(VOID, &[&claim_id.as_uuid()]).await.map(drop)
}

/// Checks an issued ticket in, at `time` or now.
pub async fn check_in(
    transaction: &Transaction,
    ticket_id: TicketId,
    scan_time: Option<Timestamp>,
    gate: &str,
) -> Result<CheckIn, Error> {
    let scan_time = scan_time.map(sql_time).transpose()?;
    let row = transaction.query_one(CHECK_IN, &[&ticket_id.as_uuid(), &scan_time, &gate]).await?;
    Ok(CheckIn { time: time(&row, "check_in_time")?, gate: gate.to_owned() })
}

fn ticket(row: &Row) -> Result<Ticket, Error> {
    let gate: Option<String> = column(row, "check_in_gate")?;
    let check_in = time_opt(row, "check_in_time")?.zip(gate).map(|(time, gate)| CheckIn { time, gate });
    Ok(Ticket {
        ticket_id: TicketId::from_uuid(column(row, "ticket_id")?),
        event: events::summary(row)?,
        sector_id: SectorId::from_uuid(column(row, "sector_id")?),
        sector_name: column(row, "sector_name")?,
        unit: count(row, "unit")?,
        seat: seat(row)?,
        state: state(column(row, "state")?)?,
        claim_id: ClaimId::from_uuid(column(row, "claim_id")?),
        code: Code::from_text(column(row, "code")?),
        issue_time: time(row, "issue_time")?,
        check_in,
        void_time: time_opt(row, "void_time")?,
    })
}

fn seat(row: &Row) -> Result<Option<Seat>, Error> {
    let row_label: Option<String> = column(row, "row_label")?;
    let seat_label: Option<String> = column(row, "seat_label")?;
    Ok(row_label.zip(seat_label).map(|(row_label, seat_label)| Seat { row_label, seat_label }))
}

fn state(text: &str) -> Result<TicketState, Error> {
    match text {
        "GENERATED" => Ok(TicketState::Generated),
        "ISSUED" => Ok(TicketState::Issued),
        "CHECKED_IN" => Ok(TicketState::CheckedIn),
        "VOID" => Ok(TicketState::Void),
        _ => Err(Error::Corrupt { what: "a ticket's state is unknown" }),
    }
}

fn state_name(state: TicketState) -> &'static str {
    match state {
        TicketState::Generated => "GENERATED",
        TicketState::Issued => "ISSUED",
        TicketState::CheckedIn => "CHECKED_IN",
        TicketState::Void => "VOID",
    }
}
