//! Access control at the front door: stale turns, other customers' resources, other organizers' events and internal methods
//! are refused.

use onsale::{
    front_door::{FrontDoor, Person},
    retry::reason,
};
use onsale_kit::contract::Contract;
use onsale_proto::{
    claim::v1::{GetClaimRequest, ListClaimsRequest, ReleaseClaimRequest},
    inventory::v1::{
        ActivateEventRequest, EndEventRequest, Event, GetEventRequest, ListEventsRequest, UpdateEventRequest,
    },
    payment::v1::{
        CreatePaymentRequest, GetPaymentRequest, WatchPaymentRequest, get_payment_request::Lookup,
    },
    queue::v1::{CloseQueueRequest, LeaveQueueRequest, PauseQueueRequest},
    ticketing::v1::{GetTicketRequest, ListTicketsRequest},
};
use tonic::{Code, Status};

use super::support::{mesh, sale};

#[tokio::test]
async fn stale_or_stolen_turn_token_cannot_claim() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let person = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &person, &event.event_id);
    buyer.join().await.unwrap();
    let stale = buyer.wait_for_turn(|_| ()).await.unwrap();
    buyer.leave().await.unwrap();

    let ended = buyer.claim(&stale.token, sale::any_units(&event.sectors[0], 2)).await.unwrap_err();
    assert_eq!(ended.reason().as_deref(), Some("TURN_ENDED"), "{ended}");

    buyer.join().await.unwrap();
    let fresh = buyer.wait_for_turn(|_| ()).await.unwrap();
    assert!(fresh.fencing_number > stale.fencing_number);
    let refused = buyer.claim(&stale.token, sale::any_units(&event.sectors[0], 2)).await.unwrap_err();
    let reason = refused.reason().unwrap();
    assert!(["TURN_STALE", "TURN_ENDED"].contains(&reason.as_str()), "{refused}");

    let thief = sale::customer(&door).await;
    let thief = sale::buyer(&door, &thief, &event.event_id);
    let stolen = thief.claim(&fresh.token, sale::any_units(&event.sectors[0], 2)).await.unwrap_err();
    assert_eq!(stolen.reason().as_deref(), Some("TURN_TOKEN_INVALID"), "{stolen}");

    assert_eq!(sale::availability(&person, &event).await[0].free_count, 10, "no unit is held");
    buyer.claim(&fresh.token, sale::any_units(&event.sectors[0], 2)).await.unwrap();
    mesh.audit().await;
}

fn assert_not_found<T: std::fmt::Debug>(answer: Result<T, Status>) {
    assert_eq!(answer.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn other_customers_resources_are_not_found() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let owner = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &owner, &event.event_id);
    let (claim, payment, tickets) = sale::purchase(&buyer, &event.sectors[0], 2).await;
    let (claim_id, payment_id) = (claim.claim_id, payment.payment_id);
    let stranger = sale::customer(&door).await;

    assert_not_found(stranger.claims().get_claim(GetClaimRequest { claim_id: claim_id.clone() }).await);
    let release = ReleaseClaimRequest { request_id: sale::new_id(), claim_id: claim_id.clone() };
    assert_not_found(stranger.claims().release_claim(release).await);
    let pay = CreatePaymentRequest {
        request_id: sale::new_id(),
        claim_id: claim_id.clone(),
        ..CreatePaymentRequest::default()
    };
    assert_not_found(stranger.payments().create_payment(pay).await);
    for lookup in [Lookup::PaymentId(payment_id.clone()), Lookup::ClaimId(claim_id.clone())] {
        assert_not_found(stranger.payments().get_payment(GetPaymentRequest { lookup: Some(lookup) }).await);
    }
    let watched = stranger.payments().watch_payment(WatchPaymentRequest { payment_id }).await;
    match watched {
        Err(status) => assert_eq!(status.code(), Code::NotFound),
        Ok(stream) => assert_not_found(stream.into_inner().message().await),
    }
    let ticket = GetTicketRequest { ticket_id: tickets[0].ticket_id.clone(), document_kinds: vec![] };
    assert_not_found(stranger.tickets().get_ticket(ticket).await);
    let listed = stranger.tickets().list_tickets(ListTicketsRequest { claim_id, ..Default::default() }).await;
    assert!(listed.unwrap().into_inner().tickets.is_empty());
    let claims =
        stranger.claims().list_claims(ListClaimsRequest::default()).await.unwrap().into_inner().claims;
    assert!(claims.is_empty());
}

async fn manage(organizer: &Person, event: &Event) -> Vec<Status> {
    let (request_id, event_id) = (sale::new_id, || event.event_id.clone());
    let mut events = organizer.events();
    let mut queue = organizer.queue_admin();
    vec![
        events
            .update_event(UpdateEventRequest {
                request_id: request_id(),
                event_id: event_id(),
                event: Some(Event { name: "Stolen".to_owned(), ..event.clone() }),
                update_mask: Some(prost_types::FieldMask { paths: vec!["name".to_owned()] }),
            })
            .await
            .unwrap_err(),
        events
            .activate_event(ActivateEventRequest { request_id: request_id(), event_id: event_id() })
            .await
            .unwrap_err(),
        events
            .end_event(EndEventRequest { request_id: request_id(), event_id: event_id() })
            .await
            .unwrap_err(),
        queue
            .pause_queue(PauseQueueRequest {
                request_id: request_id(),
                event_id: event_id(),
                ..Default::default()
            })
            .await
            .unwrap_err(),
        queue
            .close_queue(CloseQueueRequest {
                request_id: request_id(),
                event_id: event_id(),
                ..Default::default()
            })
            .await
            .unwrap_err(),
    ]
}

