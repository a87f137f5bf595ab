//! Specification of each process of the mesh: its program, arguments, environment, ports and readiness check.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use onsale::mesh::{
    check::Check,
    folder::{Folder, repository, write_private},
};
use onsale_gateway::envoy::{EnvoySettings, render};
use onsale_testkit::stack::{
    PostgresServerConfig, PreparedPostgres, RedisNode,
    process::{Launch, Signal, find_program},
};

use super::{
    ports::{Port, Ports, REDIS_NODES, Service},
    secrets::Secrets,
    settings::Override,
    supervisor::{ProcessSpec, Tier},
};

/// Number of processes: six Redis nodes, Postgres, two of the sandbox, six services, the gateway and Envoy.
pub(crate) const COUNT: usize = 6 + 1 + 2 + 6 + 1 + 1;
/// Connections that Postgres accepts: six services with 16 each, plus people and tools.
const POSTGRES_CONNECTIONS_MAX: u32 = 200;
/// Silence of a Redis master after which its replica takes over.
const REDIS_NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Programs that a mesh runs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// Folder of the services' binaries, which is that of this process's executable.
    ours: PathBuf,
    /// Executable of this process, which also runs the sandbox.
    onsale_dev: PathBuf,
    envoy: PathBuf,
}

impl Programs {
    /// Finds every program. Fails with the first one that is missing and the command that installs or builds it.
    pub(crate) fn find(folder: &Folder) -> anyhow::Result<Self> {
        let needed = [
            ("postgres", "postgresql"),
            ("initdb", "postgresql"),
            ("redis-server", "redis-server"),
            ("setpriv", "util-linux"),
        ];
        for (program, package) in needed {
            find_program(program, package).context("run `make setup`")?;
        }
        let onsale_dev = std::env::current_exe().context("failed to find the executable of this process")?;
        let here = std::env::current_dir().context("failed to find the current folder")?;
        let envoy = [folder.root(), &here, &onsale_dev]
            .into_iter()
            .filter_map(|inside| Some(repository(inside)?.join(".tools/venv/bin/envoy")))
            .find(|installed| installed.is_file())
            .or_else(|| find_program("envoy", "envoy").ok())
            .context("`envoy` is not installed: run `make setup`")?;
        let ours = onsale_dev.parent().context("the executable of this process is in no folder")?.to_owned();
        let names = Service::ALL.map(Service::name).into_iter().chain(["gateway"]);
        for name in names.map(|name| format!("onsale-{name}")) {
            if !ours.join(&name).is_file() {
                bail!("`{name}` is not built: run `cargo build --workspace`");
            }
        }
        Ok(Self { ours, onsale_dev, envoy })
    }
}

/// Everything that the processes of one mesh are specified from.
pub(crate) struct MeshSetup {
    pub(crate) folder: Folder,
    pub(crate) ports: Arc<Ports>,
    pub(crate) secrets: Secrets,
    pub(crate) programs: Programs,
    pub(crate) overrides: Vec<Override>,
}

impl MeshSetup {
    pub(crate) fn postgres(&self, prepared: &PreparedPostgres) -> anyhow::Result<ProcessSpec> {
        let address = self.ports.address(Port::Postgres);
        let config = PostgresServerConfig {
            connections_max: POSTGRES_CONNECTIONS_MAX,
            durable: true,
            ..PostgresServerConfig::default()
        };
        let launch = Launch { log: self.folder.log("postgres"), ..prepared.launch(address.port(), &config)? };
        Ok(ProcessSpec {
            tier: Tier::Postgres,
            launch,
            check: Check::Tcp(address),
            ports: vec![Port::Postgres],
            admin: None,
            stop_signal: Signal::Interrupt,
        })
    }

    pub(crate) fn redis_nodes(&self) -> Vec<RedisNode> {
        let node = |number: u8| RedisNode {
            directory: self.folder.data("redis").join(number.to_string()),
            port: self.ports.address(Port::Redis(number)).port(),
            bus_port: self.ports.address(Port::RedisBus(number)).port(),
            node_timeout: REDIS_NODE_TIMEOUT,
            compacts_log: true,
        };
        (1..=REDIS_NODES).map(node).collect()
    }

    pub(crate) fn redis(&self) -> anyhow::Result<Vec<ProcessSpec>> {
        let spec = |(number, node): (u8, RedisNode)| {
            let name = format!("redis-{number}");
            let log = self.folder.log(&name);
            // The test kit kills its nodes because a test may have frozen them; a node of a mesh handles SIGTERM.
            let launch = Launch { name, log, death_signal: Signal::Terminate, ..node.launch()? };
            Ok(ProcessSpec {
                tier: Tier::Redis,
                launch,
                check: Check::Tcp(node.address()),
                ports: vec![Port::Redis(number), Port::RedisBus(number)],
                admin: None,
                stop_signal: Signal::Terminate,
            })
        };
        (1..=REDIS_NODES).zip(self.redis_nodes()).map(spec).collect()
    }

