//! Who the contract names as a listener listens. An event is kept until every listener has handled it, so one that never
//! listens would keep them all, for ever.

#![cfg(test)]

use std::time::Duration;

use onsale_proto::TOPICS;
use onsale_storage::redis::{Redis, RedisConfig};
use onsale_testkit::{service::TestService, wait_until};
use onsale_tests::settings;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a group of `service`'s name reads the topic's stream.
async fn listens(redis: &Redis, service: &str, topic: &str) -> bool {
    let key = redis.keyspace("events").unwrap().key("stream", topic).unwrap();
    // A stream that nobody has made yet is one that nobody reads.
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
async fn every_listener_of_the_contract_listens() {
    assert_listens!(onsale_queue);
    assert_listens!(onsale_inventory);
    assert_listens!(onsale_claim);
    assert_listens!(onsale_payment);
    assert_listens!(onsale_ticketing);
    assert_listens!(onsale_notification);
}
