//! Start and stop: the service is ready once its stores are open, drains when told to stop, and refuses to start without a key.

use onsale_testkit::{service::TestService, wait_until};

use crate::support::{SOON, World};

#[tokio::test]
async fn service_is_ready_on_real_stores_and_drains_cleanly() {
    let world = World::start().await;
    wait_until("the service is ready", SOON, || async {
        world.service.server.readiness().verdict().is_ready()
    })
    .await;
    let drained = world.service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
}

#[tokio::test]
async fn service_does_not_start_without_a_signing_key() {
    let started =
        TestService::start(onsale_queue::SERVICE, onsale_queue::DEFAULTS, onsale_queue::build).await;
    let error = started.err().expect("there is no key").to_string();
    assert!(error.contains("turns.signing_key"), "{error}");
}
