//! `ReserveUnits`: the content of a hold, refusals and their reasons, and repeated requests.

use onsale_proto::inventory::v1::{self as pb, HoldState};
use onsale_types::{HoldId, Timestamp};
use tonic::Code;

use crate::support::{
    World, a_reservation, an_event, count, euros, exactly, fields, general, numbers, reason, refusal,
    request_id, seated, time,
};

#[tokio::test]
async fn hold_has_units_seats_prices_and_the_event() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("Standing", 10), seated("West", &[4, 4])]).await;
    let selections = vec![exactly(&event, 1, &[6, 5]), count(&event, 0, 2)];
    let message = a_reservation(&event, selections);
    let answer = world.reserve(message.clone()).await.unwrap();
    let hold = answer.hold.unwrap();
    assert_eq!(hold.state(), HoldState::Held);
    assert_eq!((&hold.hold_id, &hold.customer_id), (&message.hold_id, &message.customer_id));
    assert_eq!((numbers(&hold, 0), numbers(&hold, 1)), (vec![5, 6], vec![1, 2]));
    let seats: Vec<_> = hold.items[0].units.iter().map(|unit| unit.seat.clone().unwrap()).collect();
    assert_eq!((&seats[0].row_label[..], &seats[0].seat_label[..]), ("2", "1"));
    assert_eq!((&seats[1].row_label[..], &seats[1].seat_label[..]), ("2", "2"));
    assert!(hold.items[1].units.iter().all(|unit| unit.seat.is_none()));
    assert_eq!(
        (hold.items[0].unit_price.clone(), hold.items[0].amount.clone()),
        (euros(4_000), euros(8_000))
    );
    assert_eq!((hold.items[0].group_count, hold.items[1].group_count), (1, 0));
    assert_eq!(&hold.items[0].sector_name, "West");
    let (created, expires) = (hold.create_time.unwrap(), hold.expire_time.unwrap());
    assert_eq!(expires.seconds - created.seconds, 600);
    assert_eq!(answer.event.unwrap().name, event.name);
    assert_eq!(answer.units_per_customer_max, 8);
}

#[tokio::test]
async fn event_is_returned_unless_its_revision_is_known() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("Standing", 3)]).await;
    let ask = |known_event_revision| {
        let asked = a_reservation(&event, vec![count(&event, 0, 1)]);
        world.reserve(pb::ReserveUnitsRequest { known_event_revision, ..asked })
    };
    let stranger = ask(0).await.unwrap();
    assert_eq!(stranger.event.unwrap().name, event.name);
    let published = ask(stranger.event_revision).await.unwrap();
    assert_eq!((published.event, published.event_revision), (None, stranger.event_revision));
    assert_eq!((numbers(&published.hold.unwrap(), 0), published.units_per_customer_max), (vec![2], 8));
    // No method changes an event on sale yet, so the test acts as an operator.
    let rename = "UPDATE event SET name = 'Replay', revision = revision + 1";
    world.postgres.execute("rename", rename, &[]).await.unwrap();
    let late = ask(stranger.event_revision).await.unwrap();
    assert_eq!(late.event_revision, stranger.event_revision + 1);
    assert_eq!(late.event.unwrap().name, "Replay");
}

#[tokio::test]
async fn seats_are_adjacent_or_in_as_few_groups_as_possible() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("West", &[4, 4])]).await;
    let take = |selection| async { world.hold(&event, vec![selection]).await.unwrap() };
    assert_eq!(numbers(&take(exactly(&event, 0, &[2])).await, 0), [2]);
    // Row 1 has seats 1, 3 and 4 left; row 2 is complete.
    let three = take(count(&event, 0, 3)).await;
    assert_eq!((numbers(&three, 0), three.items[0].group_count), (vec![5, 6, 7], 1));
    let two = take(count(&event, 0, 2)).await;
    assert_eq!((numbers(&two, 0), two.items[0].group_count), (vec![3, 4], 1));
    let rest = take(count(&event, 0, 2)).await;
    assert_eq!((numbers(&rest, 0), rest.items[0].group_count), (vec![1, 8], 2));
}

