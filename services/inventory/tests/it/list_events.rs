//! `ListEvents`: order, pages, filters, and drafts that only their organizer sees.

use onsale_proto::inventory::v1::{self as pb, EventState};
use tonic::Request;

use crate::support::{ORGANIZER, World, an_event, fields, general, seated, time};

async fn list(world: &World, request: Request<pb::ListEventsRequest>) -> pb::ListEventsResponse {
    world.events.clone().list_events(request).await.unwrap().into_inner()
}

fn names(response: &pb::ListEventsResponse) -> Vec<&str> {
    response.events.iter().map(|event| event.name.as_str()).collect()
}

/// Creates events named after their start, and one draft.
async fn a_few(world: &World) {
    for start in [3, 1, 2, 5, 4] {
        let mut event = an_event(vec![general("A", 5), seated("B", &[2])]);
        event.name = start.to_string();
        event.start_time = time(4_000_000_000 + start);
        let event = world.create(event).await.unwrap();
        if start < 5 {
            world.activate(&event.event_id).await.unwrap();
        }
        if start == 4 {
            world.end(&event.event_id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn events_are_paged_by_start_time_without_layouts() {
    let world = World::start().await;
    a_few(&world).await;
    let mut message = pb::ListEventsRequest { page_size: 3, ..pb::ListEventsRequest::default() };
    let first = list(&world, Request::new(message.clone())).await;
    assert_eq!(names(&first), ["1", "2", "3"]);
    assert!(first.events.iter().all(|event| event.sectors.len() == 2 && event.sectors[1].layout.is_none()));
    message.page_token = first.next_page_token;
    let second = list(&world, Request::new(message.clone())).await;
    assert_eq!((names(&second), second.next_page_token.as_str()), (vec!["4"], ""));
    message.states = vec![EventState::Ended.into()];
    assert_eq!(fields(world.events.clone().list_events(message).await), ["page_token"]);
}

#[tokio::test]
async fn filters_apply_and_drafts_are_listed_for_their_organizer() {
    let world = World::start().await;
    a_few(&world).await;
    let all = pb::ListEventsRequest::default();
    let own = list(&world, world.as_organizer(ORGANIZER, all.clone())).await;
    assert_eq!(names(&own), ["1", "2", "3", "4", "5"]);
    let organizer_id = own.events[0].organizer_id.clone();
    assert_eq!(names(&list(&world, world.as_organizer("organizer-two", all.clone())).await).len(), 4);

    let drafts = pb::ListEventsRequest {
        states: vec![EventState::Draft.into(), EventState::Ended.into()],
        ..all.clone()
    };
    assert_eq!(names(&list(&world, Request::new(drafts.clone())).await), ["4"]);
    assert_eq!(names(&list(&world, world.as_organizer(ORGANIZER, drafts)).await), ["4", "5"]);
    let between = pb::ListEventsRequest {
        start_from_time: time(4_000_000_002),
        start_until_time: time(4_000_000_004),
        organizer_id,
        ..all.clone()
    };
    assert_eq!(names(&list(&world, Request::new(between.clone())).await), ["2", "3"]);
    let others = pb::ListEventsRequest { organizer_id: crate::support::request_id(), ..between };
    assert!(names(&list(&world, Request::new(others)).await).is_empty());

    let wrong = pb::ListEventsRequest {
        organizer_id: "x".to_owned(),
        states: vec![0],
        page_token: "x".to_owned(),
        ..all
    };
    let wrong = world.events.clone().list_events(wrong).await;
    assert_eq!(fields(wrong), ["organizer_id", "states[0]", "page_token"]);
}
