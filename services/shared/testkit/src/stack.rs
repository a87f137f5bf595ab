//! The stack tests run on: a real Postgres and a real Redis Cluster, started once, and for every test a fresh
//! database and a key prefix of its own.
//!
//! Under `teststack` the whole test run shares one stack, named by two environment variables. Without it each test
//! process starts its own at first use. Either way nothing stays behind: the servers die with the process that
//! started them, however it ends.

mod database;
mod postgres_server;
pub mod process;
mod redis_cluster;
mod run;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::OnceCell;

pub use database::{SANDBOX_SCHEMA, TestDatabase};
pub use postgres_server::{PostgresServer, PostgresServerConfig, PreparedPostgres};
pub use redis_cluster::{
    NodeIndex, RedisCluster, RedisClusterConfig, RedisNode, form_cluster, is_cluster_settled,
};
pub use run::{Interrupts, run_command};

/// Names the shared Postgres, as `address:port`.
pub const POSTGRES_VARIABLE: &str = "ONSALE_TEST_POSTGRES";
/// Names the nodes of the shared cluster, as `address:port,…`.
pub const REDIS_VARIABLE: &str = "ONSALE_TEST_REDIS";

/// How long a server may take until it answers. Each writes and syncs a little before it does; on a disk that is busy with what
/// others wrote that took more than half a minute.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Why the stack could not be started or steered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server's program is not installed.
    #[error("`{program}` is not installed: it comes with the Debian package `{package}`")]
    MissingProgram {
        /// The program looked for.
        program: &'static str,
        /// What to install.
        package: &'static str,
    },
    /// The operating system refused.
    #[error("failed to start {name}")]
    Start {
        /// What was started.
        name: String,
        /// The refusal.
        #[source]
        source: std::io::Error,
    },
    /// It started and ended by itself.
    #[error("{name} ended before it was asked to:\n{log}")]
    Ended {
        /// What ended.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// It runs and never became ready.
    #[error("waited {waited:?} in vain for {name}")]
    NotReady {
        /// What was waited for.
        name: String,
        /// How long.
        waited: Duration,
    },
    /// No port is left.
    #[error("found no free port on loopback")]
    NoPort,
    /// A directory could not be made.
    #[error("failed to prepare a directory for a server")]
    Directory {
        /// The refusal.
        #[source]
        source: std::io::Error,
    },
    /// A node refused an administrative command.
    #[error("redis command `{command}` failed")]
    Redis {
        /// The command line.
        command: String,
        /// The refusal.
        #[source]
        source: redis::RedisError,
    },
    /// No running node fits the question.
    #[error("no such node in the cluster")]
    NoSuchNode,
    /// An administrative statement failed.
    #[error("failed to {attempt}")]
    Postgres {
        /// What was tried.
        attempt: String,
        /// The refusal.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The migrations failed on the template database.
    #[error("failed to migrate the template database")]
    Migrate {
        /// Why.
        #[source]
        source: onsale_storage::migrate::Error,
    },
    /// A variable that names the stack holds something else.
    #[error("{variable} must hold addresses, not `{value}`")]
    BadVariable {
        /// The variable's name.
        variable: &'static str,
        /// What it held.
        value: String,
    },
}

/// One test's share of the cluster: where it is, and a prefix nobody else uses.
#[derive(Clone, Debug)]
pub struct TestRedis {
    /// The seed nodes, as `redis://` URLs.
    pub urls: Vec<String>,
    /// Goes before every key of the test.
    pub prefix: String,
}

/// A fresh database with every migration applied, on the shared Postgres.
pub async fn database() -> Result<TestDatabase, Error> {
    TestDatabase::create(postgres_address().await?).await
}

/// A key prefix of the test's own, on the shared cluster. A test that kills, freezes or flushes takes
/// [`RedisCluster::start_private`] instead.
pub async fn redis() -> Result<TestRedis, Error> {
    let urls = redis_addresses().await?.iter().map(|address| format!("redis://{address}")).collect();
    Ok(TestRedis { urls, prefix: format!("test-{}", uuid::Uuid::now_v7().simple()) })
}

/// Where the shared Postgres listens; started now if nobody has.
pub async fn postgres_address() -> Result<SocketAddr, Error> {
    static OWN: OnceCell<PostgresServer> = OnceCell::const_new();
    if let Some(addresses) = from_environment(POSTGRES_VARIABLE)? {
        return addresses.first().copied().ok_or(Error::NoSuchNode);
    }
    Ok(OWN.get_or_try_init(|| PostgresServer::start(PostgresServerConfig::default())).await?.address())
}

/// The nodes of the shared cluster; started now if nobody has.
pub async fn redis_addresses() -> Result<Vec<SocketAddr>, Error> {
    static OWN: OnceCell<RedisCluster> = OnceCell::const_new();
    if let Some(addresses) = from_environment(REDIS_VARIABLE)? {
        return Ok(addresses);
    }
    Ok(OWN.get_or_try_init(|| RedisCluster::start(RedisClusterConfig::default())).await?.addresses())
}

fn from_environment(variable: &'static str) -> Result<Option<Vec<SocketAddr>>, Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "no setting of a service: it is how the test run names its stack"
    )]
    let Ok(value) = std::env::var(variable) else { return Ok(None) };
    let addresses: Result<Vec<SocketAddr>, _> = value.split(',').map(str::parse).collect();
    addresses.map(Some).map_err(|_| Error::BadVariable { variable, value })
}