#[tokio::test]
async fn chosen_seats_are_all_or_nothing_with_alternatives() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("West", &[4, 4])]).await;
    world.hold(&event, vec![exactly(&event, 0, &[2, 3])]).await.unwrap();
    let (code, text, metadata) = refusal(world.hold(&event, vec![exactly(&event, 0, &[1, 2, 3])]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "UNITS_TAKEN"));
    assert_eq!(metadata["sector_id"], event.sectors[0].sector_id);
    assert_eq!((&metadata["taken_units"][..], &metadata["alternative_units"][..]), ("2,3", "5,6,7"));
    assert_eq!(world.taken().await, 2);
    // The seat that was free is still free.
    world.hold(&event, vec![exactly(&event, 0, &[1])]).await.unwrap();
    world.hold(&event, vec![exactly(&event, 0, &[4, 5, 6, 7])]).await.unwrap();
    let (_, text, metadata) = refusal(world.hold(&event, vec![exactly(&event, 0, &[7, 8])]).await);
    assert_eq!((&text[..], metadata.contains_key("alternative_units")), ("UNITS_TAKEN", false));
}

#[tokio::test]
async fn too_few_free_units_are_refused_with_their_number() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 3), general("B", 10)]).await;
    let (code, text, metadata) =
        refusal(world.hold(&event, vec![count(&event, 1, 2), count(&event, 0, 4)]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "NOT_ENOUGH_UNITS"));
    assert_eq!(metadata["sector_id"], event.sectors[0].sector_id);
    assert_eq!(metadata["free_count"], "3");
    assert_eq!(world.taken().await, 0);
    // Units that were taken from the other sector's pool are back in it.
    assert_eq!(numbers(&world.hold(&event, vec![count(&event, 1, 2)]).await.unwrap(), 0), [1, 2]);
}

#[tokio::test]
async fn drafts_future_sales_and_ended_events_are_refused() {
    let world = World::start().await;
    let mut asked = an_event(vec![general("A", 3)]);
    asked.on_sale_time = time(3_900_000_000);
    let event = world.create(asked).await.unwrap();
    let reserve = || async { refusal(world.hold(&event, vec![count(&event, 0, 1)]).await) };
    let (code, text, metadata) = reserve().await;
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"));
    assert_eq!(metadata["state"], "DRAFT");
    assert_eq!(world.pool_bytes(&event, 0).await, None, "a draft may still change");
    world.activate(&event.event_id).await.unwrap();
    let (_, text, metadata) = reserve().await;
    assert_eq!((&text[..], &metadata["state"][..]), ("EVENT_NOT_ON_SALE", "ON_SALE"));
    assert_eq!(metadata["on_sale_time"], Timestamp::from_secs(3_900_000_000).to_string());
    world.end(&event.event_id).await.unwrap();
    let (_, text, metadata) = reserve().await;
    assert_eq!((&text[..], &metadata["state"][..]), ("EVENT_NOT_ON_SALE", "ENDED"));
    assert_eq!(world.taken().await, 0);
}

#[tokio::test]
async fn unknown_events_sectors_and_units_are_refused() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 30), seated("B", &[30])]).await;
    let hold = |selections| async { world.hold(&event, selections).await };
    let mut elsewhere = event.clone();
    elsewhere.event_id = request_id();
    let unknown = world.hold(&elsewhere, vec![count(&event, 0, 1)]).await;
    assert_eq!(reason(unknown), (Code::NotFound, "EVENT_NOT_FOUND".to_owned()));
    let mut selection = count(&event, 0, 1);
    selection.sector_id = request_id();
    assert_eq!(reason(hold(vec![selection]).await), (Code::NotFound, "SECTOR_NOT_FOUND".to_owned()));
    assert_eq!(fields(hold(vec![exactly(&event, 0, &[1])]).await), ["selections[0].units"]);
    assert_eq!(fields(hold(vec![exactly(&event, 1, &[31])]).await), ["selections[0].units"]);
    assert_eq!(fields(hold(vec![exactly(&event, 1, &[0])]).await), ["selections[0].units"]);
    let nine = vec![count(&event, 0, 5), exactly(&event, 1, &[1, 2, 3, 4])];
    assert_eq!(fields(hold(nine).await), ["selections"]);
    let mut invited = a_reservation(&event, vec![count(&event, 0, 1)]);
    invited.invitation_token = "not one of ours".to_owned();
    let invited = world.reserve(invited).await;
    assert_eq!(reason(invited), (Code::PermissionDenied, "INVITATION_TOKEN_INVALID".to_owned()));
    assert_eq!(world.taken().await, 0);
    assert_eq!(world.number("SELECT count(*) FROM hold", &[]).await, 0);
}

