//! Parts of messages that requests and events have in common. Names are reduced to one line each.

use std::time::Duration;

use onsale_kit::error::Violations;
use onsale_proto::{convert::duration_from_pb, notification::v1::DeliveredTicket, r#type::v1 as pb};
use onsale_types::{EventId, Money, TicketId, Timestamp};

use crate::domain::{
    content::{Event, Item, Seat, Ticket, Unit},
    job::Recipient,
    language::Language,
    text::{EmailAddress, one_line},
};

/// Reads one message and records each violation under the path of its field.
pub(in crate::convert) struct Reader<'a> {
    pub(super) violations: &'a mut Violations,
    /// Path of the message, with a dot at its end unless it is empty.
    pub(super) path: String,
}

impl<'a> Reader<'a> {
    /// Creates a reader of a whole message.
    pub(in crate::convert) fn new(violations: &'a mut Violations) -> Self {
        Self { violations, path: String::new() }
    }

    fn field(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Returns a reader of the message in the field `name`.
    pub(in crate::convert) fn inner(&mut self, name: &str) -> Reader<'_> {
        let path = format!("{}.", self.field(name));
        Reader { violations: self.violations, path }
    }

    pub(in crate::convert) fn check<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
        parsed: Result<T, E>,
    ) -> Option<T> {
        self.violations.check(format_args!("{}{name}", self.path), parsed)
    }

    pub(in crate::convert) fn require<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        self.violations.require(format_args!("{}{name}", self.path), value)
    }

    /// Reads a required name, reduced to one line.
    pub(in crate::convert) fn name(&mut self, name: &str, text: &str) -> Option<String> {
        let line = one_line(text);
        self.check(name, if line.is_empty() { Err("is required") } else { Ok(line) })
    }

    pub(in crate::convert) fn time(
        &mut self,
        name: &str,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Timestamp> {
        self.violations.require_time(format_args!("{}{name}", self.path), time)
    }

    /// Reads an optional duration. The outer `None` means that it is invalid.
    pub(in crate::convert) fn optional_duration(
        &mut self,
        name: &str,
        span: Option<prost_types::Duration>,
    ) -> Option<Option<Duration>> {
        span.map_or(Some(None), |span| self.check(name, duration_from_pb(span)).map(Some))
    }

    /// Reads the URL of a web page. Refuses all other schemes, so that a mail never has a link that runs code.
    pub(in crate::convert) fn url(&mut self, name: &str, url: String) -> Option<String> {
        let is_page = (url.starts_with("https://") || url.starts_with("http://"))
            && !url.chars().any(|it| it.is_control() || it.is_whitespace());
        self.check(name, if is_page { Ok(url) } else { Err("is not an http or https address") })
    }

    pub(in crate::convert) fn money(&mut self, name: &str, money: Option<pb::Money>) -> Option<Money> {
        self.violations.require_money(format_args!("{}{name}", self.path), money)
    }

    pub(in crate::convert) fn event(&mut self, event: Option<pb::EventSummary>) -> Option<Event> {
        let event = self.require("event", event)?;
        let mut reader = self.inner("event");
        let event_id = reader.check("event_id", EventId::parse(&event.event_id));
        let name = reader.name("name", &event.name);
        let start_time = reader.time("start_time", event.start_time);
        let venue_address = one_line(&event.venue_address);
        Some(Event {
            event_id: event_id?,
            name: name?,
            venue_name: one_line(&event.venue_name),
            venue_address: (!venue_address.is_empty()).then_some(venue_address),
            time_zone: event.time_zone,
            start_time: start_time?,
        })
    }

    /// Reads a recipient from two fields, whose names differ between messages. An unset customer id is allowed.
    pub(in crate::convert) fn recipient(
        &mut self,
        [customer_field, email_field]: [&str; 2],
        customer_id: &str,
        email: &str,
        language: Language,
    ) -> Option<Recipient> {
        let customer_field = self.field(customer_field);
        let customer_id = self.violations.optional_id(customer_field, customer_id);
        let email = self.check(email_field, EmailAddress::parse(email));
        Some(Recipient { customer_id: customer_id?, email: email?, language })
    }

    pub(in crate::convert) fn items(&mut self, items: Vec<pb::LineItem>) -> Option<Vec<Item>> {
        if items.is_empty() {
            return self.check("items", Err("is empty"));
        }
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let mut reader = self.inner(&format!("items[{index}]"));
            let sector_name = reader.name("sector_name", &item.sector_name);
            let unit_price = reader.money("unit_price", item.unit_price);
            let amount = reader.money("amount", item.amount);
            let units = item.units.into_iter().map(unit_from_pb).collect();
            read.push(Item { sector_name: sector_name?, units, unit_price: unit_price?, amount: amount? });
        }
        Some(read)
    }

    pub(in crate::convert) fn tickets(&mut self, tickets: Vec<DeliveredTicket>) -> Option<Vec<Ticket>> {
        if tickets.is_empty() {
            return self.check("tickets", Err("is empty"));
        }
        let mut read = Vec::with_capacity(tickets.len());
        for (index, ticket) in tickets.into_iter().enumerate() {
            let mut reader = self.inner(&format!("tickets[{index}]"));
            let ticket_id = reader.check("ticket_id", TicketId::parse(&ticket.ticket_id));
            let sector_name = reader.name("sector_name", &ticket.sector_name);
            let unit = reader.require("unit", ticket.unit);
            let code = reader.name("code", &ticket.code).map(|_| without_blanks(&ticket.code));
            read.push(Ticket {
                ticket_id: ticket_id?,
                sector_name: sector_name?,
                unit: unit_from_pb(unit?),
                code: code?,
            });
        }
        Some(read)
    }
}

/// Returns a ticket code without blanks and control characters. Unlike a name, a code must not be cut.
fn without_blanks(code: &str) -> String {
    code.chars().filter(|it| !it.is_control() && !it.is_whitespace()).collect()
}

fn unit_from_pb(unit: pb::Unit) -> Unit {
    let seat =
        unit.seat.map(|seat| Seat { row: one_line(&seat.row_label), seat: one_line(&seat.seat_label) });
    Unit { number: unit.number, seat }
}
