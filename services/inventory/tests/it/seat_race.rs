//! Many want the same seats at the same moment: each seat has one winner, and everybody else hears which seats were taken
//! and which they may have instead.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use onsale_proto::inventory::v1 as pb;
use tonic::{Code, Status};

use crate::{
    books::{assert_short, units},
    support::{World, a_reservation, exactly, numbers, refusal, seated},
};

const SEATS: u32 = 20;

/// The customers ask two pods, half of them each, all at once.
async fn all_at_once(
    pods: &[World; 2],
    messages: &[pb::ReserveUnitsRequest],
) -> Vec<Result<pb::Hold, Status>> {
    let asks = messages.iter().enumerate().map(|(index, message)| pods[index % 2].reserve_patiently(message));
    join_all(asks).await
}

async fn two_pods() -> [World; 2] {
    let first = World::start().await;
    let second = first.twin(&[]).await;
    [first, second]
}

#[tokio::test]
async fn of_a_hundred_who_want_one_seat_one_gets_it_and_the_others_are_offered_free_ones() {
    const WANTED: u32 = 7;
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[SEATS / 2, SEATS / 2])]).await;
    let wish = || a_reservation(&event, vec![exactly(&event, 0, &[WANTED])]);
    let mut messages: Vec<_> = (0..100).map(|_| wish()).collect();
    // Once for a free seat, and once more when the winner has given it back.
    for _ in 0..2 {
        let answers = all_at_once(&pods, &messages).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 99));
        for refused in lost {
            let (code, text, metadata) = refusal(refused);
            assert_eq!((code, &text[..]), (Code::FailedPrecondition, "UNITS_TAKEN"));
            assert_eq!(metadata["sector_id"], event.sectors[0].sector_id);
            assert_eq!(units(&metadata["taken_units"]), [WANTED]);
            // Nobody takes any other seat, so all the others are free all the time.
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
        pods[0].assert_books(&event).await;
        pods[1].release(&won.hold_id).await.unwrap();
        // The losers ask again as before, with another instead of the winner, whose hold is over.
        messages.retain(|message| message.hold_id != won.hold_id);
        messages.push(wish());
    }
    pods[1].assert_sells_out(&event).await;
}

#[tokio::test]
async fn what_is_offered_instead_of_a_taken_seat_can_be_had() {
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[4, 4])]).await;
    let mut wanted = vec![1];
    // Each takes what the one before was offered, until nothing is left.
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
    pods[0].assert_books(&event).await;
}

#[tokio::test]
async fn of_overlapping_groups_the_winners_share_no_seat_and_nobody_loses_to_a_loser() {
    let pods = two_pods().await;
    let event = pods[0].on_sale(vec![seated("A", &[SEATS]), seated("B", &[SEATS])]).await;
    // Group n wants the seats n and n + 1, of one sector or of both, and each pair is wanted thrice.
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
        // Nothing is given back here: who was refused was refused for a seat that a winner has.
        let (_, _, metadata) = refusal(Err::<(), _>(status.clone()));
        let taken = units(&metadata["taken_units"]);
        for unit in &taken {
            assert!(sold.contains(&(metadata["sector_id"].clone(), *unit)), "unit {unit} is nobody's");
        }
        let offered = metadata.get("alternative_units").map(|text| units(text)).unwrap_or_default();
        assert!(offered.iter().all(|unit| !taken.contains(unit)), "{taken:?} and {offered:?}");
    }
    for sector in [0, 1] {
        let sector_id = &event.sectors[sector].sector_id;
        let won: Vec<u32> = sold.iter().filter(|(id, _)| id == sector_id).map(|(_, unit)| *unit).collect();
        assert_eq!(pods[1].taken_of(&event, sector).await.into_keys().collect::<Vec<_>>(), won);
    }
    pods[0].assert_books(&event).await;
    pods[1].assert_sells_out(&event).await;
}
