//! Who lets claim after claim go by unpaid waits, and only who does.

use std::time::Duration;

use futures_util::future::join_all;
use onsale_proto::claim::v1 as pb;
use onsale_testkit::wait_until;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::{CAPACITY, Customer, SOON, World, metadata, reason};

const RULE: [(&str, &str); 3] =
    [("COOLDOWN__CLAIMS", "3"), ("COOLDOWN__WITHIN", "1h"), ("COOLDOWN__LASTS", "1h")];

async fn give_up(world: &World, customer: &Customer, times: u32) {
    for _ in 0..times {
        let claim = world.claim(customer, 1).await;
        world.release(customer, &claim.claim_id).await.unwrap();
    }
}

async fn refused(world: &World, customer: &Customer) -> Status {
    let status = world.create(customer, world.wish(customer, 1)).await.expect_err("they have to wait");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "CLAIM_COOLDOWN"));
    status
}

#[tokio::test]
async fn who_gave_up_several_claims_is_told_when_the_next_may_be_made() {
    let world = World::start_with(&RULE).await;
    let (customer, other) = (world.customer(), world.customer());
    give_up(&world, &customer, 3).await;
    let calls = world.inventory.reserve_calls();
    let status = refused(&world, &customer).await;
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!((Duration::from_secs(3_500)..=Duration::from_secs(3_600)).contains(&wait), "{wait:?}");
    assert!(metadata(&status, "retry_time").ends_with('Z'));
    assert_eq!(world.inventory.reserve_calls(), calls, "nothing is reserved for who has to wait");
    world.claim(&other, 1).await;
    world.audit().await;
}

#[tokio::test]
async fn after_the_wait_the_next_claim_is_made() {
    let world = World::start_with(&[
        ("COOLDOWN__CLAIMS", "2"),
        ("COOLDOWN__WITHIN", "1h"),
        ("COOLDOWN__LASTS", "2s"),
    ])
    .await;
    let customer = world.customer();
    give_up(&world, &customer, 2).await;
    refused(&world, &customer).await;
    wait_until("the wait is over", SOON, async || {
        world.create(&customer, world.wish(&customer, 1)).await.is_ok()
    })
    .await;
    world.audit().await;
}

#[tokio::test]
async fn a_purchase_starts_the_count_anew() {
    let world = World::start_with(&RULE).await;
    let customer = world.customer();
    give_up(&world, &customer, 2).await;
    let bought = world.claim(&customer, 1).await;
    world.confirm(world.payment_of(&bought)).await.unwrap();
    give_up(&world, &customer, 3).await;
    refused(&world, &customer).await;
    world.audit().await;
}

#[tokio::test]
async fn claims_that_expire_count_as_those_given_up() {
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
async fn who_has_to_wait_gets_nothing_with_twenty_tries_at_once() {
    let world = World::start_with(&RULE).await;
    let customer = world.customer();
    give_up(&world, &customer, 2).await;
    // Each gives its own claim up at once; when the third has gone, no other is made.
    let tries = (0..20).map(|_| async {
        if let Ok(claim) = world.create(&customer, world.wish(&customer, 1)).await {
            world.release(&customer, &claim.claim_id).await.unwrap();
            return 1;
        }
        0
    });
    assert_eq!(join_all(tries).await.into_iter().sum::<u32>(), 1);
    refused(&world, &customer).await;
    world.audit().await;
}