#[tokio::test]
async fn other_organizers_events_cannot_be_changed() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (owner, rival) = (sale::organizer(&door).await, sale::organizer(&door).await);
    let draft = sale::draft(&owner, vec![sale::general(10)]).await;

    let get = GetEventRequest { event_id: draft.event_id.clone() };
    assert_not_found(rival.events().get_event(get.clone()).await);
    let list = ListEventsRequest { organizer_id: owner.organizer_id.clone(), ..Default::default() };
    assert!(rival.events().list_events(list.clone()).await.unwrap().into_inner().events.is_empty());
    assert_eq!(owner.events().list_events(list).await.unwrap().into_inner().events.len(), 1);
    for status in manage(&rival, &draft).await {
        assert_eq!(status.code(), Code::NotFound, "a draft is hidden from other organizers: {status:?}");
    }

    sale::activate(&owner, &draft).await;
    sale::wait_for_open_queue(&door, &draft.event_id).await;
    for status in manage(&rival, &draft).await {
        assert_eq!(reason(&status).as_deref(), Some("EVENT_NOT_OWNED"), "{status:?}");
    }
    let event = owner.events().get_event(get).await.unwrap().into_inner().event.unwrap();
    assert_eq!(event.name, "Scenario", "the event is unchanged");
    let customer = sale::customer(&door).await;
    for status in manage(&customer, &draft).await {
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    }
}

/// Returns spellings of a method's path with which an attacker might evade the gateway's checks.
fn spellings(path: &str) -> Vec<String> {
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap();
    vec![
        path.to_owned(),
        format!("/{path}"),
        format!("{path}/"),
        format!("/./{service}/{method}"),
        format!("/x/../{service}/{method}"),
        format!("/x/%2e%2e/{service}/{method}"),
        format!("/{service}%2F{method}"),
        format!("/{service}//{method}"),
        format!("/{service}\\{method}"),
        format!("/{}/{method}", service.replace("InternalService", "%49nternalService")),
        format!("/{}/{method}", service.to_lowercase()),
        format!("/api/v1/{service}/{method}"),
        format!("/dev/../{service}/{method}"),
        format!("/webhooks/../{service}/{method}"),
        format!("/onsale.queue.v1.QueueService/../{service}/{method}"),
        format!("{path}?x=1"),
    ]
}

#[tokio::test]
async fn internal_methods_are_unreachable_by_any_path_spelling() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
    let internal: Vec<_> =
        contract.methods().filter(|method| method.service.ends_with("InternalService")).collect();
    assert!(internal.len() >= 9, "{}", internal.len());
    let person = sale::organizer(&door).await;
    for method in internal {
        for path in spellings(&method.path) {
            for content_type in ["application/grpc", "application/grpc-web+proto", "application/json"] {
                let answer = post(&door, &person, &path, content_type).await;
                assert!(!answer.served, "{path} as {content_type} was served: {}", answer.what);
            }
        }
    }
}

struct Answer {
    served: bool,
    what: String,
}

/// Posts an empty message over a raw connection, because a client library would normalize the path first.
async fn post(door: &FrontDoor, person: &Person, path: &str, content_type: &str) -> Answer {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = door.url().trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: {content_type}\r\n\
         x-onsale-roles: SERVICE\r\nte: trailers\r\ncontent-length: 5\r\nconnection: close\r\n\r\n",
        person.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[0; 5]).await.unwrap();
    let mut bytes = Vec::new();
    // Read until the end of the head or until the connection closes. Do not wait for the close: Envoy keeps the connection
    // open for a while.
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read_buf(&mut bytes);
        if tokio::time::timeout(super::support::TIMEOUT, read).await.unwrap().unwrap_or(0) == 0 {
            break;
        }
    }
    let what = String::from_utf8_lossy(&bytes).to_lowercase();
    // Envoy's own refusals never reach the gateway, and the gateway refuses with UNIMPLEMENTED (12). Any other response comes
    // from a service.
    let is_envoys_own = !what.contains("x-envoy-upstream-service-time");
    let is_ok = what.starts_with("http/1.1 200");
    let is_unimplemented = what.contains("grpc-status: 12") || what.contains("grpc-status:12");
    Answer { served: is_ok && !is_envoys_own && !is_unimplemented, what }
}

#[tokio::test]
async fn front_door_refuses_service_tokens() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let token = mesh.service_token();
    let mut request = tonic::Request::new(LeaveQueueRequest {
        request_id: sale::new_id(),
        event_id: event.event_id.clone(),
    });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let mut queue = onsale_proto::queue::v1::queue_service_client::QueueServiceClient::new(door.channel());
    let status = queue.leave_queue(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied), "{status:?}");
}
