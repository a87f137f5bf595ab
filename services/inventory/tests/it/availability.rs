//! `GetAvailability` and `WatchAvailability`: the free, held and sold units of an event, in one answer and in a stream of
//! changes.

use onsale_proto::inventory::v1::{
    self as pb, EventState, WatchAvailabilityResponse, watch_availability_response::Update,
};
use onsale_testkit::wait_until;
use tonic::{Code, Request, Streaming};

use crate::support::{
    ORGANIZER, SOON, World, an_event, count, exactly, fields, general, reason, request_id, seated,
};

fn watch(event: &pb::Event, sector_ids: Vec<String>) -> pb::WatchAvailabilityRequest {
    pb::WatchAvailabilityRequest { event_id: event.event_id.clone(), sector_ids }
}

async fn next(stream: &mut Streaming<WatchAvailabilityResponse>) -> Option<Update> {
    let message = tokio::time::timeout(SOON, stream.message()).await.expect("a message in time");
    message.unwrap().map(|message| message.update.unwrap())
}

async fn next_delta(stream: &mut Streaming<WatchAvailabilityResponse>) -> pb::AvailabilityDelta {
    match next(stream).await {
        Some(Update::Delta(delta)) => delta,
        other => panic!("a delta: {other:?}"),
    }
}

async fn next_whole(stream: &mut Streaming<WatchAvailabilityResponse>) -> pb::Availability {
    match next(stream).await {
        Some(Update::Availability(whole)) => whole,
        other => panic!("the full state: {other:?}"),
    }
}

#[tokio::test]
async fn availability_has_free_and_held_counts_per_sector() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10), seated("B", &[6, 4])]).await;
    let before = world.availability(&event).await;
    assert_eq!(before.sectors[1].free_map, [0xff, 0b0000_0011]);
    let hold = world.hold(&event, vec![count(&event, 0, 3), exactly(&event, 1, &[1, 10])]).await.unwrap();
    let held = world.availability(&event).await;
    let counts = |it: &pb::Availability, sector: usize| {
        let sector = &it.sectors[sector];
        (sector.capacity, sector.free_count, sector.held_count)
    };
    assert_eq!((counts(&held, 0), counts(&held, 1)), ((10, 7, 3), (10, 8, 2)));
    assert!(held.sectors[0].free_map.is_empty());
    assert_eq!(held.sectors[1].free_map, [0b1111_1110, 0b0000_0001]);
    world.commit(&hold.hold_id).await.unwrap();
    let sold = world.availability(&event).await;
    assert_eq!((counts(&sold, 0), counts(&sold, 1)), ((10, 7, 0), (10, 8, 0)));
    assert!(before.revision < held.revision && held.revision < sold.revision);
    assert_eq!(sold.event_state(), EventState::OnSale);
    assert!(sold.availability_time.is_some());
}

#[tokio::test]
async fn chosen_sectors_are_returned_and_unknown_ones_are_not_found() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10), general("B", 4)]).await;
    let ask = |request| async { world.inventory.clone().get_availability(request).await };
    let message = |event: &pb::Event, sector_ids| pb::GetAvailabilityRequest {
        event_id: event.event_id.clone(),
        sector_ids,
    };
    let one = vec![event.sectors[1].sector_id.clone()];
    let chosen = ask(Request::new(message(&event, one))).await.unwrap().into_inner();
    assert!(chosen.next_poll_after.is_some());
    let chosen = chosen.availability.unwrap();
    assert_eq!((chosen.sectors.len(), chosen.sectors[0].capacity), (1, 4));
    let unknown = ask(Request::new(message(&event, vec![request_id()]))).await;
    assert_eq!(reason(unknown), (Code::NotFound, "SECTOR_NOT_FOUND".to_owned()));
    let malformed = ask(Request::new(message(&event, vec!["x".to_owned()]))).await;
    assert_eq!(fields(malformed), ["sector_ids[0]"]);
    let many = ask(Request::new(message(&event, vec![request_id(); 201]))).await;
    assert_eq!(fields(many), ["sector_ids"]);

    let draft = world.create(an_event(vec![general("A", 10)])).await.unwrap();
    let hidden = (Code::NotFound, "EVENT_NOT_FOUND".to_owned());
    assert_eq!(reason(ask(Request::new(message(&draft, Vec::new()))).await), hidden);
    assert!(ask(world.as_organizer(ORGANIZER, message(&draft, Vec::new()))).await.is_ok());
    assert_eq!(reason(world.inventory.clone().watch_availability(watch(&draft, Vec::new())).await), hidden);
}

