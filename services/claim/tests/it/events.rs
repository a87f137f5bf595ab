//! Handling of other services' events.

use std::sync::Arc;

use onsale_proto::{
    EventPayload, TOPICS,
    claim::v1 as pb,
    events::v1::{
        ClaimReleased, OrderCompleted, PaymentConfirmed, PaymentFailed, PaymentRefunded, QueueExpired,
        QueueTurnGranted,
    },
    queue::v1::ExpireReason,
    r#type::v1::EventSummary,
};
use onsale_storage::{
    messaging::{NewEvent, Outbox, Relay, RelayConfig},
    postgres::{self, Postgres},
    redis::{Redis, RedisConfig},
};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;
use uuid::Uuid;

use crate::support::{CAPACITY, SOON, World};

/// Publishes `payload` as its source service.
async fn publish<P: EventPayload>(world: &World, key: &str, payload: &P) {
    let schema = Postgres::connect(&world.service.database.config(P::SOURCE)).await.unwrap();
    let redis = &world.service.redis;
    let redis = Redis::connect(&RedisConfig::new(redis.urls.clone(), redis.prefix.as_str())).await.unwrap();
    let outbox = &Outbox::new(P::SOURCE, Arc::new(SystemClock));
    let event = &[NewEvent::new(key, payload)];
    schema
        .transaction("publish", |transaction| async move {
            outbox.append(&transaction, event).await?;
            Ok::<_, postgres::Error>(())
        })
        .await
        .unwrap();
    let relay = Relay::new(schema, redis, outbox, TOPICS, RelayConfig::default()).unwrap();
    relay.round().await.unwrap();
}

/// Waits until `count` events have been handled.
async fn handled(world: &World, count: i64) {
    wait_until("the events are handled", SOON, async || {
        world.count("SELECT count(*) AS count FROM inbox").await == count
    })
    .await;
    assert_eq!(world.count("SELECT count(*) AS count FROM dead_letter").await, 0);
}

fn confirmed(claim: &pb::Claim, payment_id: &str) -> PaymentConfirmed {
    PaymentConfirmed {
        payment_id: payment_id.to_owned(),
        claim_id: claim.claim_id.clone(),
        amount: claim.total.clone(),
        ..PaymentConfirmed::default()
    }
}

fn failed(claim: &pb::Claim) -> PaymentFailed {
    PaymentFailed {
        payment_id: Uuid::now_v7().to_string(),
        claim_id: claim.claim_id.clone(),
        ..PaymentFailed::default()
    }
}

#[tokio::test]
async fn payment_confirmed_and_confirm_claim_confirm_once() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let payment = world.payment_of(&claim);
    let event = confirmed(&claim, &payment.payment_id);
    publish(&world, &claim.claim_id, &event).await;
    let done = world.wait_for(&customer, &claim.claim_id, pb::ClaimState::Confirmed).await;
    assert_eq!(world.confirm(payment).await.unwrap(), done);
    publish(&world, &claim.claim_id, &event).await;
    handled(&world, 2).await;
    assert_eq!(world.events::<OrderCompleted>().await.len(), 1);
    world.audit().await;
}

#[tokio::test]
async fn payment_confirmed_is_ignored_if_the_claim_cannot_be_confirmed() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    world.confirm(world.payment_of(&claim)).await.unwrap();
    publish(&world, &claim.claim_id, &confirmed(&claim, &Uuid::now_v7().to_string())).await;
    let unknown = pb::Claim { claim_id: Uuid::now_v7().to_string(), ..claim.clone() };
    publish(&world, &unknown.claim_id, &confirmed(&unknown, &Uuid::now_v7().to_string())).await;
    handled(&world, 2).await;
    assert_eq!(world.events::<OrderCompleted>().await.len(), 1);
    world.audit().await;
}

#[tokio::test]
async fn payment_failed_releases_only_an_unpaid_claim() {
    let world = World::start().await;
    let (one, two) = (world.customer(), world.customer());
    let (unpaid, paid) = (world.claim(&one, 1).await, world.claim(&two, 1).await);
    world.confirm(world.payment_of(&paid)).await.unwrap();
    for claim in [&unpaid, &paid, &unpaid] {
        publish(&world, &claim.claim_id, &failed(claim)).await;
    }
    handled(&world, 3).await;
    let released = world.get(&one, &unpaid.claim_id).await.unwrap();
    assert_eq!(released.release_reason(), pb::ReleaseReason::PaymentFailed);
    assert_eq!(world.get(&two, &paid.claim_id).await.unwrap().state(), pb::ClaimState::Confirmed);
    assert_eq!(world.events::<ClaimReleased>().await.len(), 1);
    wait_until("the unit is free", SOON, async || world.inventory.free(&world.general) == CAPACITY - 1).await;
    // The turn is still valid.
    world.claim(&one, 1).await;
    world.audit().await;
}

#[tokio::test]
async fn queue_expired_releases_only_the_claim_of_an_abandoned_turn() {
    let world = World::start().await;
    let (left, stays) = (world.customer(), world.customer());
    let (claim, other) = (world.claim(&left, 1).await, world.claim(&stays, 1).await);
    let event = Some(EventSummary { event_id: world.event.clone(), ..EventSummary::default() });
    let ended = |customer: &str, reason: ExpireReason, fencing_number: u64| QueueExpired {
        event: event.clone(),
        entry_id: Uuid::now_v7().to_string(),
        customer_id: customer.to_owned(),
        reason: reason.into(),
        fencing_number,
        expire_time: None,
    };
    for event in [
        ended(&stays.id, ExpireReason::TurnExpired, 1),
        ended(&stays.id, ExpireReason::QueueClosed, 1),
        // An older turn, and an entry that never had one.
        ended(&stays.id, ExpireReason::Left, 7),
        ended(&stays.id, ExpireReason::Left, 0),
        ended(&left.id, ExpireReason::Left, 1),
    ] {
        publish(&world, &event.entry_id, &event).await;
    }
    handled(&world, 5).await;
    let released = world.get(&left, &claim.claim_id).await.unwrap();
    assert_eq!(released.release_reason(), pb::ReleaseReason::Customer);
    assert_eq!(world.get(&stays, &other.claim_id).await.unwrap().state(), pb::ClaimState::Claimed);
    world.audit().await;
}

#[tokio::test]
async fn ignored_events_are_acknowledged() {
    let world = World::start().await;
    let customer = world.customer();
    let claim = world.claim(&customer, 1).await;
    let confirmed = world.confirm(world.payment_of(&claim)).await.unwrap();
    publish(
        &world,
        "entry",
        &QueueTurnGranted { customer_id: customer.id.clone(), ..QueueTurnGranted::default() },
    )
    .await;
    let refunded = PaymentRefunded { claim_id: claim.claim_id.clone(), ..PaymentRefunded::default() };
    publish(&world, &claim.claim_id, &refunded).await;
    handled(&world, 2).await;
    assert_eq!(world.get(&customer, &claim.claim_id).await.unwrap(), confirmed);
    world.audit().await;
}

#[test]
fn claim_listens_to_five_topics() {
    let mut listened: Vec<_> =
        TOPICS.iter().filter(|topic| topic.listeners.contains(&"claim")).map(|topic| topic.name).collect();
    listened.sort_unstable();
    assert_eq!(
        listened,
        ["payment.confirmed", "payment.failed", "payment.refunded", "queue.expired", "queue.turn_granted"]
    );
}
