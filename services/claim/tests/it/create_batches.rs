//! `CreateClaim` in batches: requests share statements and fail separately.

use std::time::Duration;

use futures_util::future::join_all;
use onsale_proto::{claim::v1 as pb, inventory::v1::HoldState, r#type::v1::UnitSelection};
use onsale_testkit::wait_until;
use tonic::Code;
use uuid::Uuid;

use crate::support::{CAPACITY, Customer, SOON, UNITS_MAX, World, metadata, reason, units};

async fn all(
    world: &World,
    requests: &[(pb::CreateClaimRequest, Customer)],
) -> Vec<Result<pb::Claim, tonic::Status>> {
    join_all(requests.iter().map(|(request, customer)| world.create(customer, request.clone()))).await
}

#[tokio::test]
async fn refused_requests_do_not_affect_others_in_the_batch() {
    // With one batch at a time, the requests share batches.
    let world = World::start_with(&[("CREATE__CONCURRENCY", "1")]).await;
    world.inventory.add_sector(&world.general, 1_000, false);
    let customers: Vec<_> = (0..100).map(|_| world.customer()).collect();
    let mut requests: Vec<_> = customers.into_iter().map(|it| (world.request_units(&it, 2), it)).collect();
    // Three refusals: beyond the limit, which the fake Inventory does not check; an unknown sector; an open claim.
    requests[10].0 = world.request_units(&requests[10].1, UNITS_MAX + 1);
    requests[20].0.selections[0].sector_id = Uuid::now_v7().to_string();
    let open = world.claim(&requests[30].1, 1).await;

    let answers = all(&world, &requests).await;
    let refused: Vec<_> =
        answers.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref().err()?))).collect();
    let reasons: Vec<_> = refused.iter().map(|(at, status)| (*at, reason(status))).collect();
    assert_eq!(
        reasons,
        [
            (10, "CUSTOMER_LIMIT_EXCEEDED".to_owned()),
            (20, "SECTOR_NOT_FOUND".to_owned()),
            (30, "CLAIM_OPEN_EXISTS".to_owned())
        ]
    );
    assert_eq!(metadata(refused[2].1, "claim_id"), open.claim_id);
    let claims: Vec<_> = answers.iter().flatten().collect();
    let mut all_units: Vec<_> = claims.iter().flat_map(|claim| units(claim)).collect();
    all_units.sort_unstable();
    all_units.dedup();
    assert_eq!((claims.len(), all_units.len()), (97, 194));
    for (claim, customer) in
        answers.iter().zip(&requests).filter_map(|(it, (_, who))| Some((it.as_ref().ok()?, who)))
    {
        assert_eq!(claim.customer_id, customer.id, "each customer has their own claim");
        assert_eq!(world.get(customer, &claim.claim_id).await.unwrap(), *claim, "as stored");
    }
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), 1_000 - 194 - 1);
}

#[tokio::test]
async fn row_refused_by_the_database_fails_only_its_request() {
    let world = World::start_with(&[("CREATE__CONCURRENCY", "1")]).await;
    world.inventory.add_sector(&world.general, 1_000, false);
    let requests: Vec<_> =
        (0..30).map(|_| world.customer()).map(|it| (world.request_units(&it, 1), it)).collect();
    let bad = requests[7].1.email.clone();
    let trap = format!("ALTER TABLE claim.claim ADD CONSTRAINT trap CHECK (buyer_email <> '{bad}')");
    world.run(&trap).await;
    let answers = all(&world, &requests).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_ok(), at != 7, "{answer:?}");
    }
    // The hold is released as after a crash. Without the trap the same request succeeds.
    world.run("ALTER TABLE claim.claim DROP CONSTRAINT trap").await;
    world.create(&requests[7].1, requests[7].0.clone()).await.unwrap();
    world.audit().await;
}

#[tokio::test]
async fn claims_are_stored_as_they_were_reserved() {
    let world = World::start().await;
    let selections = |seats: &[u32]| {
        vec![
            UnitSelection { sector_id: world.seated.clone(), count: 0, units: seats.to_vec() },
            UnitSelection { sector_id: world.general.clone(), count: 1, units: Vec::new() },
        ]
    };
    let seats: [&[u32]; 4] = [&[1, 2], &[3], &[4, 5, 6], &[9]];
    let requests: Vec<_> = seats
        .iter()
        .map(|seats| (world.customer(), selections(seats)))
        .map(|(customer, selections)| (world.request_for(&customer, selections), customer))
        .collect();
    for ((answer, (_, customer)), seats) in all(&world, &requests).await.into_iter().zip(&requests).zip(seats)
    {
        let claim = answer.unwrap();
        let stored = world.get(customer, &claim.claim_id).await.unwrap();
        assert_eq!(stored, claim);
        let labels: Vec<_> =
            stored.items[0].units.iter().map(|unit| unit.seat.as_ref().unwrap().seat_label.clone()).collect();
        assert_eq!(labels, seats.iter().map(u32::to_string).collect::<Vec<_>>());
        assert!(stored.items[1].units.iter().all(|unit| unit.seat.is_none()));
    }
    world.audit().await;
}

