//! Many concurrent customers for few units: every unit is sold, and none twice.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use onsale_proto::inventory::v1::{self as pb};
use tonic::{Code, Status};

use crate::support::{World, count, exactly, general, numbers, reason, seated};

/// Returns the units of the served customers; the others must have been refused for want of units.
fn sold(answers: Vec<Result<pb::Hold, Status>>) -> Vec<u32> {
    let mut units = Vec::new();
    for answer in answers {
        match answer {
            Ok(hold) => units.extend(numbers(&hold, 0)),
            Err(status) => assert_eq!(
                reason(Err::<(), _>(status)),
                (Code::FailedPrecondition, "NOT_ENOUGH_UNITS".to_owned())
            ),
        }
    }
    units.sort_unstable();
    units
}

#[tokio::test]
async fn hundred_concurrent_customers_buy_exactly_fifty_units() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 50)]).await;
    let answers = join_all((0..100).map(|_| world.hold(&event, vec![count(&event, 0, 1)]))).await;
    assert_eq!(sold(answers), (1..=50).collect::<Vec<_>>());
    assert_eq!(world.taken().await, 50);
}

#[tokio::test]
async fn hundred_concurrent_pairs_buy_exactly_fifty_seats() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[10, 10, 10, 10, 10])]).await;
    let answers = join_all((0..100).map(|_| world.hold(&event, vec![count(&event, 0, 2)]))).await;
    assert!(
        answers.iter().flatten().all(|hold| hold.items[0].group_count == 1),
        "rows of ten hold five pairs"
    );
    assert_eq!(sold(answers), (1..=50).collect::<Vec<_>>());
}

#[tokio::test]
async fn seat_wanted_by_many_has_one_holder() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[10])]).await;
    let answers = join_all((0..30).map(|_| world.hold(&event, vec![exactly(&event, 0, &[5])]))).await;
    let (held, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(held.len(), 1);
    for answer in refused {
        assert_eq!(reason(answer), (Code::FailedPrecondition, "UNITS_TAKEN".to_owned()));
    }
    assert_eq!(world.taken().await, 1);
}

#[tokio::test]
async fn chosen_and_assigned_seats_share_a_sector_without_loss() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[8, 8, 8])]).await;
    let chosen = (1..=12).map(|unit| world.hold(&event, vec![exactly(&event, 0, &[unit * 2])]));
    let any = (0..24).map(|_| world.hold(&event, vec![count(&event, 0, 1)]));
    let (chosen, any) = futures_util::future::join(join_all(chosen), join_all(any)).await;
    let units: Vec<u32> = chosen.iter().chain(&any).flatten().flat_map(|hold| numbers(hold, 0)).collect();
    assert_eq!(units.iter().collect::<BTreeSet<_>>().len(), units.len(), "no unit twice");
    assert_eq!(units.len(), 24, "the other seats were assigned");
}

#[tokio::test]
async fn selections_of_two_sectors_in_any_order_do_not_deadlock() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[6]), seated("B", &[6])]).await;
    let requests = (0..20).map(|index| {
        let mut selections = vec![exactly(&event, 0, &[1, 2]), exactly(&event, 1, &[1, 2])];
        if index % 2 == 0 {
            selections.reverse();
        }
        world.hold(&event, selections)
    });
    let answers = join_all(requests).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(world.taken().await, 4);
}

#[tokio::test]
async fn units_released_during_a_rush_are_sold() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    // Every customer retries until they hold a unit or have been refused many times; every third one releases once.
    let customers = (0..40).map(|index| {
        let (world, event) = (&world, &event);
        async move {
            let mut lets_go = index % 3 == 0;
            for _ in 0..20 {
                match world.hold(event, vec![count(event, 0, 1)]).await {
                    Ok(hold) if lets_go => {
                        lets_go = false;
                        world.release(&hold.hold_id).await.unwrap();
                    }
                    Ok(_) => return,
                    Err(status) => assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}"),
                }
            }
        }
    });
    join_all(customers).await;
    assert_eq!(world.taken().await, 20);
}
