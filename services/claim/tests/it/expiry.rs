//! Unpaid claims expire by the database's clock, and their units become free.

use std::time::Duration;

use futures_util::future::join_all;
use onsale_proto::{claim::v1 as pb, events::v1::ClaimReleased};
use onsale_testkit::wait_until;
use onsale_types::{Clock, SystemClock, Timestamp};
use tonic::Code;

use crate::support::{CAPACITY, SOON, World, units};

#[tokio::test]
async fn units_of_an_expired_claim_can_be_claimed_again() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "1s")]).await;
    let (slow, next) = (world.customer(), world.customer());
    let claim = world.create(&slow, world.request_seats(&slow, &[1, 2])).await.unwrap();
    let expired = world.wait_for(&slow, &claim.claim_id, pb::ClaimState::Released).await;
    assert_eq!(expired.release_reason(), pb::ReleaseReason::Expired);
    assert_eq!(
        expired.history[1]
            .transition_time
            .as_ref()
            .map(|it| it.seconds >= claim.expire_time.unwrap().seconds),
        Some(true)
    );
    wait_until("the seats are free", SOON, async || world.inventory.free(&world.seated) == CAPACITY).await;
    let events = world.events::<ClaimReleased>().await;
    assert_eq!((events.len(), events[0].reason(), events[0].unit_count), (1, pb::ReleaseReason::Expired, 2));
    let bought = world.create(&next, world.request_seats(&next, &[1, 2])).await.unwrap();
    assert_eq!(units(&bought), [1, 2]);
}

#[tokio::test]
async fn claims_expire_in_batches_with_one_event_each() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "3s"), ("CLAIMS__EXPIRE_BATCH_MAX", "3")]).await;
    let customers: Vec<_> = (0..CAPACITY).map(|_| world.customer()).collect();
    join_all(customers.iter().map(|customer| world.claim(customer, 1))).await;
    assert_eq!(world.inventory.free(&world.general), 0);
    wait_until("all units are free", SOON, async || world.inventory.free(&world.general) == CAPACITY).await;
    let mut ids: Vec<_> = world.events::<ClaimReleased>().await.into_iter().map(|it| it.claim_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.events::<ClaimReleased>().await.len()), (10, 10));
    world.audit().await;
}

#[tokio::test]
async fn claim_under_settlement_does_not_expire() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "3s")]).await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let payment = world.payment_of(&claim);
    world.inventory.configure(|inventory| inventory.down = Some(Code::Unavailable));
    let status = world.confirm(payment.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    // A later claim that expires shows that the worker has run since.
    world.inventory.configure(|inventory| inventory.down = None);
    let witness = world.customer();
    let later = world.claim(&witness, 1).await;
    world.wait_for(&witness, &later.claim_id, pb::ClaimState::Released).await;
    assert_eq!(world.get(&customer, &claim.claim_id).await.unwrap().state(), pb::ClaimState::Claimed);
    let confirmed = world.confirm(payment).await.unwrap();
    assert_eq!(confirmed.state(), pb::ClaimState::Confirmed);
    world.audit().await;
}

#[tokio::test]
async fn payment_during_expiry_ends_confirmed_or_rejected() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "1s")]).await;
    let customers: Vec<_> = (0..8).map(|_| world.customer()).collect();
    let buys = customers.iter().zip(0_u64..).map(|(customer, number)| {
        let world = &world;
        async move {
            let claim = world.claim(customer, 1).await;
            // The payments arrive from 80 ms before the expiry to 60 ms after it, while the worker runs.
            let expire_time = claim.expire_time.unwrap();
            let end = Timestamp::from_seconds_and_nanos(expire_time.seconds, expire_time.nanos).unwrap();
            let begin = end.checked_sub(Duration::from_millis(80)).unwrap();
            let pay_time = begin.checked_add(Duration::from_millis(20 * number)).unwrap();
            wait_until("the time of the payment has come", SOON, async || SystemClock.now() >= pay_time)
                .await;
            world.confirm(world.payment_of(&claim)).await.unwrap()
        }
    });
    for claim in join_all(buys).await {
        let is_rejected = claim.release_reason() == pb::ReleaseReason::Rejected;
        assert!(claim.state() == pb::ClaimState::Confirmed || is_rejected, "{claim:?}");
    }
    world.audit().await;
}
