//! Pool of shared cluster connections, and the replacement of broken ones.
//!
//! A cluster connection is multiplexed: callers clone it, so two of them serve any number of callers. A caller that saw
//! a timeout or a lost connection marks its connection as broken. The pool then opens another one from the configured
//! nodes. This is the only way to learn that a frozen master was replaced: on the old connection nothing fails, so the
//! client does not refresh its topology.
//!
//! A broken connection stays in use until its replacement reaches a master for every slot. With a frozen master, calls
//! to other slots still work on the old connection, while an early replacement would delay them too with each topology
//! refresh.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onsale_kit::deadline::Deadline;
use parking_lot::Mutex;
use redis::{
    ErrorKind, RedisError, Value,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
    io::tcp::TcpSettings,
};
use tokio::time::timeout;

use super::{Error, RedisConfig, reconnect_limiter::ReconnectLimiter};

/// Maximum wait of a caller for a healthy connection before it uses the newest one, broken or not.
const CHECKOUT_WAIT: Duration = Duration::from_millis(5);

/// Interval between two checks of the cluster and between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum time to watch an unchanged cluster before the next attempt.
const UNCHANGED_MAX: Duration = Duration::from_secs(1);

/// Cluster connection with a flag for broken ones. Clones share both.
#[derive(Clone)]
pub(super) struct SharedConnection {
    pub(super) connection: ClusterConnection,
    broken: Arc<AtomicBool>,
}

impl SharedConnection {
    fn new(connection: ClusterConnection) -> Self {
        Self { connection, broken: Arc::new(AtomicBool::new(false)) }
    }

    /// Requests a replacement. The connection stays in use until there is one.
    pub(super) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Pool of this process.
#[derive(Clone)]
pub(super) struct ConnectionPool {
    pool: bb8::Pool<ConnectionManager>,
    newest: Newest,
}

type Newest = Arc<Mutex<Option<SharedConnection>>>;

impl ConnectionPool {
    pub(super) async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        let client = builder(config)
            .response_timeout(config.command_timeout)
            .overall_response_timeout(Some(config.overall_timeout))
            .build()
            .map_err(|source| Error::Unavailable { command: "connect", source })?;
        let newest = Newest::default();
        let manager = ConnectionManager {
            client,
            newest: Arc::clone(&newest),
            replace_timeout: config.overall_timeout,
        };
        let pool = bb8::Pool::builder()
            .max_size(config.connections)
            .min_idle(config.connections)
            .max_lifetime(None)
            .idle_timeout(None)
            .connection_timeout(config.overall_timeout)
            // `ConnectionManager` retries by itself until its deadline.
            .retry_connection(false)
            .build(manager)
            .await
            .map_err(|source| Error::Unavailable { command: "connect", source })?;
        Ok(Self { pool, newest })
    }

    /// Returns a healthy connection, or else the newest one.
    pub(super) async fn get(
        &self,
        command: &'static str,
        deadline: Deadline,
    ) -> Result<SharedConnection, Error> {
        if let Ok(Ok(guard)) = timeout(CHECKOUT_WAIT.min(deadline.remaining()), self.pool.get()).await {
            return Ok(guard.clone());
        }
        // A separate statement releases the lock before the wait below.
        let newest = self.newest.lock().clone();
        if let Some(shared) = newest {
            return Ok(shared);
        }
        match deadline.bound(self.pool.get()).await {
            Ok(Ok(guard)) => Ok(guard.clone()),
            Ok(Err(bb8::RunError::User(source))) => Err(Error::Unavailable { command, source }),
            Ok(Err(bb8::RunError::TimedOut)) => {
                Err(Error::Unavailable { command, source: super::error::timed_out() })
            }
            Err(_passed) => Err(Error::Deadline { command }),
        }
    }
}

