//! Texts of all messages, in both languages side by side. Names of events and sectors follow a colon or stand in parentheses,
//! because Croatian would otherwise decline them.

use std::time::Duration;

use onsale_types::{ClaimId, Money};

use super::{Document, ItemLine, LabeledText, Link, TicketLine};
use crate::domain::{
    content::{Content, Event, Item, Ticket, Unit},
    format,
    language::Language,
};

pub(super) fn document(content: &Content, language: Language, web_url: &str) -> Document {
    let composer = Composer { language, web_url };
    match content {
        Content::OrderConfirmation { event, claim_id, items, total, tickets } => {
            composer.order(event, *claim_id, items, *total, tickets)
        }
        Content::TicketDelivery { event, tickets } => composer.tickets(event, tickets),
        Content::QuotaInvitation { event, .. } => composer.invitation(event, content),
        Content::QueueUpdate { event, position, wait_min, wait_max } => {
            composer.queue(event, *position, wait_min.zip(*wait_max))
        }
        Content::QueueYourTurn { event, turn_expire_time, checkout_url } => {
            let until = format::date_time(language, *turn_expire_time, &event.time_zone);
            composer.turn(event, &until, checkout_url.as_deref())
        }
        Content::Reminder { event, ticket_count } => composer.reminder(event, *ticket_count),
        Content::Refund { event, claim_id, amount } => composer.refund(event, *claim_id, *amount),
    }
}

struct Composer<'a> {
    language: Language,
    web_url: &'a str,
}

