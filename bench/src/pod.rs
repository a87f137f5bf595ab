//! A pod: the binary of a service in a process of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use onsale_kit::auth::SigningKey;
use onsale_testkit::{
    stack::process::{Launch, Process, Signal, free_port, log_tail},
    tokens::{AUDIENCE, ISSUER},
};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use crate::{kernel, scrape::Metrics, testbed::Testbed};

/// Longest time until a pod is ready; a queue pod may read a line of a million entries first.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Service that a pod runs, with the URLs of its neighbors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service<'a> {
    Queue { inventory: &'a str },
    Inventory,
    Claim { queue: &'a str, inventory: &'a str },
}

/// A running pod, which ends when this handle is dropped.
pub(crate) struct Pod {
    /// Name of the service.
    pub(crate) name: &'static str,
    process: Process,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    http: reqwest::Client,
}

impl Pod {
    /// Starts a pod with extra settings, such as `("admission.batch_max", "1000")`, and waits until it is ready.
    pub(crate) async fn start(
        testbed: &Testbed,
        service: Service<'_>,
        settings: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let service_name = service.name();
        let own = std::env::current_exe().context("failed to find the executable of this process")?;
        let program = own.with_file_name(format!("onsale-{service_name}"));
        if !program.is_file() {
            bail!("`onsale-{service_name}` is not built: run `cargo build --release --workspace`");
        }
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (address, admin) = (local(free_port()?), local(free_port()?));
        let name = format!("{service_name}-{}", address.port());
        let file = testbed.folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, settings_of(testbed, service, address, admin)?)
            .context("failed to write the settings of a pod")?;
        let variable =
            |key: &str| format!("ONSALE_{service_name}__{}", key.replace('.', "__")).to_uppercase();
        let mut environment = vec![("ONSALE_CONFIG".to_owned(), file.display().to_string())];
        environment.extend(settings.iter().map(|(key, value)| (variable(key), value.clone())));
        environment.push(("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()));
        let launch = Launch {
            log: testbed.folder.path().join(format!("{name}.log")),
            name,
            program,
            arguments: Vec::new(),
            environment,
            user: None,
            death_signal: Signal::Kill,
        };
        let log = launch.log.clone();
        let process = Process::start(&launch).context("failed to start a pod")?;
        let http =
            reqwest::Client::builder().no_proxy().build().context("failed to create an HTTP client")?;
        let mut pod = Self { name: service_name, process, address, admin, http };
        match tokio::time::timeout(START_TIMEOUT, pod.ready()).await {
            Ok(Ok(())) => Ok(pod),
            Ok(Err(error)) => Err(error.context(log_tail(&log))),
            Err(_) => bail!("a pod was not ready in {} s: {}", START_TIMEOUT.as_secs(), log_tail(&log)),
        }
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}/readyz", self.admin);
        loop {
            if let Some(status) = self.process.ended() {
                bail!("a pod exited during its start: {status}");
            }
            let response = self.http.get(&url).timeout(Duration::from_secs(5)).send().await;
            if response.is_ok_and(|response| response.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the processor time of the pod since its start.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        kernel::processor_time(self.pid())
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<Metrics> {
        Metrics::of(&self.http, self.admin).await
    }

    /// Stops the pod in order, so that another one can take over its leases without waiting.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop(Signal::Terminate, STOP_TIMEOUT).await.context("failed to stop a pod")
    }
}

/// Opens `count` connections to a server.
pub(crate) async fn channels(url: &str, count: usize) -> anyhow::Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..count {
        let endpoint = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true);
        channels.push(endpoint.connect().await.context("failed to connect to the measured server")?);
    }
    Ok(channels)
}

impl Service<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Queue { .. } => "queue",
            Self::Inventory => "inventory",
            Self::Claim { .. } => "claim",
        }
    }

    /// Returns the settings sections that only this service has.
    fn sections(self, testbed: &Testbed) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let target = |url: &str| json!({ "target": url });
        Ok(match self {
            Self::Queue { inventory } => vec![
                ("neighbours", json!({ "inventory": target(inventory) })),
                ("turns", json!({ "signing_key": testbed.turns_key })),
            ],
            // No benchmark uses invitations, but Inventory does not start without a key.
            Self::Inventory => {
                let page = "http://localhost/invitation";
                vec![("invitations", json!({ "signing_key": testbed.turns_key, "accept_page": page }))]
            }
            Self::Claim { queue, inventory } => {
                let turns = SigningKey::parse(&testbed.turns_key).context("failed to read a key")?;
                vec![
                    ("neighbours", json!({ "queue": target(queue), "inventory": target(inventory) })),
                    ("turns", json!({ "jwks": turns.jwks() })),
                ]
            }
        })
    }

    /// Returns the Postgres settings. A queue pod gets long timeouts, because it may read a line of a million entries.
    fn postgres(self, url: &str) -> Value {
        match self {
            Self::Queue { .. } => json!({
                "url": url,
                "call_timeout": "60s",
                "statement_timeout": "60s",
                "idle_in_transaction_timeout": "60s",
            }),
            Self::Inventory | Self::Claim { .. } => json!({ "url": url }),
        }
    }
}

/// Returns the settings file of a pod, which overrides the service's defaults.
fn settings_of(
    testbed: &Testbed,
    service: Service<'_>,
    address: SocketAddr,
    admin: SocketAddr,
) -> anyhow::Result<String> {
    let mut table = json!({
        "server": {
            "listen": address.to_string(),
            "admin_listen": admin.to_string(),
            "connection_age_max": "24h",
            "drain": { "lame_duck": "0s", "total": "5s" },
        },
        "telemetry": { "log_format": "human" },
        "auth": {
            "issuers": [{
                "issuer": ISSUER,
                "audiences": [AUDIENCE],
                "jwks": testbed.issuer.jwks(),
                "roles_granted": ["CUSTOMER", "ORGANIZER"],
            }],
            "mesh": { "key": testbed.issuer.mesh_key(), "jwks": testbed.issuer.mesh_jwks() },
        },
        "stores": {
            "postgres": service.postgres(&testbed.postgres_url()),
            "redis": { "nodes": testbed.redis_urls() },
        },
    });
    if let Some(table) = table.as_object_mut() {
        let sections = service.sections(testbed)?;
        table.extend(sections.into_iter().map(|(name, section)| (name.to_owned(), section)));
    }
    let table = toml::Table::try_from(table).context("failed to write settings")?;
    toml::to_string(&table).context("failed to write settings")
}
