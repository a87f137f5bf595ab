//! The service stands: it opens its stores, says that it is ready, and stops when asked to.

use onsale_testkit::{service::TestService, wait_until};

use crate::support::{self, SOON};

#[tokio::test]
async fn it_is_ready_on_real_stores_and_drains_cleanly() {
    let key = support::signing_key();
    let service = support::start(&[("CODES__SIGNING_KEY", &key)]).await.unwrap();
    wait_until("the service is ready", SOON, || async { service.server.readiness().verdict().is_ready() })
        .await;
    let drained = service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
}

#[tokio::test]
async fn settings_that_make_no_sense_are_named() {
    let key = support::signing_key();
    let settings = [
        ("CODES__SIGNING_KEY", "no key"),
        ("CODES__RETIRED_JWKS", "no keys"),
        ("GENERATION__BATCH_SIZE", "50001"),
        ("ISSUING__POLL_EVERY", "0s"),
    ];
    for (name, value) in settings {
        let given = [("CODES__SIGNING_KEY", key.as_str()), (name, value)];
        let refused = match support::start(&given).await {
            Ok(TestService { server, .. }) => panic!("{name}={value} was taken by {server:?}"),
            Err(error) => error.to_string().to_uppercase().replace('.', "__"),
        };
        assert!(refused.contains(name), "{refused}");
    }
}