#[tokio::test]
async fn malformed_reservations_are_refused_with_every_violation() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 30), seated("B", &[30])]).await;
    let empty = world.reserve(pb::ReserveUnitsRequest::default()).await;
    let all = ["request_id", "hold_id", "event_id", "customer_id", "selections", "release_after"];
    assert_eq!(fields(empty), all);
    let mut both = exactly(&event, 1, &[1]);
    both.count = 1;
    let selections = vec![
        both,
        count(&event, 0, 0),
        exactly(&event, 1, &[2, 2]),
        count(&event, 0, 101),
        count(&event, 1, 1),
        count(&event, 1, 1),
    ];
    let mut message = a_reservation(&event, selections);
    message.release_after = Some(prost_types::Duration { seconds: 86_401, nanos: 0 });
    let faults = [0, 1, 2, 3].map(|index| format!("selections[{index}]")).to_vec();
    let twice = "selections[5].sector_id".to_owned();
    let expected: Vec<String> = faults.into_iter().chain([twice, "release_after".to_owned()]).collect();
    assert_eq!(fields(world.reserve(message).await), expected);
    let mut short = a_reservation(&event, vec![count(&event, 0, 1)]);
    short.release_after = Some(prost_types::Duration { seconds: 0, nanos: 999_000_000 });
    assert_eq!(fields(world.reserve(short).await), ["release_after"]);
    assert_eq!(world.number("SELECT count(*) FROM hold", &[]).await, 0);
}

#[tokio::test]
async fn repeated_request_reserves_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 2)]).await;
    let message = a_reservation(&event, vec![count(&event, 0, 2)]);
    let first = world.reserve(message.clone()).await.unwrap();
    // No unit is left, and the repeat succeeds nevertheless.
    assert_eq!(world.reserve(message.clone()).await.unwrap(), first);
    let again = pb::ReserveUnitsRequest { request_id: request_id(), ..message.clone() };
    assert_eq!(world.reserve(again.clone()).await.unwrap(), first);
    assert_eq!(world.taken().await, 2);

    let other_body = pb::ReserveUnitsRequest { selections: vec![count(&event, 0, 1)], ..message.clone() };
    let reused = (Code::InvalidArgument, "HOLD_ID_REUSED".to_owned());
    assert_eq!(reason(world.reserve(other_body).await), reused);
    let other_customer =
        pb::ReserveUnitsRequest { customer_id: request_id(), request_id: request_id(), ..message };
    assert_eq!(reason(world.reserve(other_customer).await), reused);

    // The repeat also succeeds after the event has ended, and after the hold is over.
    world.end(&event.event_id).await.unwrap();
    let late = pb::ReserveUnitsRequest { request_id: request_id(), ..again.clone() };
    assert_eq!(world.reserve(late).await.unwrap().hold, first.hold);
    world.release(&again.hold_id).await.unwrap();
    let released =
        world.reserve(pb::ReserveUnitsRequest { request_id: request_id(), ..again }).await.unwrap();
    assert_eq!(released.hold.unwrap().state(), HoldState::Released);
}

#[tokio::test]
async fn failed_reservation_can_be_retried_with_its_ids() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 1)]).await;
    let first = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    let message = a_reservation(&event, vec![count(&event, 0, 1)]);
    assert_eq!(reason(world.reserve(message.clone()).await).1, "NOT_ENOUGH_UNITS");
    world.release(&first.hold_id).await.unwrap();
    assert_eq!(numbers(&world.reserve(message).await.unwrap().hold.unwrap(), 0), [1]);
}

#[tokio::test]
async fn concurrent_requests_for_one_hold_make_it_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 40)]).await;
    let message = a_reservation(&event, vec![count(&event, 0, 2)]);
    let asks = (0..10)
        .map(|_| world.reserve(pb::ReserveUnitsRequest { request_id: request_id(), ..message.clone() }));
    let answers = futures_util::future::join_all(asks).await;
    let first = answers[0].as_ref().unwrap();
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap() == first));
    assert_eq!(world.taken().await, 2);
    let id: HoldId = message.hold_id.parse().unwrap();
    assert_eq!(world.number("SELECT count(*) FROM hold WHERE hold_id = $1", &[&id.as_uuid()]).await, 1);
}
