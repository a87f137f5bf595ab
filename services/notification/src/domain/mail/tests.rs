//! Every message in both languages, compared with its stored snapshot.

use std::time::Duration;

use onsale_types::{ClaimId, Currency, EventId, Money, Named as _, TicketId, Timestamp};

use super::*;
use crate::domain::content::{Event, Item, Seat, Ticket, Unit};

const WEB: &str = "https://tickets.example.com";

fn event(name: &str) -> Event {
    Event {
        event_id: EventId::parse("01980000-0000-7000-8000-000000000001").unwrap(),
        name: name.to_owned(),
        venue_name: "Arena Zagreb".to_owned(),
        venue_address: Some("Lanište 1, Zagreb".to_owned()),
        time_zone: "Europe/Zagreb".to_owned(),
        start_time: Timestamp::from_secs(1_783_360_800),
    }
}

fn euros(minor: i64) -> Money {
    Money::new(minor, Currency::parse("EUR").unwrap())
}

fn seat(number: u32, row: &str, seat: &str) -> Unit {
    Unit { number, seat: Some(Seat { row: row.to_owned(), seat: seat.to_owned() }) }
}

fn ticket(sector_name: &str, unit: Unit, code: &str) -> Ticket {
    let ticket_id = TicketId::parse("01980000-0000-7000-8000-000000000003").unwrap();
    Ticket { ticket_id, sector_name: sector_name.to_owned(), unit, code: code.to_owned() }
}

fn claim_id() -> ClaimId {
    ClaimId::parse("01980000-0000-7000-8000-000000000002").unwrap()
}

fn order(name: &str) -> Content {
    let standing = Unit { number: 12, seat: None };
    Content::OrderConfirmation {
        event: event(name),
        claim_id: claim_id(),
        items: vec![
            Item {
                sector_name: "Tribina sjever".to_owned(),
                units: vec![seat(7, "A", "7"), seat(8, "A", "8")],
                unit_price: euros(62_050),
                amount: euros(124_100),
            },
            Item {
                sector_name: "Parter".to_owned(),
                units: vec![standing.clone()],
                unit_price: euros(4_990),
                amount: euros(4_990),
            },
        ],
        total: euros(129_090),
        tickets: vec![
            ticket("Tribina sjever", seat(7, "A", "7"), "CODE-ONE"),
            ticket("Tribina sjever", seat(8, "A", "8"), "CODE-TWO"),
            ticket("Parter", standing, "CODE-THREE"),
        ],
    }
}

fn contents() -> Vec<Content> {
    let event = || event("Ljetni koncert");
    let later = Timestamp::from_secs(1_783_350_000);
    vec![
        order("Ljetni koncert"),
        Content::TicketDelivery {
            event: event(),
            tickets: vec![ticket("Parter", seat(1, "B", "2"), "CODE-FOUR")],
        },
        Content::QuotaInvitation {
            event: event(),
            quota_name: "Fan klub".to_owned(),
            sector_name: "Parter".to_owned(),
            unit_count: 4,
            accept_url: "https://tickets.example.com/invitations?token=abc&x=1".to_owned(),
            expire_time: later,
        },
        Content::QueueUpdate {
            event: event(),
            position: 100,
            wait_min: Some(Duration::from_secs(240)),
            wait_max: Some(Duration::from_secs(601)),
        },
        Content::QueueYourTurn { event: event(), turn_expire_time: later, checkout_url: None },
        Content::Reminder { event: event(), ticket_count: 2 },
        Content::Refund { event: event(), claim_id: claim_id(), amount: euros(129_090) },
    ]
}

#[test]
fn every_message_matches_its_snapshot_in_both_languages() {
    for content in contents() {
        for language in [Language::En, Language::Hr] {
            let Mail { subject, text, html, .. } = Mail::compose(&content, language, WEB).unwrap();
            let name = format!("{}_{}", content.template().name().to_ascii_lowercase(), language.tag());
            let whole = format!("Subject: {subject}\n\n{text}\n\n{html}");
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(name, whole);
            });
        }
    }
}

#[test]
fn markup_in_a_name_is_escaped() {
    let mail = Mail::compose(&order("<script>alert('x')</script> & \"co\""), Language::En, WEB).unwrap();
    assert!(!mail.html.contains("<script"), "{}", mail.html);
    assert!(mail.html.contains("&#60;script&#62;"), "{}", mail.html);
    assert_eq!(mail.subject, "Your tickets for <script>alert('x')</script> & \"co\"");
}

#[test]
fn subject_is_one_line_of_limited_length() {
    let mail = Mail::compose(&order("Concert\r\nBcc: everybody@example.com"), Language::En, WEB).unwrap();
    assert_eq!(mail.subject, "Your tickets for Concert Bcc: everybody@example.com");
    let mail = Mail::compose(&order(&"long ".repeat(200)), Language::Hr, WEB).unwrap();
    assert_eq!(mail.subject.chars().count(), SUBJECT_CHARS_MAX);
}

#[test]
fn html_shows_a_picture_of_every_ticket_code() {
    let mail = Mail::compose(&order("Concert"), Language::En, WEB).unwrap();
    assert_eq!(mail.pictures.len(), 3);
    for picture in &mail.pictures {
        assert!(mail.html.contains(&format!("src=\"cid:{}\"", picture.content_id)), "{}", mail.html);
    }
}

#[test]
fn code_too_long_for_a_picture_is_text_only() {
    let Content::OrderConfirmation { event, claim_id, items, total, mut tickets } = order("Concert") else {
        panic!("it is an order")
    };
    tickets[0].code = "x".repeat(5_000);
    let without = Content::OrderConfirmation { event, claim_id, items, total, tickets };
    let mail = Mail::compose(&without, Language::En, WEB).unwrap();
    assert_eq!(mail.pictures.len(), 2, "the first code has no picture");
    assert!(!mail.html.contains("cid:ticket-1@") && mail.html.contains("cid:ticket-2@"));
}

#[test]
fn mail_has_no_link_without_a_web_url() {
    let mail = Mail::compose(&order("Concert"), Language::En, "").unwrap();
    assert!(!mail.html.contains("href"));
}

#[test]
fn content_survives_json() {
    for content in contents() {
        let json = serde_json::to_value(&content).unwrap();
        assert_eq!(json["template"], content.template().name());
        assert_eq!(serde_json::from_value::<Content>(json).unwrap(), content);
    }
}