#[tokio::test]
async fn watcher_gets_the_full_state_and_then_changes() {
    let world = World::start_with(&[("AVAILABILITY__WATCH_EVERY", "50ms")]).await;
    let event = world.on_sale(vec![general("A", 10), seated("B", &[200])]).await;
    let mut stream =
        world.inventory.clone().watch_availability(watch(&event, Vec::new())).await.unwrap().into_inner();
    let whole = next_whole(&mut stream).await;
    assert_eq!(
        whole,
        pb::Availability { availability_time: whole.availability_time, ..world.availability(&event).await }
    );

    let hold = world.hold(&event, vec![count(&event, 0, 2), exactly(&event, 1, &[7, 9])]).await.unwrap();
    let delta = next_delta(&mut stream).await;
    assert_eq!(delta.previous_revision, whole.revision);
    assert_eq!((delta.sectors[0].free_count, delta.sectors[0].held_count), (8, 2));
    assert!(delta.sectors[0].taken_units.is_empty());
    assert_eq!(delta.sectors[1].taken_units, [7, 9]);

    world.release(&hold.hold_id).await.unwrap();
    let back = next_delta(&mut stream).await;
    assert_eq!(back.previous_revision, delta.revision);
    assert_eq!((back.sectors[1].freed_units.as_slice(), back.sectors[1].free_count), (&[7, 9][..], 200));
}

#[tokio::test]
async fn watcher_of_one_sector_gets_its_changes_and_the_end() {
    let world = World::start_with(&[("AVAILABILITY__WATCH_EVERY", "50ms")]).await;
    let event = world.on_sale(vec![general("A", 10), general("B", 10)]).await;
    let only = vec![event.sectors[1].sector_id.clone()];
    let mut stream =
        world.inventory.clone().watch_availability(watch(&event, only)).await.unwrap().into_inner();
    let whole = next_whole(&mut stream).await;
    assert_eq!(whole.sectors.len(), 1);
    world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    world.hold(&event, vec![count(&event, 1, 3)]).await.unwrap();
    let delta = next_delta(&mut stream).await;
    assert_eq!((delta.previous_revision, delta.sectors.len()), (whole.revision, 1));
    assert_eq!(delta.sectors[0].free_count, 7);
    world.end(&event.event_id).await.unwrap();
    assert_eq!(next_delta(&mut stream).await.event_state(), EventState::Ended);
    assert_eq!(next(&mut stream).await, None);
    // A watcher that joins later gets the full state and then the end.
    let mut late =
        world.inventory.clone().watch_availability(watch(&event, Vec::new())).await.unwrap().into_inner();
    assert_eq!(next_whole(&mut late).await.event_state(), EventState::Ended);
    assert_eq!(next(&mut late).await, None);
}

#[tokio::test]
async fn watchers_of_one_event_share_reads_that_end_with_the_last() {
    let world = World::start_with(&[("AVAILABILITY__WATCH_EVERY", "50ms")]).await;
    let event = world.on_sale(vec![seated("B", &[200])]).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let stream = world.inventory.clone().watch_availability(watch(&event, Vec::new())).await.unwrap();
        streams.push(stream.into_inner());
    }
    let looks = || async { world.service.server.tasks().running().contains(&"watch availability") };
    assert!(looks().await);
    world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    for stream in &mut streams {
        next_whole(stream).await;
        assert_eq!(next_delta(stream).await.sectors[0].taken_units, [1, 2]);
    }
    drop(streams);
    wait_until("the worker has ended", SOON, async || !looks().await).await;
}
