//! The service stands: it opens its stores, says that it is ready, and stops when asked to.

use onsale_testkit::service;

#[tokio::test]
async fn it_is_ready_on_real_stores_and_drains_cleanly() {
    service::assert_starts_and_drains(
        onsale_notification::SERVICE,
        onsale_notification::DEFAULTS,
        onsale_notification::build,
    )
    .await;
}
