//! A real Redis Cluster on loopback that tests can kill, freeze, restart, flush and reshard.
//! A cluster starts empty, because everything in Redis can be rebuilt from Postgres. Single nodes ([`RedisNode`],
//! [`form_cluster`]) keep their data, for programs that run them longer than a test.

mod control;
mod formation;
mod view;

pub use control::is_cluster_settled;
pub use formation::form_cluster;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use super::Error;
use super::process::{self, Launch, Process, Scratch, Signal};

const PACKAGE: &str = "redis-server";
/// Most attempts to start a node on free ports: another process may take a port between our check and the server's bind.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// Configuration of a Redis Cluster.
#[derive(Clone, Debug)]
pub struct RedisClusterConfig {
    /// Number of masters that share the slots.
    pub masters: usize,
    /// Number of replicas of each master.
    pub replicas_per_master: usize,
    /// Silence after which the other nodes mark a node as failed (default 2 s).
    pub node_timeout: Duration,
    /// Longest time until all nodes agree on the layout of the cluster.
    pub start_timeout: Duration,
}

impl Default for RedisClusterConfig {
    fn default() -> Self {
        Self {
            masters: 3,
            replicas_per_master: 1,
            node_timeout: Duration::from_secs(2),
            start_timeout: super::START_TIMEOUT,
        }
    }
}

/// A running cluster. Dropping the handle kills its nodes; the kernel also kills them when this process ends.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    config: RedisClusterConfig,
    // Declared last, so that the directory is removed after the servers have stopped.
    _scratch: Scratch,
}

/// One node of the cluster and its process.
#[derive(Debug)]
struct Node {
    server: RedisNode,
    /// Process of the node. `None` after a kill, until the restart.
    process: Mutex<Option<Process>>,
}

/// Index of a node in its cluster. It stays the same when the role of the node changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeIndex(usize);

impl RedisCluster {
    /// Starts the nodes, forms a cluster and waits until all nodes agree on its layout.
    pub async fn start(config: RedisClusterConfig) -> Result<Self, Error> {
        let scratch = Scratch::create("redis")?;
        let count = config.masters * (1 + config.replicas_per_master);
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push(Node::start_on_free_ports(scratch.path(), &config).await?);
        }
        let cluster = Self { nodes, config, _scratch: scratch };
        let servers: Vec<RedisNode> = cluster.nodes.iter().map(|node| node.server.clone()).collect();
        form_cluster(&servers, cluster.config.masters, cluster.config.start_timeout).await?;
        cluster.wait_until_settled().await?;
        Ok(cluster)
    }

    /// Starts a private cluster, for a test that breaks it.
    pub async fn start_private() -> Result<Self, Error> {
        Self::start(RedisClusterConfig::default()).await
    }

    /// Returns the addresses of all nodes, including killed ones.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// Returns the addresses of all nodes as `redis://` URLs, for clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.addresses().into_iter().map(|address| format!("redis://{address}")).collect()
    }

    /// Returns the address of one node.
    pub fn address(&self, node: NodeIndex) -> Result<SocketAddr, Error> {
        Ok(self.node(node)?.address())
    }

    /// Kills all nodes and waits for their end.
    pub async fn stop(self) -> Result<(), Error> {
        // Nothing has to be saved first, because the data is removed too.
        for node in self.nodes {
            if let Some(process) = node.process.into_inner() {
                process.stop(Signal::Kill, Duration::from_secs(5)).await?;
            }
        }
        Ok(())
    }

    fn node(&self, node: NodeIndex) -> Result<&Node, Error> {
        self.nodes.get(node.0).ok_or(Error::NoSuchNode)
    }

    /// Returns the nodes that are not killed, including frozen ones.
    fn running(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.is_running())
            .map(|(index, node)| (NodeIndex(index), node))
    }
}

impl Node {
    async fn start_on_free_ports(base: &Path, config: &RedisClusterConfig) -> Result<Self, Error> {
        for attempt in 1.. {
            let (port, bus_port) = (process::free_port()?, process::free_port()?);
            let directory = base.join(port.to_string());
            let server = RedisNode {
                directory,
                port,
                bus_port,
                node_timeout: config.node_timeout,
                compacts_log: false,
            };
            let mut process = Process::start(&server.launch()?)?;
            match control::wait_until_answering(&mut process, server.address(), config.start_timeout).await {
                Ok(()) => return Ok(Self { server, process: Mutex::new(Some(process)) }),
                // Most likely another process took the port.
                Err(Error::Ended { .. }) if attempt < PORT_ATTEMPTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPort)
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn is_running(&self) -> bool {
        self.process.lock().as_mut().is_some_and(Process::is_running)
    }
}

/// Settings with which one node is started.
#[derive(Clone, Debug)]
pub struct RedisNode {
    /// Directory of its data, its cluster state and its log. A node started again with the same directory and port is the
    /// same node to the others.
    pub directory: PathBuf,
    /// Port for clients.
    pub port: u16,
    /// Port for the other nodes.
    pub bus_port: u16,
    /// Silence after which the other nodes mark a node as failed.
    pub node_timeout: Duration,
    /// Rewrites the append-only file when it has doubled in size, for nodes that run longer than a test.
    pub compacts_log: bool,
}

impl RedisNode {
    /// Returns the address on which the node listens for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Creates the directory of the node and returns the command line that starts it.
    pub fn launch(&self) -> Result<Launch, Error> {
        std::fs::create_dir_all(&self.directory).map_err(|source| Error::Directory { source })?;
        let node_timeout = self.node_timeout.as_millis().to_string();
        let settings: [(&str, &str); 21] = [
            ("--port", &self.port.to_string()),
            ("--cluster-port", &self.bus_port.to_string()),
            ("--bind", "127.0.0.1"),
            ("--daemonize", "no"),
            ("--dir", &self.directory.display().to_string()),
            ("--cluster-enabled", "yes"),
            ("--cluster-config-file", "nodes.conf"),
            ("--cluster-node-timeout", &node_timeout),
            // A replica takes over however stale it is: services must survive that loss of writes.
            ("--cluster-replica-validity-factor", "0"),
            ("--cluster-allow-replica-migration", "no"),
            // A shard without a master must not stop the others.
            ("--cluster-require-full-coverage", "no"),
            ("--appendonly", "yes"),
            ("--appendfsync", "everysec"),
            ("--auto-aof-rewrite-percentage", if self.compacts_log { "100" } else { "0" }),
            ("--save", ""),
            ("--repl-diskless-sync", "yes"),
            ("--repl-diskless-sync-delay", "0"),
            ("--shutdown-timeout", "0"),
            ("--databases", "1"),
            ("--loglevel", "notice"),
            ("--enable-debug-command", "local"),
        ];
        let arguments = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
        Ok(Launch {
            name: "redis-server".to_owned(),
            program: process::find_program("redis-server", PACKAGE)?,
            arguments: arguments.collect(),
            environment: Vec::new(),
            user: None,
            log: self.directory.join("redis.log"),
            // A frozen node would not receive any other signal.
            death_signal: Signal::Kill,
        })
    }
}