#[tokio::test]
async fn concurrent_requests_of_one_customer_create_one_claim() {
    let world = World::start().await;
    for _ in 0..3 {
        let customer = world.customer();
        let requests: Vec<_> = (0..16)
            .map(|at| (world.request_units(&customer, 1 + at % UNITS_MAX), customer.clone()))
            .collect();
        let answers = all(&world, &requests).await;
        assert_eq!(answers.iter().flatten().count(), 1);
        for status in answers.into_iter().filter_map(Result::err) {
            // Requests that will be refused hold units for a short time, so others may find none.
            assert!(
                ["CLAIM_OPEN_EXISTS", "NOT_ENOUGH_UNITS"].contains(&reason(&status).as_str()),
                "{status:?}"
            );
        }
        world.audit().await;
        world.inventory.add_sector(&world.general, CAPACITY, false);
    }
}

#[tokio::test]
async fn concurrent_requests_with_one_id_and_two_bodies_create_one_claim() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 1);
    let other_body = pb::CreateClaimRequest {
        request_id: request.request_id.clone(),
        ..world.request_units(&customer, 2)
    };
    let requests: Vec<_> = (0..12)
        .map(|at| (if at == 5 { other_body.clone() } else { request.clone() }, customer.clone()))
        .collect();
    let answers = all(&world, &requests).await;
    // All requests with the body that came first get the same claim.
    let claims: Vec<_> = answers.iter().flatten().collect();
    assert!(!claims.is_empty() && claims.iter().all(|claim| *claim == claims[0]));
    for status in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert!(["REQUEST_ID_REUSED", "CONTENDED"].contains(&reason(status).as_str()), "{status:?}");
    }
    world.audit().await;
    assert_eq!(world.inventory.ids_in(HoldState::Held).len(), 1);
}

#[tokio::test]
async fn unauthorized_request_writes_nothing() {
    let world = World::start().await;
    let customer = world.customer();
    let request = world.request_units(&customer, 1);
    for refusal in [(Code::FailedPrecondition, "TURN_STALE"), (Code::Unavailable, "OVERLOADED")] {
        world.queue.refuse(Some(refusal));
        world.create(&customer, request.clone()).await.unwrap_err();
    }
    let forged = pb::create_claim_request::Right::TurnToken("forged".to_owned());
    world
        .create(&customer, pb::CreateClaimRequest { right: Some(forged), ..request.clone() })
        .await
        .unwrap_err();
    world.queue.refuse(None);
    let invented = pb::create_claim_request::Right::InvitationToken("invented".to_owned());
    let invented = pb::CreateClaimRequest { right: Some(invented), ..request.clone() };
    world.create(&customer, invented).await.unwrap_err();
    let mut nowhere = request;
    nowhere.selections[0].sector_id = Uuid::now_v7().to_string();
    world.create(&customer, nowhere).await.unwrap_err();
    for count in ["SELECT count(*) AS count FROM hold_attempt", "SELECT count(*) AS count FROM allowance"] {
        assert_eq!(world.count(count).await, 0, "{count}");
    }
}

#[tokio::test]
async fn reservation_after_the_abandonment_holds_nothing() {
    let world = World::start_with(&[("HOLDS__ABANDON_AFTER", "100ms")]).await;
    let customer = world.customer();
    let request = world.request_units(&customer, 2);
    world.inventory.configure(|inventory| inventory.times_out = true);
    let status = world.create(&customer, request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    world.inventory.configure(|inventory| inventory.times_out = false);
    wait_until("the attempt is released", SOON, async || {
        world.count("SELECT count(*) AS count FROM hold_attempt WHERE state = 'RELEASED'").await == 1
    })
    .await;
    assert_eq!(world.inventory.run_delayed(), 0);
    let claim = world.create(&customer, request).await.unwrap();
    assert_eq!(units(&claim).len(), 2);
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), CAPACITY - 2);
}

#[tokio::test]
async fn crash_between_reservation_and_claim_leaves_no_units_held() {
    let world = World::start_with(&[("HOLDS__ABANDON_AFTER", "300ms")]).await;
    let customers: Vec<_> = (0..4).map(|_| world.customer()).collect();
    let requests: Vec<_> = customers.iter().map(|it| (world.request_units(it, 2), it.clone())).collect();
    world.inventory.configure(|inventory| inventory.withholds_responses = true);
    tokio::select! {
        answers = all(&world, &requests) => panic!("answered: {answers:?}"),
        () = wait_until("units are held", SOON, async || world.inventory.units_in(HoldState::Held) == 8) => {}
    }
    // The new process knows only what is stored.
    let world = world.restart().await;
    let requests: Vec<_> = requests.into_iter().map(|(request, it)| (request, world.again(&it))).collect();
    world.inventory.configure(|inventory| inventory.withholds_responses = false);
    wait_until("all units are free", Duration::from_secs(30), async || {
        world.inventory.free(&world.general) == CAPACITY
    })
    .await;
    world.audit().await;
    for answer in all(&world, &requests).await {
        answer.unwrap();
    }
    world.audit().await;
}
