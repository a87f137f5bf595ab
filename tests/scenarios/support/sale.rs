//! Customers, organizers and events: helpers that put an event on sale and buy from it.

use std::time::Duration;

use onsale::{
    buy::purchase::Buyer,
    front_door::{FrontDoor, Person},
};
use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::Claim,
    inventory::v1::{
        ActivateEventRequest, CreateEventRequest, Event, GetAvailabilityRequest, Sector, SectorAvailability,
        Venue,
    },
    payment::v1::{Payment, PaymentState},
    queue::v1::{GetQueueSnapshotRequest, QueueState, queue_service_client::QueueServiceClient},
    ticketing::v1::Ticket,
    r#type::v1::{Money, SeatLayout, SeatRow, UnitSelection},
};
use onsale_testkit::wait_until;
use onsale_types::RequestId;

use super::TIMEOUT;

/// Returns a unique email address that starts with `who`.
pub(crate) fn unique_email(who: &str) -> String {
    format!("{who}-{}@example.test", RequestId::generate())
}

pub(crate) fn new_id() -> String {
    RequestId::generate().to_string()
}

pub(crate) async fn customer(door: &FrontDoor) -> Person {
    door.sign_in(&unique_email("customer"), "customer").await.unwrap()
}

pub(crate) async fn organizer(door: &FrontDoor) -> Person {
    door.sign_in(&unique_email("organizer"), "organizer").await.unwrap()
}

pub(crate) fn buyer(door: &FrontDoor, person: &Person, event_id: &str) -> Buyer {
    Buyer::new(door, person, event_id, Deadline::after(TIMEOUT * 2))
}

fn euros(amount_minor: i64) -> Option<Money> {
    Some(Money { amount_minor, currency_code: "EUR".to_owned() })
}

/// Returns a general sector of 49 EUR per unit.
pub(crate) fn general(capacity: u32) -> Sector {
    Sector { name: "Standing".to_owned(), capacity, price: euros(4_900), ..Sector::default() }
}

/// Returns a seated sector of 89 EUR per unit, with `seats` seats in each of its `rows`.
pub(crate) fn seated(rows: u32, seats: u32) -> Sector {
    let row = |row: u32| SeatRow { label: row.to_string(), seat_count: seats, seat_labels: vec![] };
    let layout = SeatLayout { rows: (1..=rows).map(row).collect() };
    Sector { name: "Stand".to_owned(), price: euros(8_900), layout: Some(layout), ..Sector::default() }
}

/// Creates a draft event of `organizer`.
pub(crate) async fn draft(organizer: &Person, sectors: Vec<Sector>) -> Event {
    let event = Event {
        name: "Scenario".to_owned(),
        venue: Some(Venue {
            name: "Arena".to_owned(),
            address: "Main street 1".to_owned(),
            time_zone: "Europe/Zagreb".to_owned(),
        }),
        start_time: Some(in_days(30)),
        currency_code: "EUR".to_owned(),
        sectors,
        ..Event::default()
    };
    let request = CreateEventRequest { request_id: new_id(), event: Some(event) };
    organizer.events().create_event(request).await.unwrap().into_inner().event.unwrap()
}

pub(crate) fn in_days(days: u64) -> prost_types::Timestamp {
    let now = onsale_types::Clock::now(&onsale_types::SystemClock);
    let then = now.checked_add(Duration::from_secs(days * 86_400)).unwrap();
    prost_types::Timestamp { seconds: then.as_micros() / 1_000_000, nanos: 0 }
}

pub(crate) async fn activate(organizer: &Person, event: &Event) {
    let request = ActivateEventRequest { request_id: new_id(), event_id: event.event_id.clone() };
    organizer.events().activate_event(request).await.unwrap();
}

/// Creates and activates an event and waits until its queue is open.
pub(crate) async fn on_sale(door: &FrontDoor, sectors: Vec<Sector>) -> (Person, Event) {
    let organizer = organizer(door).await;
    let event = draft(&organizer, sectors).await;
    activate(&organizer, &event).await;
    wait_for_open_queue(door, &event.event_id).await;
    (organizer, event)
}

pub(crate) async fn wait_for_open_queue(door: &FrontDoor, event_id: &str) {
    wait_until("the queue is open", TIMEOUT, || async {
        let request = GetQueueSnapshotRequest { event_id: event_id.to_owned() };
        let answer = QueueServiceClient::new(door.channel()).get_queue_snapshot(request).await;
        answer
            .is_ok_and(|answer| answer.into_inner().snapshot.unwrap_or_default().state() == QueueState::Open)
    })
    .await;
}

/// Selects any `count` units of a sector.
pub(crate) fn any_units(sector: &Sector, count: u32) -> UnitSelection {
    UnitSelection { sector_id: sector.sector_id.clone(), count, units: vec![] }
}

/// Joins the queue, waits for the turn and creates a claim.
pub(crate) async fn claim(buyer: &Buyer, sector: &Sector, count: u32) -> Claim {
    buyer.join().await.unwrap();
    let turn = buyer.wait_for_turn(|_| ()).await.unwrap();
    buyer.claim(&turn.token, any_units(sector, count)).await.unwrap()
}

/// Pays for a claim and waits until the payment is confirmed.
pub(crate) async fn pay(buyer: &Buyer, claim: &Claim) -> Payment {
    let payment = buyer.open_payment(&claim.claim_id).await.unwrap();
    buyer.act_at_provider(&payment, "pay").await.unwrap();
    let payment = buyer.payment_outcome(payment).await.unwrap();
    assert_eq!(payment.state(), PaymentState::Confirmed);
    payment
}

/// Makes a whole purchase: claim, payment and tickets.
pub(crate) async fn purchase(buyer: &Buyer, sector: &Sector, count: u32) -> (Claim, Payment, Vec<Ticket>) {
    let claim = claim(buyer, sector, count).await;
    let payment = pay(buyer, &claim).await;
    let tickets = buyer.tickets(&claim.claim_id, usize::try_from(count).unwrap()).await.unwrap();
    (claim, payment, tickets)
}

/// Returns the availability of an event by sector.
pub(crate) async fn availability(person: &Person, event: &Event) -> Vec<SectorAvailability> {
    let request = GetAvailabilityRequest { event_id: event.event_id.clone(), ..Default::default() };
    let answer = person.inventory().get_availability(request).await.unwrap().into_inner();
    answer.availability.unwrap().sectors
}