impl Composer<'_> {
    /// Returns a document with the parts of every mail: the subject, one paragraph, and the time and venue of the event.
    fn event_document(&self, event: &Event, subject: String, intro: String) -> Document {
        let language = self.language;
        let venue = match &event.venue_address {
            Some(address) => format!("{}, {address}", event.venue_name),
            None => event.venue_name.clone(),
        };
        let details = vec![
            labeled(language.pick("Event", "Događaj"), event.name.clone()),
            labeled(
                language.pick("When", "Kada"),
                format::date_time(language, event.start_time, &event.time_zone),
            ),
            labeled(language.pick("Where", "Gdje"), venue),
        ];
        Document {
            language,
            subject,
            intro: vec![intro],
            details,
            items: Vec::new(),
            total: None,
            link: None,
            tickets_heading: language.pick("Tickets", "Ulaznice"),
            tickets: Vec::new(),
            closing: language.pick("This mail was sent automatically.", "Ova je poruka poslana automatski."),
        }
    }

    fn order(
        &self,
        event: &Event,
        claim_id: ClaimId,
        items: &[Item],
        total: Money,
        tickets: &[Ticket],
    ) -> Document {
        let language = self.language;
        let subject = language
            .pick(format!("Your tickets for {}", event.name), format!("Vaše ulaznice: {}", event.name));
        let intro = if tickets.is_empty() {
            language.pick(
                "Thank you for your order. Your tickets come in a mail of their own.",
                "Hvala na kupnji. Ulaznice stižu u zasebnoj poruci.",
            )
        } else {
            language.pick(
                "Thank you for your order. Your tickets are below: show the code of each at the entrance.",
                "Hvala na kupnji. Ulaznice su u nastavku: na ulazu pokažite kod svake od njih.",
            )
        };
        let mut document = self.event_document(event, subject, intro.to_owned());
        document.details.push(self.order_number(claim_id));
        document.items = items.iter().map(|item| self.item(item)).collect();
        document.total = Some(labeled(language.pick("Total", "Ukupno"), format::money(language, total)));
        document.tickets = tickets.iter().map(|ticket| self.ticket(ticket)).collect();
        document.link = self.web(language.pick("See your tickets online", "Pogledajte ulaznice na webu"));
        document
    }

    fn tickets(&self, event: &Event, tickets: &[Ticket]) -> Document {
        let language = self.language;
        let name = &event.name;
        let count = format::tickets(language, u64::try_from(tickets.len()).unwrap_or(u64::MAX));
        let (subject, intro) = if tickets.len() == 1 {
            (
                language.pick(format!("Your ticket for {name}"), format!("Vaša ulaznica: {name}")),
                language.pick(
                    format!("You have {count}. Show its code at the entrance."),
                    format!("Imate {count}. Na ulazu pokažite njezin kod."),
                ),
            )
        } else {
            (
                language.pick(format!("Your tickets for {name}"), format!("Vaše ulaznice: {name}")),
                language.pick(
                    format!("You have {count}. Show the code of each at the entrance."),
                    format!("Imate {count}. Na ulazu pokažite kod svake od njih."),
                ),
            )
        };
        let mut document = self.event_document(event, subject, intro);
        document.tickets = tickets.iter().map(|ticket| self.ticket(ticket)).collect();
        document
    }

    fn invitation(&self, event: &Event, content: &Content) -> Document {
        let language = self.language;
        let subject =
            language.pick(format!("You are invited: {}", event.name), format!("Pozivnica: {}", event.name));
        let Content::QuotaInvitation { quota_name, sector_name, unit_count, accept_url, expire_time, .. } =
            content
        else {
            return self.event_document(event, subject, String::new());
        };
        let count = format::tickets(language, u64::from(*unit_count));
        let intro = language.pick(
            format!("You are invited ({quota_name}) to buy up to {count} outside of the public sale."),
            format!("Pozvani ste ({quota_name}): možete kupiti najviše {count} izvan javne prodaje."),
        );
        let mut document = self.event_document(event, subject, intro);
        document.details.push(labeled(language.pick("Sector", "Sektor"), sector_name.clone()));
        let until = format::date_time(language, *expire_time, &event.time_zone);
        document.details.push(labeled(language.pick("Valid until", "Vrijedi do"), until));
        let label = language.pick("Accept the invitation", "Prihvatite pozivnicu");
        document.link = Some(Link { label: label.to_owned(), url: accept_url.clone() });
        document
    }

    fn queue(&self, event: &Event, position: u64, wait: Option<(Duration, Duration)>) -> Document {
        let language = self.language;
        let subject = language.pick(
            format!("Your place in line for {}: {position}", event.name),
            format!("Vaše mjesto u redu ({}): {position}", event.name),
        );
        let intro = language.pick(
            format!("The line has moved: your place is now {position}."),
            format!("Red se pomaknuo: vaše je mjesto sada {position}."),
        );
        let mut document = self.event_document(event, subject, intro);
        if let Some((min, max)) = wait {
            let minutes = |span: Duration| span.as_secs().div_ceil(60);
            let value = format!("{}–{} min", minutes(min), minutes(max));
            document.details.push(labeled(language.pick("Likely wait", "Vjerojatno čekanje"), value));
        }
        document.link = self.web(language.pick("See your place", "Pogledajte svoje mjesto"));
        document
    }

    fn turn(&self, event: &Event, until: &str, checkout_url: Option<&str>) -> Document {
        let language = self.language;
        let subject =
            language.pick(format!("It is your turn: {}", event.name), format!("Na redu ste: {}", event.name));
        let intro = language.pick(
            "It is your turn. Choose your tickets and pay while your turn lasts.",
            "Na redu ste. Odaberite ulaznice i platite dok traje vaš red.",
        );
        let mut document = self.event_document(event, subject, intro.to_owned());
        document
            .details
            .push(labeled(language.pick("Your turn lasts until", "Vaš red traje do"), until.to_owned()));
        let label = language.pick("Choose your tickets", "Odaberite ulaznice");
        let at_checkout = checkout_url.map(|url| Link { label: label.to_owned(), url: url.to_owned() });
        document.link = at_checkout.or_else(|| self.web(label));
        document
    }

    fn reminder(&self, event: &Event, ticket_count: u32) -> Document {
        let language = self.language;
        let count = format::tickets(language, u64::from(ticket_count));
        let subject = language.pick(format!("Soon: {}", event.name), format!("Uskoro: {}", event.name));
        let intro = language.pick(
            format!("The event is near, and you have {count}. Keep the codes at hand."),
            format!("Događaj je blizu, a vi imate {count}. Pripremite kodove."),
        );
        let mut document = self.event_document(event, subject, intro);
        document.link = self.web(language.pick("See your tickets online", "Pogledajte ulaznice na webu"));
        document
    }

    fn refund(&self, event: &Event, claim_id: ClaimId, amount: Money) -> Document {
        let language = self.language;
        let amount = format::money(language, amount);
        let subject =
            language.pick(format!("Your refund for {}", event.name), format!("Povrat novca: {}", event.name));
        let intro = language.pick(
            format!("We have sent {amount} back to you. Your bank may need a few days to show it."),
            format!("Vratili smo vam {amount}. Može proći nekoliko dana dok iznos ne bude vidljiv na vašem računu."),
        );
        let mut document = self.event_document(event, subject, intro);
        document.details.push(self.order_number(claim_id));
        document
    }

    fn order_number(&self, claim_id: ClaimId) -> LabeledText {
        labeled(self.language.pick("Order", "Narudžba"), claim_id.to_string())
    }

    fn item(&self, item: &Item) -> ItemLine {
        let seats: Vec<String> =
            item.units.iter().filter(|unit| unit.seat.is_some()).map(|unit| self.unit(unit)).collect();
        let price = format::money(self.language, item.unit_price);
        ItemLine {
            name: item.sector_name.clone(),
            seats: seats.join("; "),
            count_and_price: format!("{} × {price}", item.units.len()),
            amount: format::money(self.language, item.amount),
        }
    }

    fn ticket(&self, ticket: &Ticket) -> TicketLine {
        let label = format!("{} – {}", ticket.sector_name, self.unit(&ticket.unit));
        TicketLine { label, code: ticket.code.clone(), picture: None }
    }

    fn unit(&self, unit: &Unit) -> String {
        match &unit.seat {
            Some(seat) => self.language.pick(
                format!("row {}, seat {}", seat.row, seat.seat),
                format!("red {}, sjedalo {}", seat.row, seat.seat),
            ),
            None => self.language.pick(format!("no. {}", unit.number), format!("br. {}", unit.number)),
        }
    }

    /// Returns a link to the shop, or `None` if its URL is not configured.
    fn web(&self, label: &str) -> Option<Link> {
        (!self.web_url.is_empty()).then(|| Link { label: label.to_owned(), url: self.web_url.to_owned() })
    }
}

fn labeled(label: impl Into<String>, value: String) -> LabeledText {
    LabeledText { label: label.into(), value }
}
