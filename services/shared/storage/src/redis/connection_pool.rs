//! The shared cluster connections ("pool"), and how a bad one is replaced.
//!
//! A cluster connection is multiplexed: it is cloned out and never held, so two of them serve any number of callers.
//! A caller that saw a timeout or a dropped connection marks its link as broken; the pool then builds another from the
//! configured nodes, which is the only way to learn about a master that is frozen rather than dead (nothing on the old
//! link fails fast, so nothing makes it look at the topology again).
//!
//! A broken link goes on serving until its replacement reaches a master for every slot: to a frozen master only its own
//! slots wait on the old link, while a link made too early would stall the others too with each look at the topology.

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

/// How long a caller waits for a healthy link before it takes the last one, broken or not.
const CHECKOUT_WAIT: Duration = Duration::from_millis(5);

/// How long to wait between two looks at the cluster, or two tries to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long to look at a cluster in which nothing changes before a new try.
const UNCHANGED_MAX: Duration = Duration::from_secs(1);

/// A cluster connection and whether somebody found it broken. Clones share both.
#[derive(Clone)]
pub(super) struct SharedConnection {
    pub(super) connection: ClusterConnection,
    broken: Arc<AtomicBool>,
}

impl SharedConnection {
    fn new(connection: ClusterConnection) -> Self {
        Self { connection, broken: Arc::new(AtomicBool::new(false)) }
    }

    /// Asks for a replacement; the link goes on serving until there is one.
    pub(super) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// The pool of one process.
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
            // The manager tries again by itself, and knows better when to stop.
            .retry_connection(false)
            .build(manager)
            .await
            .map_err(|source| Error::Unavailable { command: "connect", source })?;
        Ok(Self { pool, newest })
    }

    /// A link to send on: a healthy one, or else the newest there is.
    pub(super) async fn get(
        &self,
        command: &'static str,
        deadline: Deadline,
    ) -> Result<SharedConnection, Error> {
        if let Ok(Ok(guard)) = timeout(CHECKOUT_WAIT.min(deadline.remaining()), self.pool.get()).await {
            return Ok(guard.clone());
        }
        // Bound to a name so that the lock is not held over the wait below.
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

/// The settings that all our cluster clients share.
pub(super) fn builder(config: &RedisConfig) -> ClusterClientBuilder {
    let mut builder = ClusterClientBuilder::new(config.nodes.iter().map(String::as_str))
        .connection_timeout(config.connect_timeout)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .async_dns_resolver(ReconnectLimiter::default())
        // The client would also send again what may have run; whether that is allowed is for us to say.
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
        // Asking the server here would put a round trip to every master before each command.
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
        // At start a link to a part of the cluster is better than none.
        if !is_first {
            let masters = masters(&mut shared.connection).await?;
            if !are_reached(&masters, &mut shared.connection).await? {
                // Connecting past a frozen node takes long. Looking is cheap: try again when there is a new master.
                wait_for_change(&masters, &mut shared.connection, deadline).await?;
                return Err(broken());
            }
        }
        *self.newest.lock() = Some(shared.clone());
        Ok(shared)
    }
}

/// The first slot of each range, and the id of its master.
type Masters = Vec<(u16, Value)>;

async fn masters(connection: &mut ClusterConnection) -> Result<Masters, RedisError> {
    let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let ranges = connection.route_command(cluster("SLOTS"), anywhere).await?.extract_error()?;
    let ranges: Vec<Vec<Value>> = redis::from_redis_value(ranges)?;
    ranges.into_iter().map(|range| first_slot_and_master(range).ok_or_else(broken)).collect()
}

/// Of an element of `CLUSTER SLOTS`: first slot, last slot, the master as address, port and id, then the replicas.
fn first_slot_and_master(range: Vec<Value>) -> Option<(u16, Value)> {
    let mut range = range.into_iter();
    let Some(Value::Int(slot)) = range.next() else { return None };
    let Some(Value::Array(master)) = range.nth(1) else { return None };
    Some((u16::try_from(slot).ok()?, master.into_iter().nth(2)?))
}

/// Whether every master answers by itself: for one it cannot reach, the client quietly asks any other node instead.
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
    // A master that only was slow comes back without any change.
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
