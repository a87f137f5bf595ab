//! What events and jobs have in common: parts of messages. Names become one line each.

use onsale_kit::error::Violations;
use onsale_proto::{notification::v1::DeliveredTicket, r#type::v1 as pb};
use onsale_types::{Currency, CustomerId, EventId, Money, TicketId, Timestamp};

use crate::domain::{
    content::{Event, Item, Place, Seat, Ticket},
    job::Recipient,
    language::Language,
    text::{EmailAddress, one_line},
};

/// What is checked of a message; each problem is noted under the path of its field.
pub(in crate::convert) struct Reader<'a> {
    pub(in crate::convert) violations: &'a mut Violations,
    /// The path of the message, ending in a dot unless it is empty.
    pub(in crate::convert) path: String,
}

impl Reader<'_> {
    fn field(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The same for a part of the message.
    pub(in crate::convert) fn inner(&mut self, name: &str) -> Reader<'_> {
        let path = format!("{}.", self.field(name));
        Reader { violations: self.violations, path }
    }

    pub(in crate::convert) fn check<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
        parsed: Result<T, E>,
    ) -> Option<T> {
        let field = self.field(name);
        self.violations.check(field, parsed)
    }

    pub(in crate::convert) fn require<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        let field = self.field(name);
        self.violations.require(field, value)
    }

    /// A name, on one line.
    pub(in crate::convert) fn name(&mut self, name: &str, text: &str) -> Option<String> {
        let line = one_line(text);
        self.check(name, if line.is_empty() { Err("is required") } else { Ok(line) })
    }

    pub(in crate::convert) fn time(
        &mut self,
        name: &str,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Timestamp> {
        let time = self.require(name, time)?;
        let parsed = Timestamp::from_seconds_and_nanos(time.seconds, time.nanos);
        self.check(name, parsed.ok_or("is not a time"))
    }

    /// A page to open: never anything that a mail program would run.
    pub(in crate::convert) fn url(&mut self, name: &str, url: String) -> Option<String> {
        let is_page = (url.starts_with("https://") || url.starts_with("http://"))
            && !url.chars().any(|it| it.is_control() || it.is_whitespace());
        self.check(name, if is_page { Ok(url) } else { Err("is not an http or https address") })
    }

    pub(in crate::convert) fn money(&mut self, name: &str, money: Option<pb::Money>) -> Option<Money> {
        let money = self.require(name, money)?;
        let currency = self.check(&format!("{name}.currency_code"), Currency::parse(&money.currency_code))?;
        let amount = if money.amount_minor < 0 { Err("is negative") } else { Ok(money.amount_minor) };
        let amount = self.check(&format!("{name}.amount_minor"), amount)?;
        Some(Money::new(amount, currency))
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

    /// Somebody with an address. A customer id that is unset is nobody's.
    pub(in crate::convert) fn recipient(
        &mut self,
        [customer_field, email_field]: [&str; 2],
        customer_id: &str,
        email: &str,
        language: Language,
    ) -> Option<Recipient> {
        let customer_id = match customer_id {
            "" => Some(None),
            id => self.check(customer_field, CustomerId::parse(id)).map(Some),
        };
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
            let places = item.units.into_iter().map(place).collect();
            read.push(Item { sector_name: sector_name?, places, unit_price: unit_price?, amount: amount? });
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
            let code = reader.name("code", &ticket.code).map(|_| one_code(&ticket.code));
            read.push(Ticket {
                ticket_id: ticket_id?,
                sector_name: sector_name?,
                place: place(unit?),
                code: code?,
            });
        }
        Some(read)
    }
}

/// A code has no spaces and may be long: it is not cut as a name would be.
fn one_code(code: &str) -> String {
    code.chars().filter(|it| !it.is_control() && !it.is_whitespace()).collect()
}

fn place(unit: pb::Unit) -> Place {
    let seat =
        unit.seat.map(|seat| Seat { row: one_line(&seat.row_label), seat: one_line(&seat.seat_label) });
    Place { number: unit.number, seat }
}

/// A time, for the wire.
pub(in crate::convert) fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}
