//! A real Postgres on loopback. Starts it, tells where it listens, stops it; knows nothing of schemas.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::Error;
use super::process::{self, Launch, Process, Scratch, Signal};

const PACKAGE: &str = "postgresql";
/// A data directory that is not whole yet begins like this.
const INCOMPLETE_PREFIX: &str = "new-";
/// Another process may take a port between our look and the server's bind.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// How to run a Postgres.
#[derive(Clone, Debug)]
pub struct PostgresServerConfig {
    /// Where the data lives. Unset: a directory that goes when the server does.
    pub directory: Option<PathBuf>,
    /// The port; unset: a free one.
    pub port: Option<u16>,
    /// `max_connections`.
    pub connections_max: u32,
    /// Whether a commit waits for the disk. Only a run whose data nobody needs may turn it off.
    pub durable: bool,
    /// How long the server may take until it answers.
    pub start_timeout: Duration,
    /// Further settings, as `name=value`.
    pub settings: Vec<String>,
}

impl Default for PostgresServerConfig {
    fn default() -> Self {
        Self {
            directory: None,
            port: None,
            connections_max: 300,
            durable: true,
            start_timeout: super::START_TIMEOUT,
            settings: Vec::new(),
        }
    }
}

/// A running Postgres. Dropping it ends it at once; it also ends when this process does, however that ends.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    port: u16,
    // Declared last: the data goes after the server that writes it.
    _scratch: Option<Scratch>,
}

impl PostgresServer {
    /// Prepares the data directory if it is new, starts the server and waits until it answers.
    pub async fn start(config: PostgresServerConfig) -> Result<Self, Error> {
        let (scratch, base) = match &config.directory {
            Some(directory) => (None, directory.clone()),
            None => {
                let scratch = Scratch::create("postgres")?;
                let base = scratch.path().to_owned();
                (Some(scratch), base)
            }
        };
        let prepared = PreparedPostgres::in_directory(&base, config.directory.is_some()).await?;
        for attempt in 1.. {
            let port = config.port.map_or_else(process::free_port, Ok)?;
            let process = Process::start(&prepared.launch(port, &config)?)?;
            match wait_until_ready(process, &prepared, port, config.start_timeout).await {
                Ok(process) => return Ok(Self { process, port, _scratch: scratch }),
                Err(Error::Ended { log, .. })
                    if log.contains("could not bind")
                        && config.port.is_none()
                        && attempt < PORT_ATTEMPTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPort)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// A connection string for `database`, as the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        database_url(self.address(), database)
    }

    /// Stops it: sessions are ended, what is committed is on disk.
    pub async fn stop(self) -> Result<(), Error> {
        self.process.stop(Signal::Interrupt, Duration::from_secs(20)).await
    }
}

/// The connection string of `database` on the server at `address`.
pub(super) fn database_url(address: SocketAddr, database: &str) -> String {
    format!("postgres://postgres@{address}/{database}")
}

/// Connects and keeps the connection's background half running.
pub(super) async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the connection ends with its client, which nobody drains"
    )]
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// A data directory that a server can be started on, again and again.
#[derive(Clone, Debug)]
pub struct PreparedPostgres {
    base: PathBuf,
    data: PathBuf,
    /// Postgres refuses to run as root.
    user: Option<&'static str>,
}

impl PreparedPostgres {
    /// Fills `base/data` if it is new. `kept`: the data is to survive a power cut from the first moment.
    pub async fn in_directory(base: &Path, kept: bool) -> Result<Self, Error> {
        let user = process::is_root().then_some("postgres");
        let prepared = Self { base: base.to_owned(), data: base.join("data"), user };
        prepared.remove_incomplete();
        if !prepared.data.exists() {
            let prepared = prepared.clone();
            tokio::task::spawn_blocking(move || prepared.initialize(kept))
                .await
                .map_err(|source| Error::Directory { source: source.into() })??;
        }
        Ok(prepared)
    }

    /// What was cut off in the middle goes, as far as it can: a program that made it may still be at it for a moment.
    fn remove_incomplete(&self) {
        for entry in std::fs::read_dir(&self.base).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(INCOMPLETE_PREFIX.as_bytes()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Made beside its place and then moved there: what is cut off in the middle must not look whole.
    fn initialize(&self, kept: bool) -> Result<(), Error> {
        let unusable = |source| Error::Directory { source };
        std::fs::create_dir_all(&self.base).map_err(unusable)?;
        let incomplete = tempfile::Builder::new()
            .prefix(INCOMPLETE_PREFIX)
            .tempdir_in(&self.base)
            .map_err(unusable)?
            .keep();
        if let Some(user) = self.user {
            let mut chown = Command::new("chown");
            chown.arg(format!("{user}:")).arg(&incomplete);
            process::run_to_end(chown, "chown")?;
        }
        let initdb = process::find_program("initdb", PACKAGE)?;
        let mut command = process::guarded(&initdb, self.user, Signal::Kill)?;
        command.args(["-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums"]);
        if !kept {
            command.arg("--no-sync");
        }
        command.args(["-U", "postgres", "-D"]).arg(&incomplete);
        // `initdb` looks at where it stands, and another account may not see our directory.
        command.current_dir("/");
        process::run_to_end(command, "initdb")?;
        std::fs::rename(&incomplete, &self.data).map_err(unusable)
    }

    /// How to start the server on `port`.
    pub fn launch(&self, port: u16, config: &PostgresServerConfig) -> Result<Launch, Error> {
        let on_off = if config.durable { "on" } else { "off" };
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            "unix_socket_directories=".to_owned(),
            format!("max_connections={}", config.connections_max),
            format!("fsync={on_off}"),
            format!("synchronous_commit={on_off}"),
            format!("full_page_writes={on_off}"),
            "timezone=UTC".to_owned(),
        ];
        let mut arguments = vec!["-D".to_owned(), self.data.display().to_string()];
        let settings = settings.into_iter().chain(config.settings.iter().cloned());
        arguments.extend(settings.flat_map(|setting| ["-c".to_owned(), setting]));
        Ok(Launch {
            name: "postgres".to_owned(),
            program: process::find_program("postgres", PACKAGE)?,
            arguments,
            environment: Vec::new(),
            user: self.user,
            log: self.base.join("postgres.log"),
            death_signal: Signal::Quit,
        })
    }

    /// Whether the server on `port` answers, and is the one that serves this directory.
    pub async fn answers(&self, port: u16) -> bool {
        let url = database_url(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "postgres");
        data_directory(&url).await.is_ok_and(|directory| Path::new(&directory) == self.data)
    }
}

async fn wait_until_ready(
    mut process: Process,
    prepared: &PreparedPostgres,
    port: u16,
    timeout: Duration,
) -> Result<Process, Error> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(error) = process.failure() {
            return Err(error);
        }
        if prepared.answers(port).await {
            return Ok(process);
        }
        if Instant::now() >= end {
            return Err(Error::NotReady { name: "postgres".to_owned(), waited: timeout });
        }
        tokio::time::sleep(process::POLL_INTERVAL).await;
    }
}

/// Asks the server which data it serves: on a port somebody else took, another Postgres may answer.
async fn data_directory(url: &str) -> Result<String, tokio_postgres::Error> {
    connect(url).await?.query_one("SHOW data_directory", &[]).await?.try_get(0)
}
