//! `IssueTickets`: issues like the event `order.completed`, and returns the tickets.

use onsale_proto::{
    auth::v1::Role,
    events::v1::TicketGenerated,
    ticketing::v1::{self as pb, TicketState},
};
use tonic::Code;
use tonic_types::StatusExt;
use uuid::Uuid;

use crate::support::{TestEvent, World, reason};

#[tokio::test]
async fn order_is_issued_once_by_calls_and_event_together() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[4, 5]);
    let request = event.issue_request(&order);
    let answer = world.internal().issue_tickets(service.request(request.clone())).await.unwrap().into_inner();
    assert_eq!(answer.tickets.len(), 2);
    assert!(answer.tickets.iter().all(|it| it.state() == TicketState::Issued && it.code.is_empty()));
    // The order arrives again: by the same request, by another request and by the event.
    let repeated =
        world.internal().issue_tickets(service.request(request.clone())).await.unwrap().into_inner();
    assert_eq!(repeated, answer);
    let another = pb::IssueTicketsRequest { request_id: Uuid::now_v7().to_string(), ..request.clone() };
    assert_eq!(world.internal().issue_tickets(service.request(another)).await.unwrap().into_inner(), answer);
    world.publish_order(&order).await;
    world.wait_until_handled(2).await;
    assert_eq!(world.issued(&order, &buyer).await.len(), 2);
    assert_eq!(world.published::<TicketGenerated>().await.len(), 1);

    let mut changed = request;
    changed.items[0].units = vec![1];
    let refused = world.internal().issue_tickets(service.request(changed)).await.unwrap_err();
    assert_eq!(reason(&refused), "REQUEST_ID_REUSED");
}

#[tokio::test]
async fn call_before_the_tickets_are_generated_is_told_to_retry() {
    let world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = TestEvent::new(&organizer, &[5]);
    let request = event.issue_request(&event.order(&buyer, &[1]));
    let refused = world.internal().issue_tickets(service.request(request)).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "TICKETS_NOT_GENERATED")
    );
    assert!(refused.get_details_retry_info().is_some());
    assert_eq!(
        world.count("SELECT count(*) AS count FROM issuance").await,
        0,
        "a refused call stores no issuance"
    );
}

#[tokio::test]
async fn unit_of_another_claim_is_refused() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let mut claims = Vec::new();
    for units in [[1, 2], [2, 3]] {
        let request = event.issue_request(&event.order(&buyer, &units));
        claims.push(world.internal().issue_tickets(service.request(request)).await);
    }
    let refused = claims.pop().unwrap().unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "TICKETS_ISSUED_TO_ANOTHER")
    );
    assert_eq!(world.count("SELECT count(*) AS count FROM ticket WHERE state = 'ISSUED'").await, 2);
}

#[tokio::test]
async fn one_of_many_concurrent_orders_for_a_unit_gets_it() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let (service, buyer) = (world.person(Role::Service), world.person(Role::Customer));
    let event = world.generated(&organizer, &[3]).await;
    let calls = (0..12_usize).map(|index| {
        // All orders have unit 2; half of them have unit 1 too, the others unit 3.
        let units: &[u32] = if index % 2 == 0 { &[1, 2] } else { &[2, 3] };
        let request = service.request(event.issue_request(&event.order(&buyer, units)));
        let mut client = world.internal();
        async move { client.issue_tickets(request).await }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    for refused in answers.into_iter().filter_map(Result::err) {
        assert_eq!(reason(&refused), "TICKETS_ISSUED_TO_ANOTHER");
    }
    assert_eq!(world.count("SELECT count(*) AS count FROM ticket WHERE state = 'ISSUED'").await, 2);
}

#[tokio::test]
async fn one_error_names_all_malformed_fields() {
    let world = World::new().await;
    let service = world.person(Role::Service);
    let items = vec![pb::SectorUnits { sector_id: "x".to_owned(), units: vec![] }];
    let request = pb::IssueTicketsRequest { items, buyer_email: "nobody".to_owned(), ..Default::default() };
    let refused = world.internal().issue_tickets(service.request(request)).await.unwrap_err();
    let named = refused.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<_> = named.iter().map(|violation| violation.field.as_str()).collect();
    let expected = [
        "request_id",
        "claim_id",
        "event_id",
        "customer_id",
        "buyer_email",
        "items[0].sector_id",
        "items[0].units",
        "items",
    ];
    assert_eq!(fields, expected);
}
