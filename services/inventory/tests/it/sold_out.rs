//! Sold out is said once, by the commit that sells the last unit; and taken back when units come back.

use futures_util::future::join_all;
use onsale_proto::{
    events::v1::{EventEnded, InventoryAvailable, InventorySoldOut},
    inventory::v1::EventState,
};
use tonic::Code;

use crate::support::{World, count, exactly, general, refusal, seated};

#[tokio::test]
async fn held_units_are_not_sold_out_and_the_last_commit_is() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 2), seated("B", &[1])]).await;
    let first = world.hold(&event, vec![count(&event, 0, 2)]).await.unwrap();
    let last = world.hold(&event, vec![exactly(&event, 1, &[1])]).await.unwrap();
    world.commit(&first.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale);
    assert!(world.told::<InventorySoldOut>().await.is_empty());
    let (_, text, _) = refusal(world.hold(&event, vec![count(&event, 1, 1)]).await);
    assert_eq!(text, "NOT_ENOUGH_UNITS");

    world.commit(&last.hold_id).await.unwrap();
    world.commit(&last.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
    let told = world.told::<InventorySoldOut>().await;
    assert_eq!((told.len(), &told[0].event_id), (1, &event.event_id));
    assert_eq!(told[0].revision, world.availability(&event).await.revision);
    let (code, text, metadata) = refusal(world.hold(&event, vec![count(&event, 1, 1)]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"));
    assert_eq!(metadata["state"], "SOLD_OUT");
    let (_, text, metadata) = refusal(world.activate(&event.event_id).await);
    assert_eq!((&text[..], &metadata["state"][..]), ("EVENT_TRANSITION_INVALID", "SOLD_OUT"));
}

#[tokio::test]
async fn sectors_filled_side_by_side_sell_the_event_out_exactly_once() {
    let world = World::start().await;
    let sectors = (0..8).map(|index| general(&index.to_string(), 2)).collect();
    let event = world.on_sale(sectors).await;
    let holds = join_all((0..16).map(|index| world.hold(&event, vec![count(&event, index % 8, 1)]))).await;
    let holds: Vec<_> = holds.into_iter().map(Result::unwrap).collect();
    let commits = join_all(holds.iter().map(|hold| world.commit(&hold.hold_id))).await;
    assert!(commits.iter().all(Result::is_ok));
    assert_eq!(world.told::<InventorySoldOut>().await.len(), 1);
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
}

#[tokio::test]
async fn units_that_come_back_open_the_sale_again() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 1), general("B", 1)]).await;
    let first = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    let second = world.hold(&event, vec![count(&event, 1, 1)]).await.unwrap();
    world.commit(&first.hold_id).await.unwrap();
    world.commit(&second.hold_id).await.unwrap();
    // No method takes a sold unit back yet; here an operator has undone the sale of one, as far as to a hold.
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
    let told = world.told::<InventoryAvailable>().await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].sectors.len(), 1);
    let sector = &told[0].sectors[0];
    assert_eq!(
        (&sector.sector_id, &sector.name[..], sector.free_count),
        (&event.sectors[1].sector_id, "B", 1)
    );
    assert!(told[0].revision > world.told::<InventorySoldOut>().await[0].revision);

    let again = world.hold(&event, vec![count(&event, 1, 1)]).await.unwrap();
    world.commit(&again.hold_id).await.unwrap();
    let sold_out = world.told::<InventorySoldOut>().await;
    assert_eq!(sold_out.len(), 2);
    assert!(sold_out[1].revision > told[0].revision);
}

#[tokio::test]
async fn a_sale_that_has_ended_is_over_and_not_sold_out() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 1)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    world.end(&event.event_id).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::Ended);
    assert!(world.told::<InventorySoldOut>().await.is_empty());
    assert_eq!(world.told::<EventEnded>().await.len(), 1);
}
