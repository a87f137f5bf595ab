//! Events besides `order.completed`: each is acknowledged, and a malformed one does not stop the next.

use onsale_proto::{
    auth::v1::Role,
    events::v1::{ClaimReleased, EventActivated, EventEnded},
};

use crate::support::{TestEvent, World};

#[tokio::test]
async fn activation_and_end_are_recorded_before_the_event_is_known() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let event = TestEvent::new(&organizer, &[2]);
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let event_id = event.id().to_owned();
    let ended = EventEnded { event_id: event_id.clone(), revision: 4, end_time: at(1_700_000_300) };
    world.publish(&event_id, &ended).await;
    for (revision, seconds) in [(3, 1_700_000_200), (2, 1_700_000_100)] {
        let activate_time = at(seconds);
        let activated =
            EventActivated { event_id: event_id.clone(), revision, on_sale_time: None, activate_time };
        world.publish(&event_id, &activated).await;
    }
    world.publish_event(&event).await;
    world.wait_until_generated(&event).await;
    world.wait_until_handled(4).await;
    let recorded = "SELECT count(*) AS count FROM event JOIN event_phase USING (event_id)
        WHERE extract(epoch FROM activate_time) = 1700000100 AND extract(epoch FROM end_time) = 1700000300";
    assert_eq!(world.count(recorded).await, 1);
}

#[tokio::test]
async fn released_claim_is_acknowledged_and_has_no_tickets() {
    let mut world = World::new().await;
    let claim_id = uuid::Uuid::now_v7().to_string();
    let released = ClaimReleased { claim_id: claim_id.clone(), unit_count: 2, ..Default::default() };
    world.publish(&claim_id, &released).await;
    world.wait_until_handled(1).await;
    assert_eq!(world.count("SELECT count(*) AS count FROM issuance").await, 0);
    world.wait_for_dead_letters(0).await;
}

#[tokio::test]
async fn malformed_event_goes_to_the_dead_letters_and_the_next_is_handled() {
    let mut world = World::new().await;
    let organizer = world.person(Role::Organizer);
    let broken = TestEvent::new(&organizer, &[2]).changed(|event| event.sectors[0].capacity = 0);
    world.publish_event(&broken).await;
    world.wait_for_dead_letters(1).await;
    let event = world.generated(&organizer, &[2]).await;
    world.assert_exact(event.sector(0), 2).await;
}
