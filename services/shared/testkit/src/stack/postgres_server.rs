//! Starts and stops a real Postgres on loopback. Schemas and migrations belong to `database.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::Error;
use super::process::{self, Launch, Process, Scratch, Signal};

const PACKAGE: &str = "postgresql";
/// Name prefix of a data directory that is still being initialized.
const INCOMPLETE_PREFIX: &str = "new-";
/// Most attempts to start on a free port: another process may take the port between our check and the server's bind.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// Configuration of a Postgres server.
#[derive(Clone, Debug)]
pub struct PostgresServerConfig {
    /// Directory of data and log. Unset: a temporary directory that is removed with the server.
    pub directory: Option<PathBuf>,
    /// Port to listen on. Unset: a free port.
    pub port: Option<u16>,
    /// Value of Postgres' `max_connections` (default 300).
    pub connections_max: u32,
    /// Waits for the disk at each commit (default). False only if the data may be lost.
    pub durable: bool,
    /// Longest time until the server accepts connections.
    pub start_timeout: Duration,
    /// Further settings in the form `name=value`.
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

/// A running Postgres. Dropping the handle stops the server immediately; the kernel also stops it when this process ends.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    port: u16,
    // Declared last, so that the directory is removed after the server has stopped.
    _scratch: Option<Scratch>,
}

impl PostgresServer {
    /// Initializes the data directory if it is new, starts the server and waits until it accepts connections.
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

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns a connection string of the superuser for `database`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        database_url(self.address(), database)
    }

    /// Stops the server within 20 s: ends its sessions and writes committed data to disk.
    pub async fn stop(self) -> Result<(), Error> {
        self.process.stop(Signal::Interrupt, Duration::from_secs(20)).await
    }
}

/// Returns the connection string for `database` on the server at `address`.
pub(super) fn database_url(address: SocketAddr, database: &str) -> String {
    format!("postgres://postgres@{address}/{database}")
}

/// Connects and spawns the task that drives the connection.
pub(super) async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends when the client is dropped, so no shutdown has to wait for it"
    )]
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// An initialized data directory on which servers can be started repeatedly.
#[derive(Clone, Debug)]
pub struct PreparedPostgres {
    base: PathBuf,
    data: PathBuf,
    /// Account of the server. Set only if we are root, because Postgres refuses to run as root.
    user: Option<&'static str>,
}

impl PreparedPostgres {
    /// Initializes `base/data` if it does not exist. With `sync` the new files are synced to disk.
    pub async fn in_directory(base: &Path, sync: bool) -> Result<Self, Error> {
        let user = process::is_root().then_some("postgres");
        let prepared = Self { base: base.to_owned(), data: base.join("data"), user };
        prepared.remove_incomplete();
        if !prepared.data.exists() {
            let prepared = prepared.clone();
            tokio::task::spawn_blocking(move || prepared.initialize(sync))
                .await
                .map_err(|source| Error::Directory { source: source.into() })??;
        }
        Ok(prepared)
    }

    /// Removes directories of interrupted initializations. Errors are ignored, because an interrupted `initdb` may still be
    /// writing.
    fn remove_incomplete(&self) {
        for entry in std::fs::read_dir(&self.base).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(INCOMPLETE_PREFIX.as_bytes()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Initializes a directory beside the final one and then renames it, so that an interrupted initialization never looks
    /// complete.
    fn initialize(&self, sync: bool) -> Result<(), Error> {
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
        if !sync {
            command.arg("--no-sync");
        }
        command.args(["-U", "postgres", "-D"]).arg(&incomplete);
        // `initdb` reads its working directory, and the other account may have no access to ours.
        command.current_dir("/");
        process::run_to_end(command, "initdb")?;
        std::fs::rename(&incomplete, &self.data).map_err(unusable)
    }

    /// Returns the command line that starts the server on `port`.
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

    /// Returns true if a server on `port` accepts connections and serves this directory.
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

/// Returns the data directory of the server: if another process took the port, another Postgres may respond.
async fn data_directory(url: &str) -> Result<String, tokio_postgres::Error> {
    connect(url).await?.query_one("SHOW data_directory", &[]).await?.try_get(0)
}
