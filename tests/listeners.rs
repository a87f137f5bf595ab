//! Every service that the contract names as a listener of a topic consumes it. An event is kept until all listeners have
//! handled it, so a missing consumer would keep all events forever.

#![cfg(test)]

use std::time::Duration;

use onsale_proto::TOPICS;
use onsale_storage::redis::{Redis, RedisConfig};
use onsale_testkit::{service::TestService, wait_until};
use onsale_tests::settings;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns true if the stream of the topic has a consumer group named after `service`.
async fn listens(redis: &Redis, service: &str, topic: &str) -> bool {
    let key = redis.keyspace("events").unwrap().key("stream", topic).unwrap();
    // An error means that the stream does not exist yet, so it has no group either.
    redis.stream(&key).groups().await.is_ok_and(|groups| groups.iter().any(|group| group.name == service))
}

macro_rules! assert_listens {
    ($service:ident) => {{
        let name = $service::SERVICE;
        let settings = settings::required(name).unwrap();
        let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let running =
            TestService::start_with(name, $service::DEFAULTS, &settings, $service::build).await.unwrap();
        let config = RedisConfig::new(running.redis.urls.clone(), running.redis.prefix.clone());
        let redis = Redis::connect(&config).await.unwrap();
        for topic in TOPICS.iter().filter(|topic| topic.listeners.contains(&name)) {
            let what = format!("{name} listens to {}", topic.name);
            wait_until(&what, TIMEOUT, || listens(&redis, name, topic.name)).await;
        }
        running.server.shutdown().await;
    }};
}

#[tokio::test]
async fn every_listener_of_the_contract_consumes_its_topics() {
    assert_listens!(onsale_queue);
    assert_listens!(onsale_inventory);
    assert_listens!(onsale_claim);
    assert_listens!(onsale_payment);
    assert_listens!(onsale_ticketing);
    assert_listens!(onsale_notification);
}
