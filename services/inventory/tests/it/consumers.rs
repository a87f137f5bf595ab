//! Inventory consumes every topic of Ticketing that the contract names it for, so no event stays in the sender's outbox.

use std::sync::Arc;

use onsale_proto::{
    TOPICS,
    events::v1::{GenerationCompleted, TicketGenerated},
    r#type::v1::EventSummary,
};
use onsale_storage::{
    messaging::{NewEvent, Outbox, Relay, RelayConfig},
    postgres::{self, Postgres},
};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;

use crate::support::{SOON, World, an_event, general};

#[tokio::test]
async fn inventory_consumes_every_topic_of_the_contract() {
    let world = World::start().await;
    let running = world.service.server.tasks().running();
    let mut topics = TOPICS.iter().filter(|topic| topic.listeners.contains(&onsale_inventory::SERVICE));
    assert!(topics.clone().count() > 0);
    assert!(topics.all(|topic| running.contains(&topic.name)), "{running:?}");
}

#[tokio::test]
async fn generation_is_recorded_and_tickets_are_acknowledged() {
    let world = World::start().await;
    let event = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let ticketing = Postgres::connect(&world.service.database.config("ticketing")).await.unwrap();
    let outbox = Outbox::new("ticketing", Arc::new(SystemClock));
    let summary = EventSummary { event_id: event.event_id.clone(), ..EventSummary::default() };
    let completed = |revision| GenerationCompleted {
        event: Some(summary.clone()),
        revision,
        ..GenerationCompleted::default()
    };
    let events = &[
        NewEvent::new(
            "claim",
            &TicketGenerated { event: Some(summary.clone()), ..TicketGenerated::default() },
        ),
        NewEvent::new(&event.event_id, &completed(3)),
        NewEvent::new(&event.event_id, &completed(2)),
        NewEvent::new("nobody", &GenerationCompleted::default()),
    ];
    let outbox_ref = &outbox;
    ticketing
        .transaction("tell", |tx| async move {
            outbox_ref.append(&tx, events).await?;
            Ok::<_, postgres::Error>(())
        })
        .await
        .unwrap();
    let relay = Relay::new(ticketing, world.redis.clone(), &outbox, TOPICS, RelayConfig::default()).unwrap();
    relay.start(world.service.server.tasks());

    wait_until("all four are handled", SOON, async || {
        world.number("SELECT count(*) FROM inbox WHERE consumer = 'inventory'", &[]).await == 4
    })
    .await;
    let noted = "SELECT generated_revision AS count FROM event";
    assert_eq!(world.number(noted, &[]).await, 3, "an older revision is ignored");
    // An event that can never be handled goes to the dead letters.
    let dead = "SELECT count(*) FROM dead_letter WHERE topic = 'generation.completed'";
    assert_eq!(world.number(dead, &[]).await, 1);
}
