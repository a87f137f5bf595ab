//! The JSON on the channel `queue_events`, for systems outside the mesh.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use serde_json::Value;

use crate::support::{SOON, World};

#[tokio::test]
async fn turn_and_expiry_are_published_outside_the_mesh() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let client = redis::Client::open(world.service.redis.urls[0].as_str()).unwrap();
    let mut channel = client.get_async_pubsub().await.unwrap();
    channel.subscribe("queue_events").await.unwrap();
    let mut messages = channel.on_message();
    let person = world.join_all(1, &event).await.remove(0);
    world.inventory.set_free(1);
    let turn = world.turn(&person, &event).await;
    world.leave(&person, &event).await.unwrap();
    let mut told: Vec<Value> = Vec::new();
    while told.len() < 2 {
        let message = tokio::time::timeout(SOON, messages.next()).await.unwrap().unwrap();
        let message: Value = serde_json::from_slice(message.get_payload_bytes()).unwrap();
        // Other tests publish on the same channel of this Redis.
        if message["match_id"] == event.as_str() {
            told.push(message);
        }
    }
    assert_eq!(told[0]["event"], "queue.turn_granted");
    assert_eq!(told[0]["user_id"], person.customer_id());
    assert_eq!(told[0]["session_token"], turn.token);
    assert!(told[0]["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(told[1]["event"], "queue.expired");
    assert_eq!(told[1]["user_id"], person.customer_id());
    assert_eq!(told[1]["reason"], "LEFT");
    let names = |message: &Value| message.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let granted = ["event", "user_id", "match_id", "session_token", "expires_at"].map(str::to_owned);
    assert_eq!(names(&told[0]), granted.into());
    assert_eq!(names(&told[1]), ["event", "user_id", "match_id", "reason"].map(str::to_owned).into());
}
