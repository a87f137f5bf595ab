//! The cooldown after consecutive abandoned claims.

use std::time::Duration;

use futures_util::future::join_all;
use onsale_proto::claim::v1 as pb;
use onsale_testkit::wait_until;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::{CAPACITY, Customer, SOON, World, metadata, reason};

const RULE: [(&str, &str); 3] =
    [("COOLDOWN__CLAIMS", "3"), ("COOLDOWN__WITHIN", "1h"), ("COOLDOWN__LASTS", "1h")];

async fn abandon(world: &World, customer: &Customer, times: u32) {
    for _ in 0..times {
        let claim = world.claim(customer, 1).await;
        world.release(customer, &claim.claim_id).await.unwrap();
    }
}

async fn refused(world: &World, customer: &Customer) -> Status {
    let status =
        world.create(customer, world.request_units(customer, 1)).await.expect_err("the cooldown is running");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "CLAIM_COOLDOWN"));
    status
}

#[tokio::test]
async fn cooldown_refusal_names_the_retry_time() {
    let world = World::start_with(&RULE).await;
    let (customer, other) = (world.customer(), world.customer());
    abandon(&world, &customer, 3).await;
    let calls = world.inventory.reserve_calls();
    let status = refused(&world, &customer).await;
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!((Duration::from_secs(3_500)..=Duration::from_secs(3_600)).contains(&wait), "{wait:?}");
    assert!(metadata(&status, "retry_time").ends_with('Z'));
    assert_eq!(world.inventory.reserve_calls(), calls, "no reservation during a cooldown");
    world.claim(&other, 1).await;
    world.audit().await;
}

#[tokio::test]
async fn claim_is_created_after_the_cooldown() {
    let world = World::start_with(&[
        ("COOLDOWN__CLAIMS", "2"),
        ("COOLDOWN__WITHIN", "1h"),
        ("COOLDOWN__LASTS", "2s"),
    ])
    .await;
    let customer = world.customer();
    abandon(&world, &customer, 2).await;
    refused(&world, &customer).await;
    wait_until("the cooldown is over", SOON, async || {
        world.create(&customer, world.request_units(&customer, 1)).await.is_ok()
    })
    .await;
    world.audit().await;
}

#[tokio::test]
async fn purchase_resets_the_abandoned_count() {
    let world = World::start_with(&RULE).await;
    let customer = world.customer();
    abandon(&world, &customer, 2).await;
    let bought = world.claim(&customer, 1).await;
    world.confirm(world.payment_of(&bought)).await.unwrap();
    abandon(&world, &customer, 3).await;
    refused(&world, &customer).await;
    world.audit().await;
}

#[tokio::test]
async fn expired_claims_count_as_abandoned() {
    let settings = [RULE.as_slice(), &[("CLAIMS__WINDOW", "100ms")]].concat();
    let world = World::start_with(&settings).await;
    let customer = world.customer();
    for _ in 0..3 {
        let claim = world.claim(&customer, 1).await;
        world.wait_for(&customer, &claim.claim_id, pb::ClaimState::Released).await;
    }
    refused(&world, &customer).await;
    world.audit().await;
    assert_eq!(world.inventory.free(&world.general), CAPACITY);
}

#[tokio::test]
async fn twenty_concurrent_requests_do_not_bypass_the_cooldown() {
    let world = World::start_with(&RULE).await;
    let customer = world.customer();
    abandon(&world, &customer, 2).await;
    // Each successful request releases its claim. After the third abandoned claim, all others are refused.
    let tries = (0..20).map(|_| async {
        if let Ok(claim) = world.create(&customer, world.request_units(&customer, 1)).await {
            world.release(&customer, &claim.claim_id).await.unwrap();
            return 1;
        }
        0
    });
    assert_eq!(join_all(tries).await.into_iter().sum::<u32>(), 1);
    refused(&world, &customer).await;
    world.audit().await;
}
