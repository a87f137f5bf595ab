//! Test support: a gateway in front of fake services, and a real Envoy in front of the gateway.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use onsale_gateway::{
    DEFAULTS, SERVICE,
    config::Config,
    descriptors,
    envoy::{EnvoySettings, render},
    public::PublicMethods,
};
use onsale_kit::{
    config::{self, ChassisConfig, NoConfig},
    contract::Contract,
    server::{Chassis, RunningServer},
};
use onsale_testkit::{service::environment, tokens::TestIssuer, wait_until};
use onsale_types::SystemClock;
use tokio::process::{Child, Command};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

use crate::fake_services::FakeServices;

/// Timeout of every wait in these tests; generous for slow machines.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) const AREAS: [&str; 6] = ["QUEUE", "INVENTORY", "CLAIM", "PAYMENT", "TICKETING", "NOTIFICATION"];

/// A running gateway with its fake services.
pub(crate) struct TestGateway {
    pub(crate) issuer: TestIssuer,
    pub(crate) services: FakeServices,
    pub(crate) server: RunningServer,
    /// Address of the HTTP port.
    pub(crate) http: SocketAddr,
    fake_server: RunningServer,
}

impl TestGateway {
    pub(crate) async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// Starts with additional settings, for example (`SERVER__DEADLINE_DEFAULT`, `1s`).
    pub(crate) async fn open_with(settings: &[(&str, &str)]) -> Self {
        let issuer = TestIssuer::new();
        let (services, fake_server) = FakeServices::start(&issuer).await;
        let target = format!("http://{}", fake_server.address());
        let targets: Vec<_> =
            AREAS.iter().map(|area| (format!("NEIGHBOURS__{area}__TARGET"), target.clone())).collect();
        let mut all = vec![("HTTP__LISTEN", "127.0.0.1:0")];
        all.extend(targets.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        all.extend(settings);
        let (mut chassis_config, config) =
            config::load::<Config>(SERVICE, DEFAULTS, &environment(&issuer, &all)).expect("good settings");
        chassis_config.auth = issuer.auth_config();
        let mut chassis =
            Chassis::new(SERVICE, chassis_config, Arc::new(SystemClock)).expect("good settings");
        let http = onsale_gateway::assemble(config, &mut chassis).await.expect("the gateway is built");
        let server = chassis.start().await.expect("the gateway starts");
        Self { issuer, services, server, http, fake_server }
    }

    /// Connects to the gRPC port, without Envoy.
    pub(crate) async fn channel(&self) -> Channel {
        channel(self.server.address()).await
    }

    pub(crate) async fn close(self) {
        let drained = self.server.shutdown().await;
        assert!(drained.is_clean(), "{drained:?}");
        self.fake_server.shutdown().await;
    }

    /// Stops the fake services and returns the server of the gateway, which keeps running.
    pub(crate) async fn stop_services(self) -> RunningServer {
        self.fake_server.shutdown().await;
        self.server
    }
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address is a URI");
    endpoint.connect().await.expect("connections are accepted")
}

/// Returns the chassis settings for a server that trusts `issuer`.
pub(crate) fn chassis_config(issuer: &TestIssuer, settings: &[(&str, &str)]) -> ChassisConfig {
    let (mut config, NoConfig {}) =
        config::load("fake", "", &environment(issuer, settings)).expect("the settings of the test are good");
    config.auth = issuer.auth_config();
    config
}

pub(crate) fn contract() -> Contract {
    Contract::load(&[onsale_proto::DESCRIPTORS]).expect("the contracts are good")
}

pub(crate) fn public_methods() -> PublicMethods {
    PublicMethods::of(&contract())
}

/// Returns the paths of all methods that are not public.
pub(crate) fn internal_paths() -> Vec<String> {
    let public = public_methods();
    let paths = contract().methods().map(|method| method.path.clone()).collect::<Vec<_>>();
    let internal: Vec<_> = paths.into_iter().filter(|path| !public.contains(path)).collect();
    assert!(internal.len() >= 10, "{internal:?}");
    internal
}

#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, reason: &str) {
    let found = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    assert_eq!((status.code(), found.as_str()), (code, reason), "{status:?}");
}

pub(crate) fn http_client() -> reqwest::Client {
    onsale_kit::tls::install_provider();
    reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build().expect("a client")
}

/// A running Envoy; killed when dropped.
pub(crate) struct Envoy {
    /// Address for clients.
    pub(crate) address: SocketAddr,
    _process: Child,
    folder: tempfile::TempDir,
}

impl Envoy {
    /// Starts Envoy in front of `gateway`.
    pub(crate) async fn start(gateway: &TestGateway) -> Self {
        Self::start_with(gateway, |_settings| {}).await
    }

    pub(crate) async fn start_with(gateway: &TestGateway, change: impl FnOnce(&mut EnvoySettings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder for Envoy");
        let mut settings = EnvoySettings {
            listen: ([127, 0, 0, 1], 0).into(),
            admin: ([127, 0, 0, 1], 0).into(),
            gateway_grpc: gateway.server.address().into(),
            gateway_http: gateway.http.into(),
            descriptor_path: folder.path().join("onsale.pb"),
            ..EnvoySettings::default()
        };
        change(&mut settings);
        let config = write_config(&settings, folder.path());
        let log = std::fs::File::create(folder.path().join("log")).expect("a log file");
        let admin_path = folder.path().join("admin");
        let process = Command::new(envoy_program())
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "-c"])
            .arg(config)
            .arg("--admin-address-path")
            .arg(&admin_path)
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("Envoy starts");
        let mut envoy = Self { address: settings.listen, _process: process, folder };
        wait_until("Envoy is ready", TIMEOUT, || async { envoy.listening().await.is_some() }).await;
        envoy.address = envoy.listening().await.expect("Envoy listens");
        envoy
    }

    /// Returns the address for clients, or `None` until Envoy is ready.
    async fn listening(&self) -> Option<SocketAddr> {
        let admin = std::fs::read_to_string(self.folder.path().join("admin")).ok()?;
        let client = http_client();
        let ready = client.get(format!("http://{admin}/ready")).send().await.ok()?;
        if !ready.status().is_success() {
            return None;
        }
        let listeners = client.get(format!("http://{admin}/listeners?format=json")).send().await.ok()?;
        let listeners: serde_json::Value = serde_json::from_str(&listeners.text().await.ok()?).ok()?;
        let port = listeners.pointer("/listener_statuses/0/local_address/socket_address/port_value")?;
        Some(SocketAddr::from(([127, 0, 0, 1], u16::try_from(port.as_u64()?).ok()?)))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(self.address).await
    }
}

/// Writes the configuration and the public contract, and returns the path of the configuration.
pub(crate) fn write_config(settings: &EnvoySettings, folder: &std::path::Path) -> PathBuf {
    std::fs::write(&settings.descriptor_path, descriptors::public().expect("public contracts"))
        .expect("the contracts are written");
    let path = folder.join("envoy.yaml");
    std::fs::write(&path, render(settings).expect("a configuration")).expect("the configuration is written");
    path
}

/// Returns the Envoy installed by `scripts/setup.sh`, else the one in the search path.
pub(crate) fn envoy_program() -> PathBuf {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/venv/bin/envoy");
    if installed.is_file() { installed } else { PathBuf::from("envoy") }
}