/// Returns a builder with the settings of all cluster clients of this process.
pub(super) fn builder(config: &RedisConfig) -> ClusterClientBuilder {
    let mut builder = ClusterClientBuilder::new(config.nodes.iter().map(String::as_str))
        .connection_timeout(config.connect_timeout)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .async_dns_resolver(ReconnectLimiter::default())
        // The driver would also repeat commands that may have run. `execute` decides about retries instead.
        .retries(0);
    if let Some(username) = &config.username {
        builder = builder.username(username);
    }
    if let Some(password) = &config.password {
        builder = builder.password(password.expose());
    }
    builder
}

struct ConnectionManager {
    client: ClusterClient,
    newest: Newest,
    replace_timeout: Duration,
}

impl bb8::ManageConnection for ConnectionManager {
    type Connection = SharedConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<SharedConnection, RedisError> {
        let deadline = Deadline::after(self.replace_timeout);
        loop {
            let attempt = self.attempt(deadline).await;
            if attempt.is_ok() || deadline.is_past() {
                return attempt;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn is_valid(&self, shared: &mut SharedConnection) -> Result<(), RedisError> {
        // A check on the server would add a round trip to every master before each command.
        if shared.is_broken() { Err(broken()) } else { Ok(()) }
    }

    fn has_broken(&self, shared: &mut SharedConnection) -> bool {
        shared.is_broken()
    }
}

impl ConnectionManager {
    async fn attempt(&self, deadline: Deadline) -> Result<SharedConnection, RedisError> {
        let mut shared = SharedConnection::new(self.client.get_async_connection().await?);
        let is_first = self.newest.lock().is_none();
        // At start, a connection to a part of the cluster is better than none.
        if !is_first {
            let masters = masters(&mut shared.connection).await?;
            if !are_reached(&masters, &mut shared.connection).await? {
                // Connecting past a frozen node is slow and checking is cheap, so retry once there is a new master.
                wait_for_change(&masters, &mut shared.connection, deadline).await?;
                return Err(broken());
            }
        }
        *self.newest.lock() = Some(shared.clone());
        Ok(shared)
    }
}

/// First slot of each range, with the node id of its master.
type Masters = Vec<(u16, Value)>;

async fn masters(connection: &mut ClusterConnection) -> Result<Masters, RedisError> {
    let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let ranges = connection.route_command(cluster("SLOTS"), anywhere).await?.extract_error()?;
    let ranges: Vec<Vec<Value>> = redis::from_redis_value(ranges)?;
    ranges.into_iter().map(|range| first_slot_and_master(range).ok_or_else(broken)).collect()
}

/// Parses one element of `CLUSTER SLOTS`: first slot, last slot, the master as address, port and id, then the replicas.
fn first_slot_and_master(range: Vec<Value>) -> Option<(u16, Value)> {
    let mut range = range.into_iter();
    let Some(Value::Int(slot)) = range.next() else { return None };
    let Some(Value::Array(master)) = range.nth(1) else { return None };
    Some((u16::try_from(slot).ok()?, master.into_iter().nth(2)?))
}

/// Returns true if every master answers with its own id. For an unreachable master the client silently asks another
/// node.
async fn are_reached(masters: &Masters, connection: &mut ClusterConnection) -> Result<bool, RedisError> {
    for (slot, id) in masters {
        let route = Route::new(*slot, SlotAddr::Master);
        let there = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        if connection.route_command(cluster("MYID"), there).await?.extract_error()? != *id {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn wait_for_change(
    before: &Masters,
    connection: &mut ClusterConnection,
    deadline: Deadline,
) -> Result<(), RedisError> {
    // A master that was only slow comes back without a topology change.
    let end = deadline.min(Deadline::after(UNCHANGED_MAX));
    while !end.is_past() && masters(connection).await? == *before {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn cluster(subcommand: &str) -> redis::Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(subcommand);
    command
}

fn broken() -> RedisError {
    (ErrorKind::Io, "the cluster connection is being replaced").into()
}
