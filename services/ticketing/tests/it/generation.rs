//! Generations: exactly one ticket per unit after every change of the event, and the progress that its organizer sees.

use onsale_proto::{
    auth::v1::Role,
    events::v1::{EventActivated, GenerationCompleted},
    ticketing::v1::{self as pb, GenerationState},
};
use onsale_testkit::wait_until;
use tonic::Code;
use uuid::Uuid;

use crate::support::{Person, TIMEOUT, TestEvent, World, reason, sector};

async fn create(world: &World, person: &Person, event: &TestEvent) -> Result<pb::Generation, tonic::Status> {
    let request_id = Uuid::now_v7().to_string();
    let request = pb::CreateGenerationRequest { request_id, event_id: event.id().to_owned() };
    let answer = world.generations().create_generation(person.request(request)).await?;
    Ok(answer.into_inner().generation.unwrap())
}

#[tokio::test]
async fn event_of_20_000_units_gets_exactly_20_000_distinct_tickets() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let event = world.generated(&organizer, &[12_500, 7_499, 1]).await;
    for (index, capacity) in [12_500, 7_499, 1].into_iter().enumerate() {
        world.assert_exact(event.sector(index), capacity).await;
    }
    let generation = world.generation_of(&organizer, &event).await.unwrap();
    assert_eq!(generation.state(), GenerationState::Completed);
    assert_eq!((generation.ticket_count, generation.generated_count), (20_000, 20_000));
    let sectors: Vec<_> = generation.sectors.iter().map(|it| (it.ticket_count, it.generated_count)).collect();
    assert_eq!(sectors, [(12_500, 12_500), (7_499, 7_499), (1, 1)]);
    assert!(generation.start_time.is_some() && generation.end_time.is_some());

    let published = world.published::<GenerationCompleted>().await;
    assert_eq!(published.len(), 1, "completed once");
    assert_eq!((published[0].ticket_count, published[0].revision), (20_000, 1));
    assert_eq!(published[0].generation_id, generation.generation_id);
}

#[tokio::test]
async fn changed_draft_gets_exactly_its_new_capacities() {
    let mut world = World::with(&[("GENERATION__BATCH_SIZE", "70")]).await;
    let organizer = world.person(Role::Organizer);
    let first = world.generated(&organizer, &[300, 200]).await;
    let up = first.changed(|event| {
        event.sectors[0].capacity = 450;
        event.sectors.push(sector(33));
    });
    world.publish_event(&up).await;
    world.wait_until_generated(&up).await;
    for (index, capacity) in [450, 200, 33].into_iter().enumerate() {
        world.assert_exact(up.sector(index), capacity).await;
    }
    let removed = up.sector(1).to_owned();
    let down = up.changed(|event| {
        event.sectors[0].capacity = 5;
        event.sectors.remove(1);
    });
    world.publish_event(&down).await;
    world.wait_until_generated(&down).await;
    world.assert_exact(down.sector(0), 5).await;
    world.assert_exact(down.sector(1), 33).await;
    world.assert_exact(&removed, 0).await;
    let generation = world.generation_of(&organizer, &down).await.unwrap();
    assert_eq!((generation.ticket_count, generation.sectors.len()), (38, 2));
    let revisions: Vec<_> =
        world.published::<GenerationCompleted>().await.iter().map(|it| it.revision).collect();
    assert_eq!(revisions, [1, 2, 3]);
}

#[tokio::test]
async fn concurrent_changes_end_at_the_highest_revision() {
    let mut world = World::with(&[("GENERATION__BATCH_SIZE", "50"), ("GENERATION__WORKERS", "4")]).await;
    let organizer = world.person(Role::Organizer);
    let mut event = TestEvent::new(&organizer, &[900, 10, 700]);
    let mut revisions = vec![event.clone()];
    for capacity in [100, 1_500, 20, 800, 640] {
        event = event.changed(|event| {
            event.sectors[0].capacity = capacity;
            event.sectors[2].capacity = 1_600 - capacity;
        });
        revisions.push(event.clone());
    }
    // Several pods may receive the revisions out of order.
    revisions.swap(1, 4);
    revisions.swap(2, 5);
    for revision in &revisions {
        world.publish_event(revision).await;
    }
    world.wait_until_generated(&event).await;
    for (index, capacity) in [640, 10, 960].into_iter().enumerate() {
        world.assert_exact(event.sector(index), capacity).await;
    }
    world.wait_until_handled(6).await;
    let generation = world.generation_of(&organizer, &event).await.unwrap();
    assert_eq!((generation.ticket_count, generation.state()), (1_610, GenerationState::Completed));
}

