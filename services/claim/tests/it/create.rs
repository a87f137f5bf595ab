//! `CreateClaim`: claims for customers with a turn, and the release of holds after an interruption.

use std::time::Duration;

use futures_util::future::join_all;
use onsale_proto::{claim::v1 as pb, inventory::v1::HoldState, r#type::v1::UnitSelection};
use onsale_testkit::wait_until;
use tonic::Code;

use crate::{
    inventory::PRICE_MINOR,
    support::{CAPACITY, SOON, UNITS_MAX, World, metadata, money, reason, units},
};

#[tokio::test]
async fn claim_with_a_turn_has_all_its_details() {
    let world = World::start().await;
    let customer = world.customer();
    let selections = vec![
        UnitSelection { sector_id: world.general.clone(), count: 2, units: Vec::new() },
        UnitSelection { sector_id: world.seated.clone(), count: 0, units: vec![7, 8] },
    ];
    let claim = world.create(&customer, world.request_for(&customer, selections)).await.unwrap();

    assert_eq!(claim.state(), pb::ClaimState::Claimed);
    assert_eq!(claim.customer_id, customer.id);
    assert_eq!(claim.event.as_ref().unwrap().event_id, world.event);
    assert_eq!(claim.event.as_ref().unwrap().name, "Final");
    assert_eq!((claim.buyer_email.as_str(), claim.buyer_locale.as_str()), (customer.email.as_str(), "hr"));
    assert_eq!(units(&claim), [1, 2, 7, 8]);
    assert_eq!(claim.items[0].amount, money(2 * PRICE_MINOR));
    assert_eq!(claim.items[1].units[0].seat.as_ref().unwrap().seat_label, "7");
    assert_eq!(claim.total, money(4 * PRICE_MINOR));
    assert_eq!((claim.payment_id.as_str(), claim.release_reason()), ("", pb::ReleaseReason::Unspecified));
    assert_eq!(claim.history.len(), 1);
    assert_eq!(world.get(&customer, &claim.claim_id).await.unwrap(), claim);
    world.audit().await;
}

#[tokio::test]
async fn event_is_cached_until_its_revision_changes() {
    let world = World::start().await;
    let claim = || async {
        let customer = world.customer();
        world.create(&customer, world.request_units(&customer, 1)).await
    };
    let name = || async { claim().await.unwrap().event.unwrap().name };
    let sent = || {
        let mut sent = 0;
        world.inventory.configure(|state| sent = state.events_sent);
        sent
    };
    assert_eq!((name().await, name().await, name().await), ("Final".into(), "Final".into(), "Final".into()));
    assert_eq!(sent(), 1);
    world
        .inventory
        .configure(|state| (state.event_name, state.event_revision) = (Some("Replay".to_owned()), 1));
    assert_eq!((name().await, name().await), ("Replay".into(), "Replay".into()));
    assert_eq!(sent(), 2);
    // Without the event's data no claim is created.
    world.inventory.configure(|state| (state.omits_event, state.event_revision) = (true, 2));
    assert_eq!(claim().await.unwrap_err().code(), Code::Internal);
    // The data of another event is refused and not cached.
    world.inventory.configure(|state| (state.omits_event, state.sends_other_event) = (false, true));
    assert_eq!(claim().await.unwrap_err().code(), Code::Internal);
    world.inventory.configure(|state| state.sends_other_event = false);
    assert_eq!(name().await, "Replay");
    assert_eq!(sent(), 4);
    wait_until("the holds of the refused claims are released", SOON, || async {
        world.inventory.units_in(HoldState::Held) == 6
    })
    .await;
    world.audit().await;
}

#[tokio::test]
async fn claim_expires_with_its_window_or_its_turn() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "100s")]).await;
    for (turn_seconds, expected) in [(1_000, 100), (30, 30)] {
        let customer = world.customer();
        let token = world.turn(&customer, 1, Duration::from_secs(turn_seconds));
        let mut request = world.request_units(&customer, 1);
        // The request's own turn lasts longer, but the latest turn at Queue counts.
        request.right = Some(pb::create_claim_request::Right::TurnToken(token));
        world.turn(&customer, 1, Duration::from_secs(turn_seconds));
        let claim = world.create(&customer, request).await.unwrap();
        let seconds = claim.expire_time.unwrap().seconds - claim.create_time.unwrap().seconds;
        assert!((expected - 3..=expected + 1).contains(&seconds), "{seconds} instead of {expected}");
    }
}

