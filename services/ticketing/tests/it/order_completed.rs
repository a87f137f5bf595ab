//! Event `order.completed`: the buyer gets the tickets once, before and after their generation.

use onsale_kit::auth::{KeySet, SigningKey};
use onsale_proto::{
    auth::v1::Role,
    events::v1::TicketGenerated,
    ticketing::v1::{self as pb, TicketState},
    r#type::v1 as shared,
};
use onsale_testkit::wait_until;
use onsale_ticketing::domain::code::{Code, Codes};

use crate::support::{TIMEOUT, TestEvent, World, sector};

const FREE: &str = "SELECT count(*) AS count FROM ticket WHERE state = 'GENERATED'";

fn units(tickets: &[pb::Ticket]) -> Vec<u32> {
    let mut units: Vec<_> = tickets.iter().map(|ticket| ticket.unit.as_ref().unwrap().number).collect();
    units.sort_unstable();
    units
}

#[tokio::test]
async fn buyer_gets_the_tickets_with_seats_and_codes() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let row = |label: &str, labels: &[&str]| shared::SeatRow {
        label: label.to_owned(),
        seat_count: 3,
        seat_labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let event = TestEvent::new(&organizer, &[6]).changed(|event| {
        event.sectors[0].layout =
            Some(shared::SeatLayout { rows: vec![row("A", &[]), row("B", &["1L", "2L", "3L"])] });
    });
    world.publish_event(&event).await;
    world.wait_until_generated(&event).await;
    let order = event.order(&buyer, &[3, 4, 6]);
    world.publish_order(&order).await;
    let tickets = world.issued(&order, &buyer).await;
    assert_eq!(units(&tickets), [3, 4, 6]);
    let mut seats: Vec<_> = tickets.iter().map(|ticket| ticket.unit.clone().unwrap().seat.unwrap()).collect();
    seats.sort_by_key(|seat| (seat.row_label.clone(), seat.seat_label.clone()));
    let seats: Vec<_> = seats.iter().map(|seat| format!("{}{}", seat.row_label, seat.seat_label)).collect();
    assert_eq!(seats, ["A3", "B1L", "B3L"]);
    for ticket in &tickets {
        assert_eq!(
            (ticket.state(), ticket.claim_id.as_str()),
            (TicketState::Issued, order.claim_id.as_str())
        );
        assert_eq!(ticket.event, event.created.event);
        assert!(ticket.issue_time.is_some() && ticket.check_in.is_none() && ticket.void_time.is_none());
    }

    let published = world.published::<TicketGenerated>().await;
    assert_eq!(published.len(), 1);
    let published = &published[0];
    assert_eq!(
        (published.claim_id.as_str(), published.recipient_email.as_str()),
        (order.claim_id.as_str(), "ana@example.com")
    );
    assert_eq!((published.recipient_locale.as_str(), &published.customer_id), ("hr", &order.customer_id));
    let mut codes: Vec<_> =
        published.tickets.iter().map(|ticket| (&ticket.ticket_id, &ticket.code)).collect();
    let mut listed: Vec<_> = tickets.iter().map(|ticket| (&ticket.ticket_id, &ticket.code)).collect();
    codes.sort_unstable();
    listed.sort_unstable();
    assert_eq!(codes, listed, "the event has the codes that the holder sees");
    assert_eq!(published.tickets[0].unit.as_ref().unwrap().seat.as_ref().unwrap().row_label, "A");
}

#[tokio::test]
async fn scanner_with_only_the_public_key_tells_valid_codes_from_forged() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[2]).await;
    let order = event.order(&buyer, &[1, 2]);
    world.publish_order(&order).await;
    let tickets = world.issued(&order, &buyer).await;
    assert_ne!(tickets[0].code, tickets[1].code);

    // `Codes` needs a signing key too; the scanner has one of its own, which signed none of these codes.
    let public = SigningKey::parse(&world.signing_key).unwrap().jwks();
    let own = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
    let scanner = Codes::new(own, Some(KeySet::parse(&public).unwrap())).unwrap();
    for ticket in &tickets {
        let payload = scanner.read(&Code::from_text(ticket.code.clone())).unwrap();
        assert_eq!(
            (payload.event_id.to_string(), payload.ticket_id.to_string()),
            (event.id().to_owned(), ticket.ticket_id.clone())
        );
        let stranger = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
        let forged = Codes::new(stranger, None).unwrap().sign(&payload);
        assert!(scanner.read(&forged).is_err());
    }
}

#[tokio::test]
async fn repeated_order_changes_nothing() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[2, 3]);
    world.publish_order(&order).await;
    let first = world.issued(&order, &buyer).await;
    world.publish_order(&order).await;
    world.wait_until_handled(3).await;
    assert_eq!(world.issued(&order, &buyer).await, first);
    assert_eq!(world.count(FREE).await, 3);
    assert_eq!(world.published::<TicketGenerated>().await.len(), 1, "published once");
}

