//! `CreateEvent` and `GetEvent`: the content of a draft, its visibility, and refused requests.

use onsale_proto::{
    auth::v1::Role,
    events::v1::EventCreated,
    inventory::v1::{self as pb, EventState},
};
use onsale_testkit::service::TestService;
use tonic::Code;

use crate::support::{ORGANIZER, World, an_event, euros, fields, general, reason, request_id, seated, time};

#[tokio::test]
async fn draft_equals_the_request_and_event_created_is_published() {
    let world = World::start().await;
    let asked = an_event(vec![general("Standing", 500), seated("West", &[10, 12])]);
    let created = world.create(asked.clone()).await.unwrap();
    assert_eq!(created.state(), EventState::Draft);
    assert_eq!((created.capacity, created.revision, created.units_per_customer_max), (522, 1, 8));
    assert_eq!(
        (&created.name, &created.venue, created.start_time),
        (&asked.name, &asked.venue, asked.start_time)
    );
    assert_eq!(created.sectors[1].layout, asked.sectors[1].layout);
    assert_eq!(created.sectors[1].capacity, 22);
    assert!(created.create_time.is_some() && created.activate_time.is_none() && created.end_time.is_none());
    assert_eq!(world.get(&created.event_id).await, created);
    assert_eq!(world.taken().await, 0, "units have no rows of their own");

    let published = world.published::<EventCreated>().await;
    assert_eq!(published.len(), 1);
    assert_eq!(published[0].event.as_ref().unwrap().event_id, created.event_id);
    assert_eq!(
        (published[0].revision, published[0].sectors.len(), published[0].sectors[1].capacity),
        (1, 2, 22)
    );
    assert_eq!(published[0].sectors[1].layout, asked.sectors[1].layout);
}

#[tokio::test]
async fn repeated_request_creates_once_and_another_body_is_refused() {
    let world = World::start().await;
    let message =
        pb::CreateEventRequest { request_id: request_id(), event: Some(an_event(vec![general("A", 5)])) };
    let ask =
        |message| async { world.events.clone().create_event(world.as_organizer(ORGANIZER, message)).await };
    let first = ask(message.clone()).await.unwrap().into_inner();
    assert_eq!(ask(message.clone()).await.unwrap().into_inner(), first);
    let mut other = message.clone();
    other.event.as_mut().unwrap().name = "Another".to_owned();
    assert_eq!(reason(ask(other).await), (Code::InvalidArgument, "REQUEST_ID_REUSED".to_owned()));
    // Another organizer may use the same request id.
    let others =
        world.events.clone().create_event(world.as_organizer("organizer-two", message)).await.unwrap();
    assert_ne!(others.into_inner().event.unwrap().event_id, first.event.unwrap().event_id);
    assert_eq!(world.number("SELECT count(*) FROM event", &[]).await, 2);
    assert_eq!(world.published::<EventCreated>().await.len(), 2);
}

#[tokio::test]
async fn draft_is_visible_to_its_organizer_and_the_mesh_only() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let message = pb::GetEventRequest { event_id: draft.event_id.clone() };
    let get = |request| async { world.events.clone().get_event(request).await.map(|it| it.into_inner()) };
    let token = |world: &World, role| {
        let TestService { issuer, .. } = &world.service;
        issuer.token(role)
    };
    let customer = {
        let mut request = tonic::Request::new(message.clone());
        let token = format!("Bearer {}", token(&world, Role::Customer));
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        request
    };
    let hidden = (Code::NotFound, "EVENT_NOT_FOUND".to_owned());
    assert_eq!(reason(get(tonic::Request::new(message.clone())).await), hidden);
    assert_eq!(reason(get(customer).await), hidden);
    assert_eq!(reason(get(world.as_organizer("organizer-two", message.clone())).await), hidden);
    assert!(get(world.as_organizer(ORGANIZER, message.clone())).await.is_ok());
    assert!(get(world.as_claim(message.clone())).await.is_ok());

    world.activate(&draft.event_id).await.unwrap();
    assert!(get(tonic::Request::new(message)).await.is_ok());
    let unknown = pb::GetEventRequest { event_id: request_id() };
    assert_eq!(reason(get(tonic::Request::new(unknown)).await), hidden);
    let malformed = pb::GetEventRequest { event_id: "7".to_owned() };
    assert_eq!(fields(get(tonic::Request::new(malformed)).await), ["event_id"]);
}

#[tokio::test]
async fn all_violations_are_reported_together_and_nothing_is_written() {
    let world = World::start().await;
    let mut wrong = an_event(vec![general("A", 0), general("A", 1), seated("B", &[0, 5])]);
    wrong.name = " ".to_owned();
    wrong.description = "\u{0}".to_owned();
    wrong.venue.as_mut().unwrap().name = "x".repeat(201);
    wrong.on_sale_time = wrong.start_time;
    wrong.units_per_customer_max = 101;
    wrong.sectors[1].price = euros(-1);
    wrong.sectors[2].price.as_mut().unwrap().currency_code = "USD".to_owned();
    let rows = &mut wrong.sectors[2].layout.as_mut().unwrap().rows;
    rows[1].label = rows[0].label.clone();
    rows[1].seat_labels = vec!["1".to_owned()];
    assert_eq!(
        fields(world.create(wrong).await),
        [
            "event.name",
            "event.description",
            "event.venue.name",
            "event.on_sale_time",
            "event.units_per_customer_max",
            "event.sectors[0].capacity",
            "event.sectors[1].name",
            "event.sectors[1].price",
            "event.sectors[2].price",
            "event.sectors[2].layout.rows[0].seat_count",
            "event.sectors[2].layout.rows[1].label",
            "event.sectors[2].layout.rows[1].seat_labels",
        ]
    );
    let empty = fields(world.create(pb::Event::default()).await);
    assert_eq!(
        empty,
        ["event.name", "event.venue", "event.start_time", "event.currency_code", "event.sectors"]
    );
    let nothing = pb::CreateEventRequest { request_id: "no id".to_owned(), event: None };
    let nothing = world.events.clone().create_event(world.as_organizer(ORGANIZER, nothing)).await;
    assert_eq!(fields(nothing), ["request_id", "event"]);

    let mut nowhere = an_event(vec![general("A", 1)]);
    nowhere.venue.as_mut().unwrap().time_zone = "Europe/Atlantis".to_owned();
    assert_eq!(fields(world.create(nowhere).await), ["event.venue.time_zone"]);
    let large = an_event(vec![general("A", 600_000), general("B", 400_001)]);
    assert_eq!(fields(world.create(large).await), ["event.sectors"]);
    let mut endless = an_event(vec![general("A", 1)]);
    endless.start_time = time(i64::MAX);
    assert_eq!(fields(world.create(endless).await), ["event.start_time"]);

    assert_eq!(world.number("SELECT count(*) FROM event", &[]).await, 0);
    assert_eq!(world.number("SELECT count(*) FROM idempotency", &[]).await, 0);
    assert!(world.published::<EventCreated>().await.is_empty());
}

#[tokio::test]
async fn million_units_are_created_as_quickly_as_one() {
    let world = World::start().await;
    let rows = vec![1_000_u32; 999];
    let created = world.create(an_event(vec![general("A", 1_000), seated("B", &rows)])).await.unwrap();
    assert_eq!(created.capacity, 1_000_000);
    assert_eq!(world.taken().await, 0);
}
