//! Start and stop: the service opens its stores, becomes ready and drains; it refuses to start without a key.

use onsale_testkit::{service::TestService, wait_until};

use crate::support::{SOON, World, required};

#[tokio::test]
async fn service_becomes_ready_and_drains_cleanly() {
    let world = World::start().await;
    wait_until("the service is ready", SOON, || async {
        world.service.server.readiness().verdict().is_ready()
    })
    .await;
    let drained = world.service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
}

#[tokio::test]
async fn start_without_a_valid_key_and_page_is_refused() {
    let wrongs = [
        ("INVITATIONS__SIGNING_KEY", ""),
        ("INVITATIONS__SIGNING_KEY", "no key"),
        ("INVITATIONS__ACCEPT_PAGE", ""),
        ("INVITATIONS__ACCEPT_PAGE", "ftp://tickets.test"),
        ("INVITATIONS__ACCEPT_PAGE", "https://tickets.test/#here"),
        ("QUOTAS__RETURN_EVERY", "0s"),
    ];
    for wrong in wrongs {
        let settings: Vec<_> = required().into_iter().chain([wrong]).collect();
        let started = TestService::start_with(
            onsale_inventory::SERVICE,
            onsale_inventory::DEFAULTS,
            &settings,
            onsale_inventory::build,
        );
        let error = started.await.err().unwrap_or_else(|| panic!("{wrong:?} was accepted")).to_string();
        assert!(error.to_uppercase().replace('.', "__").contains(wrong.0), "{error}");
    }
}
