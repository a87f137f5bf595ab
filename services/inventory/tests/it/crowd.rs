//! Two thousand customers compete for five hundred units on two pods. They reserve, repeat, release, pay or abandon. In the end
//! every unit has the right holder, and the free units can be reserved.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use onsale_proto::{
    inventory::v1::{self as pb, HoldState},
    r#type::v1::UnitSelection,
};
use onsale_storage::postgres::column;
use onsale_testkit::wait_until;

use crate::{
    support::consistency::{Chance, assert_short},
    support::{SOON, World, a_reservation, count, exactly, general, reason, seated},
};

const CUSTOMERS: u32 = 2_000;
/// Customers that run concurrently.
const AT_ONCE: usize = 64;
const ROW: u32 = 20;

/// The result of one customer.
struct Outcome {
    message: pb::ReserveUnitsRequest,
    /// The hold and the state in which it must end; `None`: refused.
    hold: Option<(pb::Hold, HoldState)>,
}

fn selections_of_customer(event: &pb::Event, chance: &mut Chance) -> Vec<UnitSelection> {
    let size = 1 + chance.below(8);
    match chance.below(10) {
        0..=3 => vec![count(event, 0, size)],
        4..=6 => vec![count(event, 1, size)],
        // Adjacent seats that the customer chooses by number.
        7 => {
            let (row, place) = (chance.below(10), chance.below(ROW - size + 1));
            let seats: Vec<u32> = (1..=size).map(|seat| row * ROW + place + seat).collect();
            vec![exactly(event, 1, &seats)]
        }
        8 => vec![count(event, 2, size)],
        _ if size == 1 => vec![count(event, 2, 1)],
        _ => vec![count(event, 2, size / 2), count(event, 0, size - size / 2)],
    }
}

/// Runs one customer.
async fn run_customer(pods: &[World; 2], event: &pb::Event, number: u32) -> Outcome {
    let mut chance = Chance::of(number);
    let mut message = a_reservation(event, selections_of_customer(event, &mut chance));
    let forgets = chance.one_in(5);
    if forgets {
        let seconds = i64::from(1 + chance.below(2));
        message.release_after = Some(prost_types::Duration { seconds, nanos: 0 });
    }
    let at = usize::try_from(chance.below(2)).unwrap();
    let (pod, other) = (&pods[at], &pods[1 - at]);
    let hold = match pod.reserve_until_final(&message).await {
        Ok(hold) => hold,
        Err(status) => {
            assert_short(&message, &status);
            return Outcome { message, hold: None };
        }
    };
    let sizes = hold.items.iter().map(|item| item.units.len());
    let wanted = message.selections.iter().map(|it| it.units.len().max(usize::try_from(it.count).unwrap()));
    assert!(sizes.eq(wanted), "all or nothing: {hold:?}");
    if chance.one_in(8) {
        let again = other.reserve_until_final(&message).await.unwrap();
        assert_eq!((&again.hold_id, &again.items), (&hold.hold_id, &hold.items));
    }
    let end = match chance.below(30) {
        0 => match other.commit_until_final(&hold.hold_id).await {
            Ok(_) => HoldState::Committed,
            refused => {
                assert_eq!((reason(refused).1.as_str(), forgets), ("HOLD_RELEASED", true));
                HoldState::Released
            }
        },
        // Abandoned: the hold expires, or stays until then.
        1 if !forgets => HoldState::Held,
        1..=14 if forgets => HoldState::Released,
        _ => {
            other.release_until_final(&hold.hold_id).await;
            HoldState::Released
        }
    };
    Outcome { message, hold: Some((hold, end)) }
}

