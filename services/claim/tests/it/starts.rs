//! Start, readiness, shutdown and validation of the settings.

use onsale_kit::config::{self, ConfigError, Environment};
use onsale_testkit::{service, tokens::TestIssuer, wait_until};

use crate::support::{SOON, World};

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

#[test]
fn missing_keys_and_bad_settings_are_reported() {
    let problems = |settings: &[(&str, &str)]| {
        let stores = [("STORES__POSTGRES__URL", "postgres://nobody@localhost/none")];
        let settings: Vec<_> = stores.iter().chain(settings).copied().collect();
        let environment: Environment = service::environment(&TestIssuer::new(), &settings);
        let loaded =
            config::load::<onsale_claim::config::Config>("claim", onsale_claim::DEFAULTS, &environment);
        match loaded.expect_err("the settings are bad") {
            ConfigError::Problems(problems) => problems.into_iter().map(|it| it.key).collect::<Vec<_>>(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(problems(&[]), ["turns.jwks"]);
    let bad = problems(&[("CLAIMS__WINDOW", "0s"), ("HOLDS__KEEP_LONGER", "25h"), ("HOLDS__BATCH_MAX", "0")]);
    assert_eq!(bad, ["turns.jwks", "claims.window", "holds.batch_max", "holds.keep_longer"]);
}
