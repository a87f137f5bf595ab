//! `VoidTickets`: void tickets admit nobody, and a voided claim gets no tickets later.

use onsale_proto::{
    auth::v1::Role,
    events::v1::TicketGenerated,
    ticketing::v1::{self as pb, CheckInOutcome, TicketState},
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::support::{Person, TestEvent, World, reason};

async fn void(world: &World, service: &Person, claim_id: &str) -> Result<u32, Status> {
    let request_id = Uuid::now_v7().to_string();
    let request = pb::VoidTicketsRequest { request_id, claim_id: claim_id.to_owned() };
    Ok(world.internal().void_tickets(service.request(request)).await?.into_inner().void_count)
}

async fn check_in(
    world: &World,
    staff: &Person,
    event: &TestEvent,
    code: String,
) -> pb::CheckInTicketResponse {
    let scan = pb::CheckInTicketRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.id().to_owned(),
        code,
        gate: "Gate 1".to_owned(),
        scan_time: None,
    };
    world.tickets().check_in_ticket(staff.request(scan)).await.unwrap().into_inner()
}

#[tokio::test]
async fn void_tickets_admit_nobody_and_show_no_code() {
    let mut world = World::new().await;
    let (organizer, staff) = (world.person(Role::Organizer), world.person(Role::Staff));
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[1, 2]);
    world.publish_order(&order).await;
    let code = world.issued(&order, &buyer).await[0].code.clone();
    assert_eq!(void(&world, &service, &order.claim_id).await.unwrap(), 2);
    assert_eq!(void(&world, &service, &order.claim_id).await.unwrap(), 2, "a repeated call returns the same");
    for ticket in world.issued(&order, &buyer).await {
        assert_eq!((ticket.state(), ticket.code.as_str()), (TicketState::Void, ""));
        assert!(ticket.void_time.is_some());
    }
    let answer = check_in(&world, &staff, &event, code).await;
    assert_eq!(answer.outcome(), CheckInOutcome::Void);
    assert!(answer.first_check_in.is_none());
}

#[tokio::test]
async fn claim_voided_before_its_order_gets_no_tickets() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[1]);
    assert_eq!(void(&world, &service, &order.claim_id).await.unwrap(), 0);
    world.publish_order(&order).await;
    world.wait_until_handled(2).await;
    assert!(world.list(&buyer, pb::ListTicketsRequest::default()).await.unwrap().tickets.is_empty());
    assert!(world.published::<TicketGenerated>().await.is_empty());
    world.wait_for_dead_letters(0).await;
    let refused =
        world.internal().issue_tickets(service.request(event.issue_request(&order))).await.unwrap_err();
    assert_eq!(reason(&refused), "TICKETS_ISSUED_TO_ANOTHER");
}

#[tokio::test]
async fn claim_with_a_used_ticket_cannot_be_voided() {
    let mut world = World::new().await;
    let (organizer, staff) = (world.person(Role::Organizer), world.person(Role::Staff));
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[1, 2]);
    world.publish_order(&order).await;
    let code = world.issued(&order, &buyer).await[0].code.clone();
    check_in(&world, &staff, &event, code).await;
    let refused = void(&world, &service, &order.claim_id).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "TICKET_CHECKED_IN"));
    assert_eq!(
        world.count("SELECT count(*) AS count FROM ticket WHERE state = 'ISSUED'").await,
        1,
        "no ticket was voided"
    );
}