#[tokio::test]
async fn twenty_concurrent_claims_of_one_customer_make_one() {
    let world = World::start().await;
    world.inventory.add_sector(&world.general, 30, false);
    let customer = world.customer();
    let requests: Vec<_> = (0..20).map(|_| world.request_units(&customer, 1)).collect();
    let answers = join_all(requests.into_iter().map(|request| world.create(&customer, request))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1);
    let open = made[0].as_ref().unwrap();
    for refused in refused {
        let status = refused.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::FailedPrecondition, "CLAIM_OPEN_EXISTS")
        );
        assert_eq!(metadata(&status, "claim_id"), open.claim_id);
    }
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), 29);
}

#[tokio::test]
async fn limit_covers_all_claims_under_concurrent_requests() {
    let world = World::start().await;
    let customer = world.customer();
    let first = world.claim(&customer, UNITS_MAX - 1).await;
    world.confirm(world.payment_of(&first)).await.unwrap();

    let requests: Vec<_> = (0..20).map(|_| world.request_units(&customer, 2)).collect();
    for refused in join_all(requests.into_iter().map(|request| world.create(&customer, request))).await {
        let status = refused.unwrap_err();
        assert_eq!(reason(&status), "CUSTOMER_LIMIT_EXCEEDED");
        assert_eq!(metadata(&status, "units_per_customer_max"), UNITS_MAX.to_string());
        assert_eq!(metadata(&status, "units_left"), "1");
    }
    let requests: Vec<_> = (0..20).map(|_| world.request_units(&customer, 1)).collect();
    let answers = join_all(requests.into_iter().map(|request| world.create(&customer, request))).await;
    let made: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
    assert_eq!(made.len(), 1, "one open claim at a time");
    world.confirm(world.payment_of(&made[0])).await.unwrap();
    let status = world.create(&customer, world.request_units(&customer, 1)).await.unwrap_err();
    assert_eq!(
        (reason(&status).as_str(), metadata(&status, "units_left").as_str()),
        ("CUSTOMER_LIMIT_EXCEEDED", "0")
    );
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), CAPACITY - UNITS_MAX);
}

#[tokio::test]
async fn first_claim_beyond_the_limit_is_refused_and_releases_its_units() {
    let world = World::start().await;
    let customer = world.customer();
    // The fake Inventory does not check the limit.
    let status = world.create(&customer, world.request_units(&customer, UNITS_MAX + 1)).await.unwrap_err();
    assert_eq!(reason(&status), "CUSTOMER_LIMIT_EXCEEDED");
    assert!(world.inventory.reserve_calls() > 0);
    assert_eq!(world.inventory.units_in(HoldState::Held), 0, "released before the response");
    world.audit().await;
}

#[tokio::test]
async fn released_units_do_not_count_against_the_limit() {
    let world = World::start().await;
    let customer = world.customer();
    for _ in 0..3 {
        let claim = world.claim(&customer, UNITS_MAX).await;
        world.release(&customer, &claim.claim_id).await.unwrap();
    }
    world.audit().await;
}

#[tokio::test]
async fn fifty_customers_get_no_more_than_ten_units() {
    let world = World::start().await;
    let requests: Vec<_> =
        (0..50).map(|_| world.customer()).map(|it| (world.request_units(&it, 1), it)).collect();
    let calls = requests.iter().map(|(request, customer)| world.create(customer, request.clone()));
    let answers = join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    for status in answers.into_iter().filter_map(Result::err) {
        assert_eq!(
            (reason(&status).as_str(), metadata(&status, "free_count").as_str()),
            ("NOT_ENOUGH_UNITS", "0")
        );
    }
    assert_eq!(world.inventory.free(&world.general), 0);
}

