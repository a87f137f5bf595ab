//! Many customers want the same seats at the same time: each seat has one winner, and the others learn which seats are taken
//! and which are free instead.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use onsale_proto::inventory::v1 as pb;
use tonic::{Code, Status};

use crate::{
    support::consistency::{assert_short, units},
    support::{World, a_reservation, exactly, numbers, refusal, seated},
};

const SEATS: u32 = 20;

/// Runs the customers concurrently, half of them on each of two pods.
async fn all_at_once(
    pods: &[World; 2],
    messages: &[pb::ReserveUnitsRequest],
) -> Vec<Result<pb::Hold, Status>> {
    let asks =
        messages.iter().enumerate().map(|(index, message)| pods[index % 2].reserve_until_final(message));
    join_all(asks).await
}

async fn two_pods() -> [World; 2] {
    let first = World::start().await;
    let second = first.twin(&[]).await;
    [first, second]
}

#[tokio::test]
async fn contested_seat_has_one_winner_and_losers_get_alternatives() {
    const WANTED: u32 = 7;
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[SEATS / 2, SEATS / 2])]).await;
    let request = || a_reservation(&event, vec![exactly(&event, 0, &[WANTED])]);
    let mut messages: Vec<_> = (0..100).map(|_| request()).collect();
    // Once for a free seat, and once more after the winner has released it.
    for _ in 0..2 {
        let answers = all_at_once(&pods, &messages).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 99));
        for refused in lost {
            let (code, text, metadata) = refusal(refused);
            assert_eq!((code, &text[..]), (Code::FailedPrecondition, "UNITS_TAKEN"));
            assert_eq!(metadata["sector_id"], event.sectors[0].sector_id);
            assert_eq!(units(&metadata["taken_units"]), [WANTED]);
            // No other seat is taken, so all others stay free.
            let offered = units(&metadata["alternative_units"]);
            assert!(
                offered.len() == 1 && offered[0] != WANTED && (1..=SEATS).contains(&offered[0]),
                "{offered:?}"
            );
        }
        let won = won.into_iter().next().unwrap().unwrap();
        assert_eq!(numbers(&won, 0), [WANTED]);
        let holder = pods[1].taken_of(&event, 0).await;
        assert_eq!(holder.keys().copied().collect::<Vec<_>>(), [WANTED]);
        assert_eq!(holder[&WANTED].0, won.hold_id);
        pods[0].assert_consistent(&event).await;
        pods[1].release(&won.hold_id).await.unwrap();
        // The losers try again, with another customer in place of the winner, whose hold is over.
        messages.retain(|message| message.hold_id != won.hold_id);
        messages.push(request());
    }
    pods[1].assert_sells_out(&event).await;
}

#[tokio::test]
async fn offered_alternatives_can_be_reserved() {
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[4, 4])]).await;
    let mut wanted = vec![1];
    // Each customer takes the seat that the one before was offered, until none is left.
    for left in (0..8).rev() {
        let pod = &pods[usize::try_from(left % 2).unwrap()];
        let got = pod.hold(&event, vec![exactly(&event, 0, &wanted)]).await.unwrap();
        let (_, text, metadata) = refusal(pod.hold(&event, vec![exactly(&event, 0, &wanted)]).await);
        assert_eq!((&text[..], units(&metadata["taken_units"])), ("UNITS_TAKEN", numbers(&got, 0)));
        match metadata.get("alternative_units") {
            Some(offered) => wanted = units(offered),
            None => assert_eq!(left, 0, "{left} seats are free"),
        }
    }
    pods[0].assert_consistent(&event).await;
}

#[tokio::test]
async fn overlapping_groups_lose_only_to_winners() {
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[SEATS]), seated("B", &[SEATS])]).await;
    // Group n wants the seats n and n + 1, of one sector or of both; three customers want each pair.
    let pairs = (1..SEATS).flat_map(|first| std::iter::repeat_n([first, first + 1], 3));
    let messages: Vec<_> = pairs
        .enumerate()
        .map(|(index, pair)| {
            let selections = match index % 4 {
                0 => vec![exactly(&event, 0, &pair), exactly(&event, 1, &pair)],
                1 => vec![exactly(&event, 1, &pair), exactly(&event, 0, &pair)],
                2 => vec![exactly(&event, 0, &pair)],
                _ => vec![exactly(&event, 1, &pair)],
            };
            a_reservation(&event, selections)
        })
        .collect();
    let answers = all_at_once(&pods, &messages).await;

    let mut sold = BTreeSet::new();
    for hold in answers.iter().flatten() {
        for item in &hold.items {
            for unit in &item.units {
                assert!(
                    sold.insert((item.sector_id.clone(), unit.number)),
                    "unit {} has two holders",
                    unit.number
                );
            }
        }
    }
    for (message, answer) in messages.iter().zip(&answers) {
        let Err(status) = answer else { continue };
        assert_short(message, status);
        // No hold is released here, so each loser was refused for a seat that a winner has.
        let (_, _, metadata) = refusal(Err::<(), _>(status.clone()));
        let taken = units(&metadata["taken_units"]);
        for unit in &taken {
            assert!(sold.contains(&(metadata["sector_id"].clone(), *unit)), "unit {unit} has no holder");
        }
        let offered = metadata.get("alternative_units").map(|text| units(text)).unwrap_or_default();
        assert!(offered.iter().all(|unit| !taken.contains(unit)), "{taken:?} and {offered:?}");
    }
    for sector in [0, 1] {
        let sector_id = &event.sectors[sector].sector_id;
        let won: Vec<u32> = sold.iter().filter(|(id, _)| id == sector_id).map(|(_, unit)| *unit).collect();
        assert_eq!(pods[1].taken_of(&event, sector).await.into_keys().collect::<Vec<_>>(), won);
    }
    pods[0].assert_consistent(&event).await;
    pods[1].assert_sells_out(&event).await;
}