    /// Returns the sandbox payment provider and the mail catcher.
    pub(crate) fn sandbox(&self) -> Vec<ProcessSpec> {
        let address = |port| self.ports.address(port).to_string();
        let path = |path: &Path| path.display().to_string();
        let webhooks = format!("{}/webhooks/sandbox", self.ports.url(Port::FrontDoor));
        let provider = [
            ["sandbox".to_owned(), "payments".to_owned()],
            ["--listen".to_owned(), address(Port::Provider)],
            ["--journal".to_owned(), path(&self.folder.data("provider.journal"))],
            ["--webhook-url".to_owned(), webhooks],
            ["--secret-key-file".to_owned(), path(&self.secrets.provider_key)],
            ["--webhook-secret-file".to_owned(), path(&self.secrets.webhook_secret)],
        ];
        let mail = [
            ["sandbox".to_owned(), "mail".to_owned()],
            ["--smtp".to_owned(), address(Port::Smtp)],
            ["--http".to_owned(), address(Port::MailPage)],
            ["--folder".to_owned(), path(&self.folder.data("mail"))],
        ];
        let spec = |arguments: Vec<String>, check: Check, ports: Vec<Port>| ProcessSpec {
            tier: Tier::Sandbox,
            launch: self.launch(&process_of(&ports), &self.programs.onsale_dev, arguments),
            check,
            ports,
            admin: None,
            stop_signal: Signal::Terminate,
        };
        let mail_page = format!("{}/api/mails?limit=1", self.ports.url(Port::MailPage));
        vec![
            spec(
                provider.into_iter().flatten().collect(),
                Check::Tcp(self.ports.address(Port::Provider)),
                vec![Port::Provider],
            ),
            spec(
                mail.into_iter().flatten().collect(),
                Check::Http(mail_page),
                vec![Port::MailPage, Port::Smtp],
            ),
        ]
    }

    pub(crate) fn services(&self) -> Vec<ProcessSpec> {
        let service = |it| self.chassis(Tier::Service, vec![Port::Service(it)], Port::ServiceAdmin(it));
        Service::ALL.into_iter().map(service).collect()
    }

    pub(crate) fn gateway(&self) -> ProcessSpec {
        self.chassis(Tier::Gateway, vec![Port::Gateway, Port::GatewayHttp], Port::GatewayAdmin)
    }

    /// Specifies a process that is built on `onsale-kit`.
    fn chassis(&self, tier: Tier, ports: Vec<Port>, admin: Port) -> ProcessSpec {
        let name = process_of(&ports);
        let mut launch = self.launch(&name, &self.programs.ours.join(format!("onsale-{name}")), Vec::new());
        let settings = self.folder.config(&format!("{name}.toml"));
        launch.environment.push(("ONSALE_CONFIG".to_owned(), settings.display().to_string()));
        launch.environment.extend(self.overrides.iter().filter_map(|setting| setting.for_process(&name)));
        let check = Check::Http(format!("{}/readyz", self.ports.url(admin)));
        ProcessSpec { tier, launch, check, ports, admin: Some(admin), stop_signal: Signal::Terminate }
    }

    pub(crate) fn envoy(&self) -> anyhow::Result<ProcessSpec> {
        let descriptors = self.folder.config("public.descriptors");
        let public = onsale_gateway::descriptors::public().context("failed to read the public contracts")?;
        std::fs::write(&descriptors, public)
            .with_context(|| format!("failed to write {}", descriptors.display()))?;
        let front_door = self.ports.address(Port::FrontDoor);
        let host_port = |port: Port| self.ports.address(port).to_string().parse();
        let settings = EnvoySettings {
            listen: front_door,
            admin: self.ports.address(Port::EnvoyAdmin),
            gateway_grpc: host_port(Port::Gateway)
                .context("failed to write the address of the gateway for Envoy")?,
            gateway_http: host_port(Port::GatewayHttp)
                .context("failed to write the address of the gateway for Envoy")?,
            descriptor_path: descriptors,
            cors_origins: ["localhost", "127.0.0.1"]
                .map(|host| format!("http://{host}:{}", front_door.port()))
                .into(),
            ..EnvoySettings::default()
        };
        let file = self.folder.config("envoy.yaml");
        write_private(&file, &render(&settings).context("failed to render Envoy's configuration")?)?;
        let config = file.display().to_string();
        // Below this level Envoy logs hundreds of lines about its extensions.
        let arguments =
            ["-c", &config, "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"]
                .map(str::to_owned);
        Ok(ProcessSpec {
            tier: Tier::Envoy,
            launch: self.launch("envoy", &self.programs.envoy, arguments.into()),
            check: Check::Http(format!("{}/ready", self.ports.url(Port::EnvoyAdmin))),
            ports: vec![Port::FrontDoor],
            admin: Some(Port::EnvoyAdmin),
            stop_signal: Signal::Terminate,
        })
    }

    fn launch(&self, name: &str, program: &Path, arguments: Vec<String>) -> Launch {
        Launch {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments,
            environment: [
                // Logs go to files, where color codes would hinder people and programs.
                ("NO_COLOR", "1"),
                // All calls stay on this machine, which an HTTP proxy of the environment cannot reach.
                ("NO_PROXY", "127.0.0.1,localhost"),
                ("no_proxy", "127.0.0.1,localhost"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            user: None,
            log: self.folder.log(name),
            death_signal: Signal::Terminate,
        }
    }
}

fn process_of(ports: &[Port]) -> String {
    ports.first().map(|port| port.process()).unwrap_or_default()
}
