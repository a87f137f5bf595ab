//! Runs a whole service inside the test process: its `build` on fresh stores and free ports, trusting a test issuer.

use std::{error::Error, sync::Arc, time::Duration};

use onsale_kit::{
    BuildError,
    config::{self, Environment, ServiceConfig},
    server::{Chassis, RunningServer},
};
use onsale_types::{Clock, SystemClock};
use tonic::transport::{Channel, Endpoint};

use crate::{
    stack::{self, TestDatabase, TestRedis},
    tokens::TestIssuer,
    wait::wait_until,
};

/// Longest time until a started service is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A service that runs in the test process.
pub struct TestService {
    /// The server; it listens on free ports.
    pub server: RunningServer,
    /// Issuer of the tokens that the service trusts.
    pub issuer: TestIssuer,
    /// Migrated database of the service. A database that this handle owns is dropped with it.
    pub database: TestDatabase,
    /// Addresses of the Redis Cluster and the key prefix of the service.
    pub redis: TestRedis,
}

/// Stores on which a service is started.
pub struct TestStores {
    /// Migrated database for the service.
    pub database: TestDatabase,
    /// Addresses of the Redis Cluster and the key prefix of the service.
    pub redis: TestRedis,
}

impl TestService {
    /// Starts `service` on fresh stores with its default settings.
    pub async fn start<C, B>(service: &'static str, defaults: &str, build: B) -> Result<Self, Box<dyn Error>>
    where
        C: ServiceConfig,
        B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
    {
        Self::start_with(service, defaults, &[], build).await
    }

    /// Like [`start`](Self::start), with further settings, such as `("NEIGHBOURS__QUEUE__TARGET", "http://…")`.
    pub async fn start_with<C, B>(
        service: &'static str,
        defaults: &str,
        settings: &[(&str, &str)],
        build: B,
    ) -> Result<Self, Box<dyn Error>>
    where
        C: ServiceConfig,
        B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
    {
        let stores = TestStores { database: stack::database().await?, redis: stack::redis().await? };
        Self::start_on(service, defaults, stores, settings, build).await
    }

    /// Like [`start_with`](Self::start_with), on the stores of an earlier instance, as after a restart.
    pub async fn start_on<C, B>(
        service: &'static str,
        defaults: &str,
        stores: TestStores,
        settings: &[(&str, &str)],
        build: B,
    ) -> Result<Self, Box<dyn Error>>
    where
        C: ServiceConfig,
        B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
    {
        Self::start_with_clock(service, defaults, stores, settings, Arc::new(SystemClock), build).await
    }

    /// Like [`start_on`](Self::start_on), with a clock for the service and for the tokens of its issuer.
    pub async fn start_with_clock<C, B>(
        service: &'static str,
        defaults: &str,
        stores: TestStores,
        settings: &[(&str, &str)],
        clock: Arc<dyn Clock>,
        build: B,
    ) -> Result<Self, Box<dyn Error>>
    where
        C: ServiceConfig,
        B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
    {
        let TestStores { database, redis } = stores;
        let issuer = TestIssuer::with_clock(Arc::clone(&clock));
        let nodes = format!("{:?}", redis.urls);
        let stores = [
            ("STORES__POSTGRES__URL", database.url.as_str()),
            ("STORES__REDIS__NODES", nodes.as_str()),
            ("STORES__REDIS__PREFIX", redis.prefix.as_str()),
        ];
        let settings: Vec<_> = stores.iter().chain(settings).copied().collect();
        let environment = environment(&issuer, &settings);
        let (mut chassis_config, config) = config::load::<C>(service, defaults, &environment)?;
        chassis_config.auth = issuer.auth_config();
        let mut chassis = Chassis::new(service, chassis_config, clock)?;
        build(config, &mut chassis).await.map_err(|error| error.to_string())?;
        Ok(Self { server: chassis.start().await?, issuer, database, redis })
    }

    /// Connects to the server of the service.
    pub async fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        Endpoint::from_shared(format!("http://{}", self.server.address()))?.connect().await
    }
}

/// Returns the environment of a server that trusts `issuer`, listens on free ports and drains without a lame-duck phase.
/// Adds `settings`, such as `("SERVER__DEADLINE_MAX", "5s")`.
#[must_use]
pub fn environment(issuer: &TestIssuer, settings: &[(&str, &str)]) -> Environment {
    let (key, jwks) = (issuer.mesh_key(), issuer.mesh_jwks());
    let basic = [
        ("SERVER__LISTEN", "127.0.0.1:0"),
        ("SERVER__ADMIN_LISTEN", "127.0.0.1:0"),
        ("SERVER__DRAIN__LAME_DUCK", "0s"),
        ("AUTH__MESH__KEY", key.as_str()),
        ("AUTH__MESH__JWKS", jwks.as_str()),
    ];
    basic.iter().chain(settings).map(|(key, value)| (format!("ONSALE__{key}"), (*value).to_owned())).collect()
}

/// Asserts that a service becomes ready on real stores and drains without cancelling a call.
///
/// # Panics
/// Panics if the service does not start, is not ready within 60 s, or does not drain cleanly.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
pub async fn assert_starts_and_drains<C, B>(service: &'static str, defaults: &str, build: B)
where
    C: ServiceConfig,
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    let running = TestService::start(service, defaults, build).await.expect("the service starts");
    wait_until("the service is ready", READY_TIMEOUT, || async {
        running.server.readiness().verdict().is_ready()
    })
    .await;
    let drained = running.server.shutdown().await;
    assert!(drained.is_clean(), "{drained:?}");
}
