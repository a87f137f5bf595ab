//! A whole service in the test's own process: its `build`, on fresh stores, on free ports, trusting a issuer of its own.

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

/// How long a service may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running service.
pub struct TestService {
    /// The server, on free ports.
    pub server: RunningServer,
    /// Whose tokens it trusts.
    pub issuer: TestIssuer,
    /// Its database, fresh and migrated; dropped with this.
    pub database: TestDatabase,
    /// Its part of the Redis Cluster.
    pub redis: TestRedis,
}

/// Where a service keeps what it knows.
pub struct TestStores {
    /// Its database.
    pub database: TestDatabase,
    /// Its part of the Redis Cluster.
    pub redis: TestRedis,
}

impl TestService {
    /// Starts `service` as `kit::run` would.
    pub async fn start<C, B>(service: &'static str, defaults: &str, build: B) -> Result<Self, Box<dyn Error>>
    where
        C: ServiceConfig,
        B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
    {
        Self::start_with(service, defaults, &[], build).await
    }

    /// The same, with settings of the test's own besides (`NEIGHBOURS__QUEUE__TARGET`, `http://…`).
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

    /// The same, on stores that another instance left behind: a restart.
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

    /// The same, on a machine with a clock of its own; its issuer's tokens count from it too.
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

    /// A connection to it.
    pub async fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        Endpoint::from_shared(format!("http://{}", self.server.address()))?.connect().await
    }
}

/// The environment of a server that trusts `issuer`, on free ports and quick to stop, with `settings` besides
/// (`SERVER__DEADLINE_MAX`, `5s`).
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

/// Asserts what every service owes from its first day: it becomes ready on real stores and drains without cutting
/// anything.
///
/// # Panics
/// When it does not.
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
