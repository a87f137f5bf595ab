//! SOLD_OUT is published once, by the commit of the last unit, and withdrawn when units become free.

use futures_util::future::join_all;
use onsale_proto::{
    events::v1::{EventEnded, InventoryAvailable, InventorySoldOut},
    inventory::v1::EventState,
};
use tonic::Code;

use crate::support::{World, count, exactly, general, refusal, seated};

#[tokio::test]
async fn event_is_sold_out_by_the_last_commit_not_by_holds() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 2), seated("B", &[1])]).await;
    let first = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    let last = world.hold(&event, vec![exactly(&event, 1, &[1])]).await.unwrap();
    world.commit(&first.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    assert!(world.published::<InventorySoldOut>().await.is_empty());
    let (_, text, _) = refusal(world.hold(&event, vec![count(&event, 1, 1)]).await);
    assert_eq!(text, "NOT_ENOUGH_UNITS");

    world.commit(&last.hold_id).await.unwrap();
    world.commit(&last.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    let published = world.published::<InventorySoldOut>().await;
    assert_eq!((published.len(), &published[0].event_id), (1, &event.event_id));
    assert_eq!(published[0].revision, world.availability(&event).await.revision);
    let (code, text, metadata) = refusal(world.hold(&event, vec![count(&event, 1, 1)]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"));
    assert_eq!(metadata["state"], "SOLD_OUT");
    let (_, text, metadata) = refusal(world.activate(&event.event_id).await);
    assert_eq!((&text[..], &metadata["state"][..]), ("EVENT_TRANSITION_INVALID", "SOLD_OUT"));
}

#[tokio::test]
async fn sectors_filled_concurrently_sell_the_event_out_once() {
    let world = World::start().await;
    let sectors = (0..8).map(|index| general(&index.to_string(), 2)).collect();
    let event = world.on_sale(sectors).await;
    let holds = join_all((0..16).map(|index| world.hold(&event, vec![count(&event, index % 8, 1)]))).await;
    let holds: Vec<_> = holds.into_iter().map(Result::unwrap).collect();
    let commits = join_all(holds.iter().map(|hold| world.commit(&hold.hold_id))).await;
    assert!(commits.iter().all(Result::is_ok));
    assert_eq!(world.published::<InventorySoldOut>().await.len(), 1);
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
}

#[tokio::test]
async fn freed_units_reopen_a_sold_out_sale() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 1), general("B", 1)]).await;
    let first = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    let second = world.hold(&event, vec![count(&event, 1, 1)]).await.unwrap();
    world.commit(&first.hold_id).await.unwrap();
    world.commit(&second.hold_id).await.unwrap();
    // No method undoes a sale yet, so the test turns one sold hold into a held one as an operator.
    world
        .postgres
        .execute(
            "undo a sale",
            "WITH undone AS (UPDATE hold SET state = 'HELD', end_time = NULL WHERE hold_id = $1::text::uuid)
             UPDATE sector_sale SET sold_count = 0 WHERE sector_id = $2::text::uuid",
            &[&second.hold_id, &event.sectors[1].sector_id],
        )
        .await
        .unwrap();
    world.release(&second.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    let published = world.published::<InventoryAvailable>().await;
    assert_eq!(published.len(), 1);
    assert_eq!(published[0].sectors.len(), 1);
    let sector = &published[0].sectors[0];
    assert_eq!(
        (&sector.sector_id, &sector.name[..], sector.free_count),
        (&event.sectors[1].sector_id, "B", 1)
    );
    assert!(published[0].revision > world.published::<InventorySoldOut>().await[0].revision);

    let again = world.hold(&event, vec![count(&event, 1, 1)]).await.unwrap();
    world.commit(&again.hold_id).await.unwrap();
    let sold_out = world.published::<InventorySoldOut>().await;
    assert_eq!(sold_out.len(), 2);
    assert!(sold_out[1].revision > published[0].revision);
}

#[tokio::test]
async fn ended_event_does_not_become_sold_out() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 1)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.end(&event.event_id).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::Ended);
    assert!(world.published::<InventorySoldOut>().await.is_empty());
    assert_eq!(world.published::<EventEnded>().await.len(), 1);
}
