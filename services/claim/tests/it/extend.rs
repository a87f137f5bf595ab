//! `ExtendClaim`: a payment in progress extends a claim once, within a bound.

use onsale_proto::{claim::v1 as pb, events::v1::ClaimReleased};
use tonic::Code;
use uuid::Uuid;

use crate::support::{World, reason};

const SHORT: [(&str, &str); 2] = [("CLAIMS__WINDOW", "2s"), ("CLAIMS__EXTENSION", "1h")];

fn seconds(claim: &pb::Claim) -> i64 {
    claim.expire_time.unwrap().seconds - claim.create_time.unwrap().seconds
}

#[tokio::test]
async fn extended_claim_outlives_its_window_and_can_be_paid() {
    let world = World::start_with(&SHORT).await;
    let (paying, idle) = (world.customer(), world.customer());
    let claim = world.claim(&paying, 1).await;
    let extended = world.extend(&claim.claim_id, &Uuid::now_v7().to_string()).await.unwrap();
    assert!((3_600..=3_602).contains(&seconds(&extended)), "{extended:?}");
    assert_eq!(world.get(&paying, &claim.claim_id).await.unwrap(), extended);
    // A later claim has expired, so the worker has run since.
    let other = world.claim(&idle, 1).await;
    world.wait_for(&idle, &other.claim_id, pb::ClaimState::Released).await;
    assert_eq!(world.get(&paying, &claim.claim_id).await.unwrap(), extended);
    world.confirm(world.payment_of(&claim)).await.unwrap();
    world.audit().await;
}

#[tokio::test]
async fn repeated_extension_does_not_move_the_expiry() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "1h"), ("CLAIMS__EXTENSION", "2h")]).await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let first = Uuid::now_v7().to_string();
    let extended = world.extend(&claim.claim_id, &first).await.unwrap();
    assert!((7_200..=7_205).contains(&seconds(&extended)), "from now, not from the end of the window");
    for payment in [first, Uuid::now_v7().to_string()] {
        assert_eq!(world.extend(&claim.claim_id, &payment).await.unwrap(), extended);
    }
    world.audit().await;
}

#[tokio::test]
async fn unpaid_extended_claim_expires() {
    let world = World::start_with(&[("CLAIMS__WINDOW", "1s"), ("CLAIMS__EXTENSION", "1s")]).await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let extended = world.extend(&claim.claim_id, &Uuid::now_v7().to_string()).await.unwrap();
    assert!(extended.expire_time.unwrap().seconds <= claim.create_time.unwrap().seconds + 2);
    let expired = world.wait_for(&customer, &claim.claim_id, pb::ClaimState::Released).await;
    assert_eq!(expired.release_reason(), pb::ReleaseReason::Expired);
    assert_eq!(world.events::<ClaimReleased>().await.len(), 1);
    world.audit().await;
}

#[tokio::test]
async fn closed_claim_is_returned_unchanged_and_unknown_one_not_found() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let released = world.release(&customer, &claim.claim_id).await.unwrap();
    assert_eq!(world.extend(&claim.claim_id, &Uuid::now_v7().to_string()).await.unwrap(), released);
    let claim = world.claim(&customer, 1).await;
    let payment = world.payment_of(&claim);
    let confirmed = world.confirm(payment.clone()).await.unwrap();
    assert_eq!(world.extend(&claim.claim_id, &payment.payment_id).await.unwrap(), confirmed);
    let unknown = world.extend(&Uuid::now_v7().to_string(), &payment.payment_id).await.unwrap_err();
    assert_eq!((unknown.code(), reason(&unknown).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
    let malformed = world.extend("first", "second").await.unwrap_err();
    assert_eq!(reason(&malformed), "FIELDS_INVALID");
    world.audit().await;
}