#[tokio::test]
async fn watcher_sees_rising_counts_until_the_generation_completes() {
    let mut world = World::with(&[("GENERATION__BATCH_SIZE", "100")]).await;
    let organizer = world.person(Role::Organizer);
    let event = TestEvent::new(&organizer, &[8_000]);
    world.publish_event(&event).await;
    world.wait_until_handled(1).await;
    let lookup = Some(pb::watch_generation_request::Lookup::EventId(event.id().to_owned()));
    let request = organizer.request(pb::WatchGenerationRequest { lookup });
    let mut updates = world.generations().watch_generation(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(update) = updates.message().await.unwrap() {
        seen.push(update.generation.unwrap());
    }
    assert!(seen.is_sorted_by_key(|generation| generation.generated_count));
    let last = seen.last().unwrap();
    assert_eq!((last.state(), last.generated_count), (GenerationState::Completed, 8_000));
    let by_id = pb::get_generation_request::Lookup::GenerationId(last.generation_id.clone());
    let request = organizer.request(pb::GetGenerationRequest { lookup: Some(by_id) });
    let same = world.generations().get_generation(request).await.unwrap().into_inner().generation.unwrap();
    assert_eq!(same, *last);
}

#[tokio::test]
async fn other_organizers_do_not_find_a_draft_nor_own_a_public_event() {
    let mut world = World::new().await;
    let (organizer, other) = (world.person(Role::Organizer), world.person(Role::Organizer));
    let event = world.generated(&organizer, &[3]).await;
    let generation_id = world.generation_of(&organizer, &event).await.unwrap().generation_id;
    let by_id = || {
        let lookup = Some(pb::get_generation_request::Lookup::GenerationId(generation_id.clone()));
        other.request(pb::GetGenerationRequest { lookup })
    };
    let hidden = world.generation_of(&other, &event).await.unwrap_err();
    assert_eq!((hidden.code(), reason(&hidden).as_str()), (Code::NotFound, "EVENT_NOT_FOUND"));
    let hidden = world.generations().get_generation(by_id()).await.unwrap_err();
    assert_eq!((hidden.code(), reason(&hidden).as_str()), (Code::NotFound, "GENERATION_NOT_FOUND"));
    let hidden = create(&world, &other, &event).await.unwrap_err();
    assert_eq!((hidden.code(), reason(&hidden).as_str()), (Code::NotFound, "EVENT_NOT_FOUND"));

    let activate_time = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 });
    let event_id = event.id().to_owned();
    let activated = EventActivated { event_id, revision: 2, on_sale_time: None, activate_time };
    world.publish(event.id(), &activated).await;
    world.wait_until_handled(2).await;
    for denied in [
        world.generation_of(&other, &event).await.unwrap_err(),
        world.generations().get_generation(by_id()).await.unwrap_err(),
        create(&world, &other, &event).await.unwrap_err(),
    ] {
        assert_eq!((denied.code(), reason(&denied).as_str()), (Code::PermissionDenied, "EVENT_NOT_OWNED"));
    }
}

#[tokio::test]
async fn unknown_generations_are_not_found_and_a_lookup_is_required() {
    let world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let unknown = TestEvent::new(&organizer, &[1]);
    assert_eq!(reason(&world.generation_of(&organizer, &unknown).await.unwrap_err()), "EVENT_NOT_FOUND");
    assert_eq!(reason(&create(&world, &organizer, &unknown).await.unwrap_err()), "EVENT_NOT_FOUND");
    for (lookup, expected) in [
        (
            Some(pb::get_generation_request::Lookup::GenerationId(Uuid::now_v7().to_string())),
            "GENERATION_NOT_FOUND",
        ),
        (Some(pb::get_generation_request::Lookup::GenerationId("x".to_owned())), "FIELDS_INVALID"),
        (None, "FIELDS_INVALID"),
    ] {
        let request = organizer.request(pb::GetGenerationRequest { lookup });
        assert_eq!(reason(&world.generations().get_generation(request).await.unwrap_err()), expected);
    }
}

#[tokio::test]
async fn completed_generation_is_returned_and_failed_one_restarts() {
    // A sold ticket above the new capacity must never be removed, so the generation fails.
    let retry = [("GENERATION__RETRY__INITIAL", "1ms"), ("GENERATION__RETRY__ATTEMPTS_MAX", "2")];
    let mut world = World::with(&retry).await;
    let (organizer, buyer) = (world.person(Role::Organizer), world.person(Role::Customer));
    let event = world.generated(&organizer, &[10]).await;
    let complete = world.generation_of(&organizer, &event).await.unwrap();
    assert_eq!(create(&world, &organizer, &event).await.unwrap(), complete);

    let order = event.order(&buyer, &[10]);
    world.publish_order(&order).await;
    world.issued(&order, &buyer).await;
    let smaller = event.changed(|event| event.sectors[0].capacity = 4);
    world.publish_event(&smaller).await;
    wait_until("the generation to fail", TIMEOUT, async || {
        world.generation_of(&organizer, &event).await.unwrap().state() == GenerationState::Failed
    })
    .await;
    world.assert_exact(event.sector(0), 10).await;
    assert_eq!(world.list(&buyer, pb::ListTicketsRequest::default()).await.unwrap().tickets.len(), 1);

    // An operator raises the capacity, and the organizer restarts the generation.
    world.store.execute("raise capacity", "UPDATE sector SET capacity = 12", &[]).await.unwrap();
    let again = create(&world, &organizer, &event).await.unwrap();
    assert_eq!(again.state(), GenerationState::Pending);
    world.wait_until_generated(&smaller).await;
    world.assert_exact(event.sector(0), 12).await;
}
