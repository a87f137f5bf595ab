//! `UpdateEvent`: a draft changes as requested, an event in any other state does not.

use onsale_proto::{
    events::v1::EventCreated,
    inventory::v1::{self as pb},
};
use prost_types::FieldMask;
use tonic::{Code, Status};

use crate::support::{
    ORGANIZER, World, an_event, fields, general, reason, refusal, request_id, seated, time,
};

async fn update(
    world: &World,
    organizer: &str,
    event_id: &str,
    event: pb::Event,
    mask: &[&str],
) -> Result<pb::Event, Status> {
    let paths: Vec<String> = mask.iter().map(ToString::to_string).collect();
    let message = pb::UpdateEventRequest {
        request_id: request_id(),
        event_id: event_id.to_owned(),
        event: Some(event),
        update_mask: (!paths.is_empty()).then_some(FieldMask { paths }),
    };
    let answer = world.events.clone().update_event(world.as_organizer(organizer, message)).await?;
    Ok(answer.into_inner().event.unwrap())
}

#[tokio::test]
async fn update_without_a_mask_changes_the_given_fields() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5), seated("B", &[3])])).await.unwrap();
    let change = pb::Event { name: "Renamed".to_owned(), ..pb::Event::default() };
    let changed = update(&world, ORGANIZER, &draft.event_id, change, &[]).await.unwrap();
    let expected = pb::Event {
        name: "Renamed".to_owned(),
        revision: 2,
        update_time: changed.update_time,
        ..draft.clone()
    };
    assert_eq!(changed, expected);
    assert_eq!(world.get(&draft.event_id).await, expected);
    let published = world.published::<EventCreated>().await;
    let last = published.last().unwrap();
    assert_eq!((published.len(), last.revision, &last.event.as_ref().unwrap().name[..]), (2, 2, "Renamed"));
}

#[tokio::test]
async fn mask_clears_fields_and_replaces_all_sectors() {
    let world = World::start().await;
    let mut asked = an_event(vec![general("A", 5), general("B", 6)]);
    asked.on_sale_time = time(3_900_000_000);
    let draft = world.create(asked).await.unwrap();
    // Sector B stays, moves to the front and grows; A is removed; C is new.
    let kept = pb::Sector { capacity: 60, ..draft.sectors[1].clone() };
    let change = pb::Event { sectors: vec![kept.clone(), seated("C", &[4])], ..pb::Event::default() };
    let mask = ["sectors", "on_sale_time", "description"];
    let changed = update(&world, ORGANIZER, &draft.event_id, change, &mask).await.unwrap();
    assert_eq!((changed.on_sale_time, &changed.description[..], changed.capacity), (None, "", 64));
    assert_eq!(changed.sectors[0], kept);
    assert!(draft.sectors.iter().all(|sector| sector.sector_id != changed.sectors[1].sector_id));
    assert_eq!(world.get(&draft.event_id).await, changed);
}

#[tokio::test]
async fn change_that_conflicts_with_kept_fields_is_refused() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let change = |change: pb::Event, mask| {
        let (world, draft) = (&world, &draft);
        async move { update(world, ORGANIZER, &draft.event_id, change, mask).await }
    };
    let dollars = pb::Event { currency_code: "USD".to_owned(), ..pb::Event::default() };
    assert_eq!(fields(change(dollars, &[]).await), ["event.sectors[0].price"]);
    let late = pb::Event { on_sale_time: draft.start_time, ..pb::Event::default() };
    assert_eq!(fields(change(late, &[]).await), ["event.on_sale_time"]);
    assert_eq!(fields(change(pb::Event::default(), &["name", "state"]).await), ["update_mask"]);
    assert_eq!(fields(change(pb::Event::default(), &["name"]).await), ["event.name"]);
    let twice =
        vec![draft.sectors[0].clone(), pb::Sector { name: "B".to_owned(), ..draft.sectors[0].clone() }];
    let twice = pb::Event { sectors: twice, ..pb::Event::default() };
    assert_eq!(fields(change(twice, &[]).await), ["event.sectors[1].sector_id"]);
    let mut unknown = general("B", 1);
    unknown.sector_id = request_id();
    let named = unknown.sector_id.clone();
    let (code, reason, metadata) =
        refusal(change(pb::Event { sectors: vec![unknown], ..pb::Event::default() }, &[]).await);
    assert_eq!((code, &reason[..]), (Code::NotFound, "SECTOR_NOT_FOUND"));
    assert_eq!(metadata["sector_id"], named);
    assert_eq!(world.get(&draft.event_id).await, draft);
    assert_eq!(world.published::<EventCreated>().await.len(), 1);
}

#[tokio::test]
async fn outdated_revision_other_organizer_and_public_event_are_refused() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let renamed = |revision| pb::Event { name: "Renamed".to_owned(), revision, ..pb::Event::default() };
    let id = &draft.event_id;
    update(&world, ORGANIZER, id, renamed(1), &[]).await.unwrap();
    let (code, reason_text, metadata) = refusal(update(&world, ORGANIZER, id, renamed(1), &[]).await);
    assert_eq!((code, &reason_text[..]), (Code::Aborted, "EVENT_REVISION_OUTDATED"));
    assert_eq!(metadata["revision"], "2");
    let foreign = update(&world, "organizer-two", id, renamed(0), &[]).await;
    assert_eq!(reason(foreign), (Code::NotFound, "EVENT_NOT_FOUND".to_owned()));
    world.activate(id).await.unwrap();
    let foreign = update(&world, "organizer-two", id, renamed(0), &[]).await;
    assert_eq!(reason(foreign), (Code::PermissionDenied, "EVENT_NOT_OWNED".to_owned()));
    let (code, reason_text, metadata) = refusal(update(&world, ORGANIZER, id, renamed(0), &[]).await);
    assert_eq!((code, &reason_text[..]), (Code::FailedPrecondition, "EVENT_NOT_DRAFT"));
    assert_eq!(metadata["state"], "ON_SALE");
}
