//! `ListTickets` and `GetTicket`: customers see their own tickets only.

use onsale_proto::{
    auth::v1::Role,
    ticketing::v1::{self as pb, DocumentKind, TicketState},
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::support::{Person, TestEvent, World, reason};

async fn get(
    world: &World,
    person: &Person,
    ticket_id: &str,
    kinds: &[DocumentKind],
) -> Result<pb::GetTicketResponse, Status> {
    let document_kinds = kinds.iter().map(|kind| (*kind).into()).collect();
    let request = pb::GetTicketRequest { ticket_id: ticket_id.to_owned(), document_kinds };
    Ok(world.tickets().get_ticket(person.request(request)).await?.into_inner())
}

#[tokio::test]
async fn pages_list_all_tickets_once_with_the_latest_event_first() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let mut orders = Vec::new();
    for day in 0..3 {
        let event = TestEvent::new(&organizer, &[10]).changed(|event| {
            event.event.as_mut().unwrap().start_time.as_mut().unwrap().seconds += day * 86_400;
        });
        world.publish_event(&event).await;
        let order = event.order(&buyer, &[1, 2, 3]);
        world.publish_order(&order).await;
        world.issued(&order, &buyer).await;
        orders.push((event, order));
    }
    let all = world.list(&buyer, pb::ListTicketsRequest::default()).await.unwrap();
    assert_eq!((all.tickets.len(), all.next_page_token.as_str()), (9, ""));
    let starts: Vec<_> =
        all.tickets.iter().map(|it| it.event.as_ref().unwrap().start_time.unwrap().seconds).collect();
    assert!(starts.is_sorted_by(|before, after| before >= after), "{starts:?}");

    let mut paged = Vec::new();
    let mut request = pb::ListTicketsRequest { page_size: 4, ..Default::default() };
    loop {
        let page = world.list(&buyer, request.clone()).await.unwrap();
        assert!(page.tickets.len() <= 4);
        paged.extend(page.tickets);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(paged, all.tickets, "every ticket once, in the same order");

    let (event, order) = &orders[1];
    for request in [
        pb::ListTicketsRequest { event_id: event.id().to_owned(), ..Default::default() },
        pb::ListTicketsRequest { claim_id: order.claim_id.clone(), ..Default::default() },
    ] {
        let found = world.list(&buyer, request).await.unwrap().tickets;
        assert!(found.len() == 3 && found.iter().all(|ticket| ticket.claim_id == order.claim_id));
    }
    let state =
        |state: TicketState| pb::ListTicketsRequest { states: vec![state.into()], ..Default::default() };
    assert_eq!(world.list(&buyer, state(TicketState::Issued)).await.unwrap().tickets.len(), 9);
    assert!(world.list(&buyer, state(TicketState::Void)).await.unwrap().tickets.is_empty());
}

#[tokio::test]
async fn page_token_is_bound_to_its_customer_and_filters() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[5]).await;
    let order = event.order(&buyer, &[1, 2, 3]);
    world.publish_order(&order).await;
    world.issued(&order, &buyer).await;
    let first = pb::ListTicketsRequest { page_size: 1, ..Default::default() };
    let page_token = world.list(&buyer, first.clone()).await.unwrap().next_page_token;
    assert!(!page_token.is_empty());
    let next = pb::ListTicketsRequest { page_token, ..first };
    let other_filter = pb::ListTicketsRequest { event_id: event.id().to_owned(), ..next.clone() };
    let stranger = world.person(Role::Customer);
    for refused in [
        world.list(&buyer, other_filter).await.unwrap_err(),
        world.list(&stranger, next.clone()).await.unwrap_err(),
        world
            .list(&buyer, pb::ListTicketsRequest { states: vec![99], ..Default::default() })
            .await
            .unwrap_err(),
    ] {
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    }
    assert_eq!(world.list(&buyer, next).await.unwrap().tickets.len(), 1);
}

#[tokio::test]
async fn tickets_of_others_and_unsold_tickets_are_not_found() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[2]).await;
    let order = event.order(&buyer, &[1]);
    world.publish_order(&order).await;
    let ticket_id = world.issued(&order, &buyer).await[0].ticket_id.clone();
    let row = world.store.query_one("free", "SELECT ticket_id::text FROM ticket WHERE unit = 2", &[]).await;
    let unsold: String = row.unwrap().get("ticket_id");
    let stranger = world.person(Role::Customer);
    for refused in [
        get(&world, &stranger, &ticket_id, &[]).await.unwrap_err(),
        get(&world, &buyer, &unsold, &[]).await.unwrap_err(),
        get(&world, &buyer, &Uuid::now_v7().to_string(), &[]).await.unwrap_err(),
    ] {
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "TICKET_NOT_FOUND"));
    }
    assert!(world.list(&stranger, pb::ListTicketsRequest::default()).await.unwrap().tickets.is_empty());
}

#[tokio::test]
async fn ticket_has_its_code_and_documents_in_the_requested_order() {
    let mut world = World::new().await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[2]).await;
    let order = event.order(&buyer, &[2]);
    world.publish_order(&order).await;
    let listed = world.issued(&order, &buyer).await.remove(0);
    let kinds = [DocumentKind::Pdf, DocumentKind::QrPng, DocumentKind::QrSvg];
    let answer = get(&world, &buyer, &listed.ticket_id, &kinds).await.unwrap();
    assert_eq!(answer.ticket, Some(listed.clone()));
    assert!(!listed.code.is_empty());
    let types: Vec<_> = answer.documents.iter().map(|it| (it.kind(), it.media_type.as_str())).collect();
    assert_eq!(
        types,
        [
            (DocumentKind::Pdf, "application/pdf"),
            (DocumentKind::QrPng, "image/png"),
            (DocumentKind::QrSvg, "image/svg+xml")
        ]
    );
    assert!(answer.documents.iter().all(|document| document.content.len() > 500));

    let twice = [DocumentKind::Pdf, DocumentKind::Pdf];
    for kinds in [&twice[..], &[DocumentKind::Unspecified]] {
        let refused = get(&world, &buyer, &listed.ticket_id, kinds).await.unwrap_err();
        assert_eq!(reason(&refused), "FIELDS_INVALID");
    }
}
