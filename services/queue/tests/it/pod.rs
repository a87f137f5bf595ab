//! Another pod of the service on the same stores, in a runtime of its own: it can be killed, as a crash would.

use std::{net::SocketAddr, sync::Arc};

use onsale_kit::{
    config,
    server::{Chassis, RunningServer},
};
use onsale_proto::{auth::v1::Role, queue::v1::queue_service_client::QueueServiceClient};
use onsale_queue::config::Config;
use onsale_testkit::{service::environment, stack::TestRedis, tokens::TestIssuer};
use onsale_types::SystemClock;
use tokio::{runtime::Runtime, sync::oneshot};
use tonic::transport::{Channel, Endpoint};

use crate::world::{Person, SOON};

/// A running pod. Dropping it kills it: nothing is drained, nothing is given back.
pub(crate) struct Pod {
    address: SocketAddr,
    issuer: TestIssuer,
    runtime: Option<Runtime>,
    _server: RunningServer,
}

impl Pod {
    pub(crate) async fn start(database_url: &str, redis: &TestRedis, settings: &[(String, String)]) -> Self {
        let issuer = TestIssuer::new();
        let nodes = format!("{:?}", redis.urls);
        let mut all = vec![
            ("STORES__POSTGRES__URL", database_url),
            ("STORES__REDIS__NODES", nodes.as_str()),
            ("STORES__REDIS__PREFIX", redis.prefix.as_str()),
        ];
        all.extend(settings.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let (service, defaults) = (onsale_queue::SERVICE, onsale_queue::DEFAULTS);
        let (mut chassis_config, config) =
            config::load::<Config>(service, defaults, &environment(&issuer, &all)).unwrap();
        chassis_config.auth = issuer.auth_config();
        let (started, starting) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            let server = runtime.block_on(async {
                let mut chassis = Chassis::new(service, chassis_config, Arc::new(SystemClock)).unwrap();
                onsale_queue::build(config, &mut chassis).await.unwrap();
                chassis.start().await.unwrap()
            });
            drop(started.send((runtime, server)));
        });
        let (runtime, server) = starting.await.unwrap();
        Self { address: server.address(), issuer, runtime: Some(runtime), _server: server }
    }

    /// Kills it, and comes back when nothing of it runs any more.
    pub(crate) async fn kill(mut self) {
        let runtime = self.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(SOON)).await.unwrap();
    }

    pub(crate) fn customer(&self) -> Person {
        Person::new(&self.issuer, Role::Customer)
    }

    pub(crate) async fn customers(&self) -> QueueServiceClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        QueueServiceClient::new(endpoint.connect().await.unwrap())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
