//! `ActivateEvent` and `EndEvent`: transitions of an event, and the organizers who may make them.

use onsale_proto::{
    events::v1::{EventActivated, EventEnded},
    inventory::v1::{self as pb, EventState},
};
use tonic::Code;

use crate::support::{
    ORGANIZER, World, a_reservation, an_event, count, general, reason, refusal, request_id, time,
};

#[tokio::test]
async fn repeated_activate_and_end_take_effect_once() {
    let world = World::start().await;
    let mut asked = an_event(vec![general("A", 5)]);
    asked.on_sale_time = time(1_000_000_000);
    let draft = world.create(asked).await.unwrap();
    let active = world.activate(&draft.event_id).await.unwrap();
    assert_eq!((active.state(), active.revision), (EventState::OnSale, 2));
    assert!(active.activate_time.is_some());
    assert_eq!(world.activate(&draft.event_id).await.unwrap(), active);
    let published = world.published::<EventActivated>().await;
    assert_eq!(
        (published.len(), published[0].revision, published[0].on_sale_time),
        (1, 2, active.on_sale_time)
    );

    let ended = world.end(&draft.event_id).await.unwrap();
    assert_eq!((ended.state(), ended.revision), (EventState::Ended, 3));
    assert_eq!(world.end(&draft.event_id).await.unwrap(), ended);
    assert_eq!(world.published::<EventEnded>().await.len(), 1);
    let (code, text, metadata) = refusal(world.activate(&draft.event_id).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_TRANSITION_INVALID"));
    assert_eq!(metadata["state"], "ENDED");
}

#[tokio::test]
async fn draft_cannot_be_ended() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let (code, text, metadata) = refusal(world.end(&draft.event_id).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_TRANSITION_INVALID"));
    assert_eq!(metadata["state"], "DRAFT");
    assert!(world.published::<EventEnded>().await.is_empty());
}

#[tokio::test]
async fn paused_sale_resumes_when_it_is_activated() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    // No method pauses a sale yet, so the test acts as an operator.
    world.postgres.execute("halt", "UPDATE event SET state = 'PAUSED'", &[]).await.unwrap();
    let (code, text, metadata) =
        refusal(world.reserve(a_reservation(&event, vec![count(&event, 0, 1)])).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"));
    assert_eq!(metadata["state"], "PAUSED");
    assert_eq!(world.activate(&event.event_id).await.unwrap().state(), EventState::OnSale);
    assert_eq!(world.published::<EventActivated>().await.len(), 2);
    world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
}

#[tokio::test]
async fn event_of_another_organizer_cannot_be_changed() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let activate = |organizer| {
        let event_id = draft.event_id.clone();
        let message = pb::ActivateEventRequest { request_id: request_id(), event_id };
        let (mut events, request) = (world.events.clone(), world.as_organizer(organizer, message));
        async move { events.activate_event(request).await }
    };
    let end = |organizer| {
        let message = pb::EndEventRequest { request_id: request_id(), event_id: draft.event_id.clone() };
        let (mut events, request) = (world.events.clone(), world.as_organizer(organizer, message));
        async move { events.end_event(request).await }
    };
    let hidden = (Code::NotFound, "EVENT_NOT_FOUND".to_owned());
    assert_eq!(reason(activate("organizer-two").await), hidden);
    assert_eq!(reason(end("organizer-two").await), hidden);
    activate(ORGANIZER).await.unwrap();
    let foreign = (Code::PermissionDenied, "EVENT_NOT_OWNED".to_owned());
    assert_eq!(reason(activate("organizer-two").await), foreign);
    assert_eq!(reason(end("organizer-two").await), foreign);
    assert_eq!(world.get(&draft.event_id).await.state(), EventState::OnSale);
}