#[tokio::test]
async fn hold_without_a_claim_is_released_and_a_retry_succeeds() {
    let world = World::start_with(&[("HOLDS__ABANDON_AFTER", "300ms")]).await;
    let customer = world.customer();
    let request = world.request_units(&customer, 2);
    world.inventory.configure(|inventory| inventory.withholds_responses = true);
    {
        // Canceling the call between reservation and response has the effect of a crash.
        let call = world.create(&customer, request.clone());
        tokio::select! {
            answer = call => panic!("answered: {answer:?}"),
            () = wait_until("units are held", SOON, async || world.inventory.units_in(HoldState::Held) == 2) => {}
        }
    }
    wait_until("the units are free", SOON, async || world.inventory.free(&world.general) == CAPACITY).await;
    world.audit().await;

    world.inventory.configure(|inventory| inventory.withholds_responses = false);
    let claim = world.create(&customer, request).await.unwrap();
    assert_eq!(units(&claim), [1, 2]);
    world.audit().await;
}

#[tokio::test]
async fn response_after_the_abandonment_creates_no_claim() {
    let world = World::start_with(&[("HOLDS__ABANDON_AFTER", "200ms")]).await;
    let customer = world.customer();
    let request = world.request_units(&customer, 2);
    world.inventory.configure(|inventory| inventory.withholds_responses = true);
    let late = async {
        wait_until("units are held", SOON, async || world.inventory.units_in(HoldState::Held) == 2).await;
        wait_until("they are free", SOON, async || world.inventory.free(&world.general) == CAPACITY).await;
        world.inventory.configure(|inventory| inventory.withholds_responses = false);
    };
    let (answer, ()) = tokio::join!(world.create(&customer, request.clone()), late);
    let status = answer.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, "CONTENDED"));
    world.audit().await;
    world.create(&customer, request).await.unwrap();
    world.audit().await;
}

#[tokio::test]
async fn created_claim_survives_a_race_with_the_reconciler() {
    // The attempts are abandoned at about the time of their claims' inserts, so each insert races with the reconciler.
    let world = World::start_with(&[("HOLDS__ABANDON_AFTER", "60ms"), ("HOLDS__RELEASE_EVERY", "5ms")]).await;
    world.inventory.add_sector(&world.general, 100, false);
    let customers: Vec<_> = (0..20).map(|_| world.customer()).collect();
    let buys = customers.iter().map(|customer| {
        let (world, request) = (&world, world.request_units(customer, 1));
        async move {
            loop {
                match world.create(customer, request.clone()).await {
                    Ok(claim) => break claim,
                    Err(status) => assert_eq!(reason(&status), "CONTENDED"),
                }
            }
        }
    });
    let claims = join_all(buys).await;
    world.audit().await;
    for (customer, claim) in customers.iter().zip(claims) {
        assert_eq!(world.get(customer, &claim.claim_id).await.unwrap().state(), pb::ClaimState::Claimed);
    }
    assert_eq!(world.inventory.free(&world.general), 80);
}

#[tokio::test]
async fn retry_succeeds_after_inventory_was_unavailable() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 2);
    world.inventory.configure(|inventory| inventory.down = Some(Code::Unavailable));
    let status = world.create(&customer, request.clone()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "DEPENDENCY_UNAVAILABLE"));
    world.inventory.configure(|inventory| inventory.down = None);
    world.create(&customer, request).await.unwrap();
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), CAPACITY - 2);
}

#[tokio::test]
async fn hold_released_by_inventory_creates_no_claim() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 1);
    world.inventory.configure(|inventory| inventory.withholds_responses = true);
    tokio::select! {
        answer = world.create(&customer, request.clone()) => panic!("answered: {answer:?}"),
        () = wait_until("held", SOON, async || world.inventory.units_in(HoldState::Held) == 1) => {}
    }
    world.inventory.lose_holds();
    world.inventory.configure(|inventory| inventory.withholds_responses = false);
    let status = world.create(&customer, request.clone()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, "CONTENDED"));
    world.create(&customer, request).await.unwrap();
    world.audit().await;
}