#[tokio::test]
async fn order_before_its_event_is_issued_once_the_tickets_exist() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = TestEvent::new(&organizer, &[300]);
    let order = event.order(&buyer, &[299, 300]);
    world.publish_order(&order).await;
    wait_until("the order to be pending", TIMEOUT, async || {
        world.count("SELECT count(*) AS count FROM issuance WHERE state = 'PENDING'").await == 1
    })
    .await;
    assert!(world.published::<TicketGenerated>().await.is_empty());
    world.publish_event(&event).await;
    assert_eq!(units(&world.issued(&order, &buyer).await), [299, 300]);
    assert_eq!(world.published::<TicketGenerated>().await.len(), 1);
    world.wait_for_dead_letters(0).await;
}

#[tokio::test]
async fn unreadable_pending_order_does_not_delay_the_others() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = TestEvent::new(&organizer, &[5]);
    let unreadable = "INSERT INTO issuance
            (claim_id, state, event_id, customer_id, buyer_email, sector_ids, units, next_attempt_time)
        VALUES (gen_random_uuid(), 'PENDING', gen_random_uuid(), gen_random_uuid(), 'a@b', ARRAY[gen_random_uuid()],
            ARRAY[-1], now() - interval '1 day')";
    world.store.execute("insert unreadable order", unreadable, &[]).await.unwrap();
    let order = event.order(&buyer, &[1, 2]);
    world.publish_order(&order).await;
    wait_until("the order to be pending", TIMEOUT, async || {
        world.count("SELECT count(*) AS count FROM issuance WHERE state = 'PENDING'").await == 2
    })
    .await;
    world.publish_event(&event).await;
    assert_eq!(units(&world.issued(&order, &buyer).await), [1, 2]);
    assert_eq!(world.count("SELECT count(*) AS count FROM issuance WHERE state = 'PENDING'").await, 1);
}

#[tokio::test]
async fn orders_during_a_generation_are_all_issued() {
    let mut world = World::with(&[("GENERATION__BATCH_SIZE", "20")]).await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = TestEvent::new(&organizer, &[4_000]);
    let orders: Vec<_> =
        (0..8).map(|index| event.order(&buyer, &[index * 500 + 1, index * 500 + 500])).collect();
    world.publish_order(&orders[0]).await;
    world.publish_event(&event).await;
    for order in &orders[1..] {
        world.publish_order(order).await;
    }
    for order in &orders {
        world.issued(order, &buyer).await;
    }
    world.wait_until_generated(&event).await;
    world.assert_exact(event.sector(0), 4_000).await;
    assert_eq!(world.published::<TicketGenerated>().await.len(), 8);
    let codes = "SELECT count(DISTINCT code) AS count FROM ticket";
    assert_eq!(world.count(codes).await, 16);
}

#[tokio::test]
async fn second_order_for_a_unit_goes_to_the_dead_letters() {
    let mut world = World::new().await;
    let (organizer, first, second) =
        (world.person(Role::Organizer), world.person(Role::Customer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&first, &[1, 2]);
    world.publish_order(&order).await;
    world.issued(&order, &first).await;
    let overlapping = event.order(&second, &[2, 3]);
    world.publish_order(&overlapping).await;
    world.wait_for_dead_letters(1).await;
    assert_eq!(world.count(FREE).await, 3, "no ticket was issued");
    assert!(world.list(&second, pb::ListTicketsRequest::default()).await.unwrap().tickets.is_empty());
    assert_eq!(world.issued(&order, &first).await.len(), 2);
    assert_eq!(world.published::<TicketGenerated>().await.len(), 1);
}

#[tokio::test]
async fn one_of_two_pending_orders_for_a_unit_is_issued_the_other_refused() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = TestEvent::new(&organizer, &[5]).changed(|event| event.sectors.push(sector(1)));
    for order in [event.order(&buyer, &[1, 2]), event.order(&buyer, &[2, 3])] {
        world.publish_order(&order).await;
    }
    world.wait_until_handled(2).await;
    world.publish_event(&event).await;
    let refused = "SELECT count(*) AS count FROM issuance WHERE state = 'REFUSED'";
    wait_until("the refusal", TIMEOUT, async || world.count(refused).await == 1).await;
    assert_eq!(world.count("SELECT count(*) AS count FROM issuance WHERE state = 'ISSUED'").await, 1);
    assert_eq!(world.count("SELECT count(*) AS count FROM ticket WHERE state = 'ISSUED'").await, 2);
    assert_eq!(world.published::<TicketGenerated>().await.len(), 1);
}
