//! Opening a service's stores, with invalid settings and with the defaults.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use onsale_kit::config::{ServiceConfig, load};
use onsale_storage::{
    OpenError, Stores, StoresConfig, lease::LeaseConfig, messaging::RelayConfig, postgres::PostgresConfig,
    redis::RedisConfig,
};
use onsale_testkit::{
    service::{TestService, environment},
    tokens::TestIssuer,
};
use serde::Deserialize;

const DEFAULTS: &str = "[stores.postgres]\nschema = \"sandbox\"\napplication_name = \"sandbox\"\n";

#[derive(Debug, Deserialize)]
struct Config {
    stores: StoresConfig,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];
}

/// Opens the stores with settings changed by `change` and returns the error.
async fn open_with(change: impl FnOnce(&mut StoresConfig)) -> OpenError {
    let mut outcome = None;
    let started = TestService::start("sandbox", DEFAULTS, async |mut config: Config, chassis| {
        change(&mut config.stores);
        outcome = Stores::open(&config.stores, chassis).await.err();
        Ok(())
    });
    let running = started.await.unwrap();
    running.server.shutdown().await;
    outcome.expect("the stores opened with invalid settings")
}

/// Tools and tests create settings in code, services read them from the file: both must be equal.
#[test]
fn defaults_of_file_and_code_are_equal() {
    let environment = environment(
        &TestIssuer::new(),
        &[("STORES__POSTGRES__URL", "postgres://x"), ("STORES__REDIS__NODES", r#"["redis://x:1"]"#)],
    );
    let (_, Config { stores }) = load::<Config>("sandbox", DEFAULTS, &environment).unwrap();
    let same = |file: &dyn Debug, code: &dyn Debug| assert_eq!(format!("{file:?}"), format!("{code:?}"));
    same(&stores.postgres, &PostgresConfig::new("postgres://x", "sandbox"));
    same(&stores.redis, &RedisConfig::new(vec!["redis://x:1".to_owned()], "onsale"));
    same(&stores.lease, &LeaseConfig::default());
    same(&stores.relay, &RelayConfig::default());
}

#[tokio::test]
async fn invalid_settings_fail_without_waiting() {
    let begun = Instant::now();
    let error = open_with(|stores| stores.postgres.schema = "no good".to_owned()).await;
    assert!(matches!(error, OpenError::Migrate(_)), "{error:?}");
    let error = open_with(|stores| stores.redis.connections = 0).await;
    assert!(matches!(error, OpenError::Redis(_)), "{error:?}");
    let error = open_with(|stores| stores.relay.batch_max = 0).await;
    assert!(matches!(error, OpenError::Relay(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
