//! Start and stop of the service.

use onsale_testkit::{service::TestService, wait_until};

use crate::support::{self, TIMEOUT};

#[tokio::test]
async fn service_becomes_ready_and_drains_cleanly() {
    let key = support::signing_key();
    let service = support::start(&[("CODES__SIGNING_KEY", &key)]).await.unwrap();
    wait_until("the service is ready", TIMEOUT, || async { service.server.readiness().verdict().is_ready() })
        .await;
    let drained = service.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
}

#[tokio::test]
async fn invalid_settings_are_refused_by_name() {
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
            Ok(TestService { server, .. }) => panic!("{name}={value} was accepted by {server:?}"),
            Err(error) => error.to_string().to_uppercase().replace('.', "__"),
        };
        assert!(refused.contains(name), "{refused}");
    }
}
