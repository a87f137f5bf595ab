//! A pod: a service's own binary in a process of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use onsale_kit::auth::SigningKey;
use onsale_testkit::{
    stack::process::{Launch, Process, Signal, free_port, log_tail},
    tokens::{AUDIENCE, ISSUER},
};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::{kernel, scrape::Metrics, world::World};

/// How long it may take to be ready: it reads a line of a million first.
const START_PATIENCE: Duration = Duration::from_secs(180);
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a pod serves, and where its neighbors are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service<'a> {
    Queue { inventory: &'a str },
    Inventory,
    Claim { queue: &'a str, inventory: &'a str },
}

/// A running pod. It ends with this handle.
pub(crate) struct Pod {
    /// The service's name.
    pub(crate) name: &'static str,
    process: Process,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    http: reqwest::Client,
}

impl Pod {
    /// Starts one, with settings besides (`admission.batch_max`, `1000`), and waits until it is ready.
    pub(crate) async fn start(
        world: &World,
        service: Service<'_>,
        settings: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let service_name = service.name();
        let onsale = std::env::current_exe().context("failed to find our own program")?;
        let program = onsale.with_file_name(format!("onsale-{service_name}"));
        if !program.is_file() {
            bail!("`onsale-{service_name}` is not built: run `cargo build --release --workspace`");
        }
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (address, admin) = (local(free_port()?), local(free_port()?));
        let name = format!("{service_name}-{}", address.port());
        let file = world.folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, settings_of(world, service, address, admin)?)
            .context("failed to write the settings of a pod")?;
        let variable =
            |key: &str| format!("ONSALE_{service_name}__{}", key.replace('.', "__")).to_uppercase();
        let mut environment = vec![("ONSALE_CONFIG".to_owned(), file.display().to_string())];
        environment.extend(settings.iter().map(|(key, value)| (variable(key), value.clone())));
        environment.push(("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()));
        let launch = Launch {
            log: world.folder.path().join(format!("{name}.log")),
            name,
            program,
            arguments: Vec::new(),
            environment,
            user: None,
            death_signal: Signal::Kill,
        };
        let log = launch.log.clone();
        let process = Process::start(&launch).context("failed to start a pod")?;
        let http = reqwest::Client::builder().no_proxy().build().context("failed to make an HTTP client")?;
        let mut pod = Self { name: service_name, process, address, admin, http };
        match tokio::time::timeout(START_PATIENCE, pod.ready()).await {
            Ok(Ok(())) => Ok(pod),
            Ok(Err(error)) => Err(error.context(log_tail(&log))),
            Err(_) => bail!("a pod was not ready in {} s: {}", START_PATIENCE.as_secs(), log_tail(&log)),
        }
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}/readyz", self.admin);
        loop {
            if let Some(status) = self.process.ended() {
                bail!("a pod ended by itself: {status}");
            }
            let answer = self.http.get(&url).timeout(Duration::from_secs(5)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How long it has been on a processor.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        kernel::processor_time(self.pid())
    }

    pub(crate) async fn metrics(&self) -> anyhow::Result<Metrics> {
        Metrics::of(&self.http, self.admin).await
    }

    /// Asks it to stop, so that another can lead at once.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop(Signal::Terminate, STOP_PATIENCE).await.context("failed to stop a pod")
    }
}

/// So many connections to a server.
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

    /// The sections that only this service has, or has another way.
    fn sections(self, world: &World) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let target = |url: &str| json!({ "target": url });
        Ok(match self {
            Self::Queue { inventory } => vec![
                ("neighbours", json!({ "inventory": target(inventory) })),
                ("turns", json!({ "signing_key": world.turns_key })),
            ],
            // Nobody is invited in a bench, but without a key it does not start.
            Self::Inventory => {
                let page = "http://localhost/invitation";
                vec![("invitations", json!({ "signing_key": world.turns_key, "accept_page": page }))]
            }
            Self::Claim { queue, inventory } => {
                let turns = SigningKey::parse(&world.turns_key).context("failed to read a key")?;
                vec![
                    ("neighbours", json!({ "queue": target(queue), "inventory": target(inventory) })),
                    ("turns", json!({ "jwks": turns.jwks() })),
                ]
            }
        })
    }

    /// Bounds of Postgres that would end a long measurement are out of the way: a queue pod reads a line of a million.
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

/// What differs from the service's own defaults.
fn settings_of(
    world: &World,
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
                "jwks": world.mint.jwks(),
                "roles_granted": ["CUSTOMER", "ORGANIZER"],
            }],
            "mesh": { "key": world.mint.mesh_key(), "jwks": world.mint.mesh_jwks() },
        },
        "stores": {
            "postgres": service.postgres(&world.postgres_url()),
            "redis": { "nodes": world.redis_urls() },
        },
    });
    if let Some(table) = table.as_object_mut() {
        let sections = service.sections(world)?;
        table.extend(sections.into_iter().map(|(name, section)| (name.to_owned(), section)));
    }
    let table = toml::Table::try_from(table).context("failed to write settings")?;
    toml::to_string(&table).context("failed to write settings")
}