/// Asserts that every hold is in its customer's final state, and that only active holds have units.
async fn assert_as_left(world: &World, event: &pb::Event, outcomes: &[Outcome]) {
    let sql = "SELECT hold_id::text AS hold_id, state FROM hold";
    let rows = world.postgres.query("holds", sql, &[]).await.unwrap();
    let found: BTreeMap<String, String> =
        rows.iter().map(|row| (column(row, "hold_id").unwrap(), column(row, "state").unwrap())).collect();
    let name = |state: HoldState| state.as_str_name().trim_start_matches("HOLD_STATE_").to_owned();
    let held = || outcomes.iter().filter_map(|outcome| outcome.hold.as_ref());
    let left: BTreeMap<String, String> =
        held().map(|(hold, end)| (hold.hold_id.clone(), name(*end))).collect();
    assert_eq!(found, left);

    for (index, sector) in event.sectors.iter().enumerate() {
        let mut owners = BTreeMap::new();
        for (hold, _) in held().filter(|(_, end)| *end != HoldState::Released) {
            for item in hold.items.iter().filter(|item| item.sector_id == sector.sector_id) {
                for unit in &item.units {
                    let twice = owners.insert(unit.number, hold.hold_id.clone());
                    assert_eq!(twice, None, "unit {} has two holders", unit.number);
                }
            }
        }
        let taken = world.taken_of(event, index).await;
        let taken: BTreeMap<u32, String> = taken.into_iter().map(|(unit, (hold, _))| (unit, hold)).collect();
        assert_eq!(taken, owners);
    }
}

/// Lets the refused customers retry one after the other: a request for no more units than are free succeeds.
async fn serve_the_refused(world: &World, event: &pb::Event, outcomes: &[Outcome]) -> usize {
    let mut taken: Vec<BTreeSet<u32>> = Vec::new();
    for sector in 0..event.sectors.len() {
        taken.push(world.taken_of(event, sector).await.into_keys().collect());
    }
    let place = |id: &str| event.sectors.iter().position(|sector| sector.sector_id == id).unwrap();
    let mut served = 0;
    for outcome in outcomes.iter().filter(|outcome| outcome.hold.is_none()).take(150) {
        // No hold is abandoned this time.
        let release_after = Some(prost_types::Duration { seconds: 600, nanos: 0 });
        let message = &pb::ReserveUnitsRequest { release_after, ..outcome.message.clone() };
        let can_be_had = message.selections.iter().all(|wanted| {
            let (sector, taken) =
                (&event.sectors[place(&wanted.sector_id)], &taken[place(&wanted.sector_id)]);
            let free = sector.capacity - u32::try_from(taken.len()).unwrap();
            wanted.count <= free && !wanted.units.iter().any(|unit| taken.contains(unit))
        });
        match world.reserve_until_final(message).await {
            Ok(hold) => {
                assert!(can_be_had, "{message:?}");
                served += 1;
                for item in &hold.items {
                    let taken = &mut taken[place(&item.sector_id)];
                    assert!(item.units.iter().all(|unit| taken.insert(unit.number)), "no unit twice");
                }
            }
            Err(status) => assert!(!can_be_had, "{message:?}: {status:?}"),
        }
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_2000_leaves_500_units_accounted_for() {
    let settings = [("HOLDS__EXPIRE_EVERY", "100ms"), ("POOL__RECONCILE_EVERY", "300ms")];
    let first = World::start_with(&settings).await;
    let pods = [first.twin(&settings).await, first];
    let rows = [ROW; 10];
    let event = pods[1].on_sale(vec![general("A", 200), seated("B", &rows), general("C", 100)]).await;

    let customers = stream::iter(0..CUSTOMERS).map(|number| run_customer(&pods, &event, number));
    let outcomes: Vec<Outcome> = customers.buffer_unordered(AT_ONCE).collect().await;
    wait_until("abandoned holds are released", SOON, async || {
        let sql =
            "SELECT count(*) FROM hold WHERE state = 'HELD' AND expire_time < now() + interval '1 minute'";
        pods[0].number(sql, &[]).await == 0
    })
    .await;
    let ends =
        |state| outcomes.iter().filter(|it| it.hold.as_ref().is_some_and(|(_, end)| *end == state)).count();
    let counts = [HoldState::Held, HoldState::Committed, HoldState::Released].map(ends);
    println!("held, sold, given back: {counts:?} of {CUSTOMERS}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");

    assert_as_left(&pods[0], &event, &outcomes).await;
    for pod in &pods {
        pod.assert_consistent(&event).await;
    }
    let served = serve_the_refused(&pods[1], &event, &outcomes).await;
    println!("{served} of those who were refused are served after all");
    pods[0].assert_sells_out(&event).await;
}
