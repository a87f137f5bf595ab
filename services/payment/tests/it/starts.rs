//! Start and shutdown: the service opens its stores, reports that it is ready, and drains.

use onsale_testkit::service;

#[tokio::test]
async fn service_becomes_ready_and_drains_cleanly() {
    service::assert_starts_and_drains(
        onsale_payment::SERVICE,
        onsale_payment::DEFAULTS,
        onsale_payment::build,
    )
    .await;
}
