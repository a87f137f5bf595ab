//! Reservations that can never succeed: each is refused with a specific error, and no unit is held.

use onsale_proto::{inventory::v1 as pb, r#type::v1::UnitSelection};
use tonic::Code;

use crate::support::{World, a_reservation, count, exactly, fields, general, reason, request_id, seated};

/// Asserts that there is no hold and that every unit is free.
async fn assert_nothing_held(world: &World, event: &pb::Event, what: &str) {
    assert_eq!(world.taken().await, 0, "{what}");
    assert_eq!(world.number("SELECT count(*) FROM hold", &[]).await, 0, "{what}");
    assert_eq!(
        world.number("SELECT count(*) FROM sector_sale WHERE taken_count > 0", &[]).await,
        0,
        "{what}"
    );
    for sector in world.availability(event).await.sectors {
        assert_eq!((sector.free_count, sector.held_count), (sector.capacity, 0), "{what}");
    }
}

#[tokio::test]
async fn invalid_counts_and_seats_are_refused_and_hold_nothing() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 40), seated("B", &[40])]).await;
    let both = UnitSelection { count: 1, ..exactly(&event, 1, &[1]) };
    let requests: Vec<(&str, Vec<UnitSelection>, &str)> = vec![
        ("nothing", vec![], "selections"),
        ("zero", vec![count(&event, 0, 0)], "selections[0]"),
        ("as many as there are numbers", vec![count(&event, 0, u32::MAX)], "selections[0]"),
        ("more than a customer may have", vec![count(&event, 0, 9)], "selections"),
        ("that in two sectors", vec![count(&event, 0, 5), count(&event, 1, 4)], "selections"),
        ("a count and seats", vec![both], "selections[0]"),
        ("a seat twice", vec![exactly(&event, 1, &[3, 4, 3])], "selections[0]"),
        ("seat zero", vec![exactly(&event, 1, &[1, 0])], "selections[0].units"),
        ("the seat after the last", vec![exactly(&event, 1, &[40, 41])], "selections[0].units"),
        ("the last number there is", vec![exactly(&event, 1, &[u32::MAX])], "selections[0].units"),
        ("seats where there are none", vec![exactly(&event, 0, &[1])], "selections[0].units"),
        ("a sector twice", vec![count(&event, 0, 1), count(&event, 0, 1)], "selections[1].sector_id"),
        (
            "a sector without a name",
            vec![UnitSelection { count: 1, ..UnitSelection::default() }],
            "selections[0].sector_id",
        ),
        ("every sector of eleven", vec![count(&event, 0, 1); 11], "selections"),
    ];
    for (what, selections, field) in requests {
        let found = fields(world.hold(&event, selections).await);
        assert!(found.iter().any(|it| it == field), "{what}: {found:?}");
        assert_nothing_held(&world, &event, what).await;
    }
    let many: Vec<u32> = (1..=40).collect();
    let many = fields(world.hold(&event, vec![exactly(&event, 1, &many)]).await);
    assert!(!many.is_empty());
    assert_nothing_held(&world, &event, "all seats at once").await;
}

#[tokio::test]
async fn sectors_of_other_events_are_refused_and_hold_nothing() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 40)]).await;
    let other = world.on_sale(vec![general("A", 40)]).await;
    let unknown = UnitSelection { sector_id: request_id(), count: 1, units: Vec::new() };
    for selection in [unknown, count(&other, 0, 1)] {
        // Together with a selection that could be held, because a reservation is all or nothing.
        let selections = vec![count(&event, 0, 2), selection];
        let refused = reason(world.hold(&event, selections).await);
        assert_eq!(refused, (Code::NotFound, "SECTOR_NOT_FOUND".to_owned()));
        assert_nothing_held(&world, &event, "an unknown sector or one of another event").await;
        assert_nothing_held(&world, &other, "its sector was selected in another event").await;
    }
}

#[tokio::test]
async fn hold_id_with_another_body_is_refused_and_changes_nothing() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10), seated("B", &[10])]).await;
    let other = world.on_sale(vec![general("A", 10)]).await;
    let first = a_reservation(&event, vec![count(&event, 0, 2)]);
    world.reserve(first.clone()).await.unwrap();
    let with = |selections| pb::ReserveUnitsRequest { request_id: request_id(), selections, ..first.clone() };
    let bodies = [
        with(vec![count(&event, 0, 1)]),
        with(vec![count(&event, 1, 2)]),
        with(vec![exactly(&event, 1, &[1, 2])]),
        with(vec![count(&event, 0, 2), count(&event, 1, 1)]),
        pb::ReserveUnitsRequest { customer_id: request_id(), ..with(vec![count(&event, 0, 2)]) },
        pb::ReserveUnitsRequest { event_id: other.event_id.clone(), ..with(vec![count(&other, 0, 2)]) },
    ];
    for body in bodies {
        let refused = reason(world.reserve(body.clone()).await);
        assert_eq!(refused, (Code::InvalidArgument, "HOLD_ID_REUSED".to_owned()), "{body:?}");
        assert_eq!((world.taken().await, world.counts(&event).await), (2, (8, 2)));
    }
    assert_eq!(world.counts(&other).await, (10, 0));
    world.assert_sells_out(&event).await;
}
