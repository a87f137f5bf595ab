//! What each process of the mesh is: its program, its arguments, its settings, how to see that it is ready.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use onsale_gateway::envoy::{EnvoySettings, render};
use onsale_testkit::stack::{
    PostgresServerConfig, PreparedPostgres, RedisNode,
    process::{Launch, Signal, find_program},
};

use super::{
    check::Check,
    folder::{Folder, repository, write_private},
    ports::{Place, Ports, REDIS_NODES, Service},
    secrets::Secrets,
    settings::Override,
    supervisor::{Part, Tier},
};

/// All processes of a mesh: Redis, Postgres, the two of the sandbox, the services, the gateway, Envoy.
pub(crate) const COUNT: usize = 6 + 1 + 2 + 6 + 1 + 1;
/// Six services with sixteen connections each, and people who look.
const POSTGRES_CONNECTIONS_MAX: u32 = 200;
/// A replica takes over from a master that was silent for this long.
const REDIS_NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// The programs that are not ours, and where ours are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// Where the binaries of the mesh are: beside our own.
    ours: PathBuf,
    /// Our own, which is also the sandbox.
    onsale: PathBuf,
    envoy: PathBuf,
}

impl Programs {
    /// Finds all that will be needed, or says what is missing and what to do.
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
        let onsale = std::env::current_exe().context("failed to find our own program")?;
        let here = std::env::current_dir().context("failed to find the current folder")?;
        let envoy = [folder.root(), &here, &onsale]
            .into_iter()
            .filter_map(|inside| Some(repository(inside)?.join(".tools/venv/bin/envoy")))
            .find(|installed| installed.is_file())
            .or_else(|| find_program("envoy", "envoy").ok())
            .context("`envoy` is not installed: run `make setup`")?;
        let ours = onsale.parent().context("our own program is in no folder")?.to_owned();
        let names = Service::ALL.map(Service::name).into_iter().chain(["gateway"]);
        for name in names.map(|name| format!("onsale-{name}")) {
            if !ours.join(&name).is_file() {
                bail!("`{name}` is not built: run `cargo build --workspace`");
            }
        }
        Ok(Self { ours, onsale, envoy })
    }
}

/// Makes the parts.
pub(crate) struct Workshop {
    pub(crate) folder: Folder,
    pub(crate) ports: Arc<Ports>,
    pub(crate) secrets: Secrets,
    pub(crate) programs: Programs,
    pub(crate) overrides: Vec<Override>,
}

impl Workshop {
    pub(crate) fn postgres(&self, prepared: &PreparedPostgres) -> anyhow::Result<Part> {
        let address = self.ports.address(Place::Postgres);
        let config = PostgresServerConfig {
            connections_max: POSTGRES_CONNECTIONS_MAX,
            durable: true,
            ..PostgresServerConfig::default()
        };
        let launch = Launch { log: self.folder.log("postgres"), ..prepared.launch(address.port(), &config)? };
        Ok(Part {
            tier: Tier::Postgres,
            launch,
            check: Check::Tcp(address),
            places: vec![Place::Postgres],
            admin: None,
            stop_signal: Signal::Interrupt,
        })
    }

    pub(crate) fn redis_nodes(&self) -> Vec<RedisNode> {
        let node = |number: u8| RedisNode {
            directory: self.folder.data("redis").join(number.to_string()),
            port: self.ports.address(Place::Redis(number)).port(),
            bus_port: self.ports.address(Place::RedisBus(number)).port(),
            node_timeout: REDIS_NODE_TIMEOUT,
            compacts_log: true,
        };
        (1..=REDIS_NODES).map(node).collect()
    }

    pub(crate) fn redis(&self) -> anyhow::Result<Vec<Part>> {
        let part = |(number, node): (u8, RedisNode)| {
            let name = format!("redis-{number}");
            let log = self.folder.log(&name);
            // A process of the mesh is never frozen, so it may be asked politely.
            let launch = Launch { name, log, death_signal: Signal::Terminate, ..node.launch()? };
            Ok(Part {
                tier: Tier::Redis,
                launch,
                check: Check::Tcp(node.address()),
                places: vec![Place::Redis(number), Place::RedisBus(number)],
                admin: None,
                stop_signal: Signal::Terminate,
            })
        };
        (1..=REDIS_NODES).zip(self.redis_nodes()).map(part).collect()
    }

