//! The stack under the tests: a real Postgres and a real Redis Cluster, started once per run, with a fresh database and a
//! private key prefix for each test.
//!
//! Under `teststack` the whole test run shares one stack, whose addresses are in two environment variables. Without it each
//! test process starts a stack at first use. In both cases the kernel ends the servers with the process that started them,
//! even if that process is killed.

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

/// Environment variable with the address of the shared Postgres, as `address:port`.
pub const POSTGRES_VARIABLE: &str = "ONSALE_TEST_POSTGRES";
/// Environment variable with the addresses of the shared Redis nodes, as `address:port,…`.
pub const REDIS_VARIABLE: &str = "ONSALE_TEST_REDIS";

/// Longest time until a started server responds. Each server first writes and syncs a few files, which took more than 30 s
/// on a disk that was busy with other writes.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Failure to start or control the stack.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program of a server is not installed.
    #[error("`{program}` is not installed: it comes with the Debian package `{package}`")]
    MissingProgram {
        /// File name of the missing program.
        program: &'static str,
        /// Debian package that contains it.
        package: &'static str,
    },
    /// The operating system could not start a process or a signal handler.
    #[error("failed to start {name}")]
    Start {
        /// Name of the process or handler.
        name: String,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A process ended before it was stopped, or a command failed.
    #[error("{name} ended unexpectedly:\n{log}")]
    Ended {
        /// Name of the process.
        name: String,
        /// Last lines of its log, or its output.
        log: String,
    },
    /// A running server, or a condition of the cluster, was not ready in time.
    #[error("timed out after {waited:?} waiting for {name}")]
    NotReady {
        /// Name of the server or condition.
        name: String,
        /// Timeout that passed.
        waited: Duration,
    },
    /// All attempted loopback ports are in use.
    #[error("found no free port on loopback")]
    NoPort,
    /// A directory could not be created or moved.
    #[error("failed to prepare a directory for a server")]
    Directory {
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A node rejected an administrative command or did not respond.
    #[error("redis command `{command}` failed")]
    Redis {
        /// Command with its arguments.
        command: String,
        /// Error of the Redis client.
        #[source]
        source: redis::RedisError,
    },
    /// No running node has the requested role or index.
    #[error("no such node in the cluster")]
    NoSuchNode,
    /// A connection or statement on the administrative database failed.
    #[error("failed to {attempt}")]
    Postgres {
        /// The attempted action, as a verb phrase.
        attempt: String,
        /// Error of the Postgres client.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The migrations failed on a new database.
    #[error("failed to migrate a test database")]
    Migrate {
        /// Error of the migration runner.
        #[source]
        source: onsale_storage::migrate::Error,
    },
    /// An environment variable of the shared stack does not contain addresses.
    #[error("{variable} must hold addresses, not `{value}`")]
    BadVariable {
        /// Name of the variable.
        variable: &'static str,
        /// Its invalid value.
        value: String,
    },
}

/// One test's share of the Redis Cluster: its addresses and a key prefix that no other test uses.
#[derive(Clone, Debug)]
pub struct TestRedis {
    /// Seed nodes, as `redis://` URLs.
    pub urls: Vec<String>,
    /// Prefix of every key of the test.
    pub prefix: String,
}

/// Creates a fresh database with all migrations on the shared Postgres.
pub async fn database() -> Result<TestDatabase, Error> {
    TestDatabase::create(postgres_address().await?).await
}

/// Returns a new key prefix on the shared cluster. A test that kills, freezes or flushes nodes uses
/// [`RedisCluster::start_private`] instead.
pub async fn redis() -> Result<TestRedis, Error> {
    let urls = redis_addresses().await?.iter().map(|address| format!("redis://{address}")).collect();
    Ok(TestRedis { urls, prefix: format!("test-{}", uuid::Uuid::now_v7().simple()) })
}

/// Returns the address of the shared Postgres; the first call in a process without `teststack` starts it.
pub async fn postgres_address() -> Result<SocketAddr, Error> {
    static OWN: OnceCell<PostgresServer> = OnceCell::const_new();
    if let Some(addresses) = from_environment(POSTGRES_VARIABLE)? {
        return addresses.first().copied().ok_or(Error::NoSuchNode);
    }
    Ok(OWN.get_or_try_init(|| PostgresServer::start(PostgresServerConfig::default())).await?.address())
}

/// Returns the nodes of the shared cluster; the first call in a process without `teststack` starts them.
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
        reason = "the variable names the stack of a test run; it is not a setting of a service"
    )]
    let Ok(value) = std::env::var(variable) else { return Ok(None) };
    let addresses: Result<Vec<SocketAddr>, _> = value.split(',').map(str::parse).collect();
    addresses.map(Some).map_err(|_| Error::BadVariable { variable, value })
}