    /// The sandbox: who takes payments, and who takes mail.
    pub(crate) fn outside(&self) -> Vec<Part> {
        let address = |place| self.ports.address(place).to_string();
        let path = |path: &Path| path.display().to_string();
        let webhooks = format!("{}/webhooks/sandbox", self.ports.url(Place::FrontDoor));
        let provider = [
            ["sandbox".to_owned(), "payments".to_owned()],
            ["--listen".to_owned(), address(Place::Provider)],
            ["--journal".to_owned(), path(&self.folder.data("provider.journal"))],
            ["--webhook-url".to_owned(), webhooks],
            ["--secret-key-file".to_owned(), path(&self.secrets.provider_key)],
            ["--webhook-secret-file".to_owned(), path(&self.secrets.webhook_secret)],
        ];
        let mail = [
            ["sandbox".to_owned(), "mail".to_owned()],
            ["--smtp".to_owned(), address(Place::Smtp)],
            ["--http".to_owned(), address(Place::MailPage)],
            ["--folder".to_owned(), path(&self.folder.data("mail"))],
        ];
        let part = |arguments: Vec<String>, check: Check, places: Vec<Place>| Part {
            tier: Tier::Outside,
            launch: self.launch(&process_of(&places), &self.programs.onsale, arguments),
            check,
            places,
            admin: None,
            stop_signal: Signal::Terminate,
        };
        let mail_page = format!("{}/api/mails?limit=1", self.ports.url(Place::MailPage));
        vec![
            part(
                provider.into_iter().flatten().collect(),
                Check::Tcp(self.ports.address(Place::Provider)),
                vec![Place::Provider],
            ),
            part(
                mail.into_iter().flatten().collect(),
                Check::Http(mail_page),
                vec![Place::MailPage, Place::Smtp],
            ),
        ]
    }

    pub(crate) fn services(&self) -> Vec<Part> {
        let service = |it| self.chassis(Tier::Service, vec![Place::Service(it)], Place::ServiceAdmin(it));
        Service::ALL.into_iter().map(service).collect()
    }

    pub(crate) fn gateway(&self) -> Part {
        self.chassis(Tier::Gateway, vec![Place::Gateway, Place::GatewayHttp], Place::GatewayAdmin)
    }

    /// A process on our chassis.
    fn chassis(&self, tier: Tier, places: Vec<Place>, admin: Place) -> Part {
        let name = process_of(&places);
        let mut launch = self.launch(&name, &self.programs.ours.join(format!("onsale-{name}")), Vec::new());
        let settings = self.folder.config(&format!("{name}.toml"));
        launch.environment.push(("ONSALE_CONFIG".to_owned(), settings.display().to_string()));
        launch.environment.extend(self.overrides.iter().filter_map(|it| it.for_process(&name)));
        let check = Check::Http(format!("{}/readyz", self.ports.url(admin)));
        Part { tier, launch, check, places, admin: Some(admin), stop_signal: Signal::Terminate }
    }

    pub(crate) fn envoy(&self) -> anyhow::Result<Part> {
        let descriptors = self.folder.config("public.descriptors");
        let public = onsale_gateway::descriptors::public().context("failed to read the public contracts")?;
        std::fs::write(&descriptors, public)
            .with_context(|| format!("failed to write {}", descriptors.display()))?;
        let front_door = self.ports.address(Place::FrontDoor);
        let host_port = |place: Place| self.ports.address(place).to_string().parse();
        let settings = EnvoySettings {
            listen: front_door,
            admin: self.ports.address(Place::EnvoyAdmin),
            gateway_grpc: host_port(Place::Gateway).context("failed to name the gateway to envoy")?,
            gateway_http: host_port(Place::GatewayHttp).context("failed to name the gateway to envoy")?,
            descriptor_path: descriptors,
            cors_origins: ["localhost", "127.0.0.1"]
                .map(|host| format!("http://{host}:{}", front_door.port()))
                .into(),
            ..EnvoySettings::default()
        };
        let file = self.folder.config("envoy.yaml");
        write_private(&file, &render(&settings).context("failed to make envoy's settings")?)?;
        let config = file.display().to_string();
        // Without the hundreds of lines in which it lists what it has.
        let arguments =
            ["-c", &config, "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"]
                .map(str::to_owned);
        Ok(Part {
            tier: Tier::Envoy,
            launch: self.launch("envoy", &self.programs.envoy, arguments.into()),
            check: Check::Http(format!("{}/ready", self.ports.url(Place::EnvoyAdmin))),
            places: vec![Place::FrontDoor],
            admin: Some(Place::EnvoyAdmin),
            stop_signal: Signal::Terminate,
        })
    }

    fn launch(&self, name: &str, program: &Path, arguments: Vec<String>) -> Launch {
        Launch {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments,
            environment: [
                // Logs are files here, read by people and by programs.
                ("NO_COLOR", "1"),
                // All they call is on this machine, which a proxy for the world outside cannot reach.
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

fn process_of(places: &[Place]) -> String {
    places.first().map(|place| place.process()).unwrap_or_default()
}
