//! A real Redis Cluster on loopback, with the levers a test needs: kill, freeze, restart, wipe, move slots.
//! Its data is always new: whatever is in Redis can be rebuilt from Postgres. The nodes by themselves ([`RedisNode`],
//! [`form_cluster`]) keep theirs, for whoever runs them longer than a test.

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
/// Another process may take a port between our look and the server's bind.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// How to run a cluster.
#[derive(Clone, Debug)]
pub struct RedisClusterConfig {
    /// How many masters share the slots.
    pub masters: usize,
    /// How many replicas each master has.
    pub replicas_per_master: usize,
    /// How long a node may be silent before the others call it failed.
    pub node_timeout: Duration,
    /// How long the cluster may take until every node agrees.
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

/// A running cluster. Dropping it ends it at once; it also ends when this process does, however that ends.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    config: RedisClusterConfig,
    // Declared last: the data goes after the servers that write it.
    _scratch: Scratch,
}

/// One server of the cluster.
#[derive(Debug)]
struct Node {
    server: RedisNode,
    /// `None` while it is killed.
    process: Mutex<Option<Process>>,
}

/// Names a node of one cluster, whatever its role is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeIndex(usize);

impl RedisCluster {
    /// Starts the nodes, joins them into a cluster and waits until every node agrees on who holds what.
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

    /// A cluster of one test's own, for a test that breaks it.
    pub async fn start_private() -> Result<Self, Error> {
        Self::start(RedisClusterConfig::default()).await
    }

    /// Every node's address, also of those that are down.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// The seed addresses a client is given, as `redis://` URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.addresses().into_iter().map(|address| format!("redis://{address}")).collect()
    }

    /// The address of one node.
    pub fn address(&self, node: NodeIndex) -> Result<SocketAddr, Error> {
        Ok(self.node(node)?.address())
    }

    /// Stops every node.
    pub async fn stop(self) -> Result<(), Error> {
        // Nobody needs the data, so there is nothing to save first.
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

    /// The nodes that run, frozen ones too.
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
                // Most likely somebody took the port.
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

/// One server of a cluster, as it is started.
#[derive(Clone, Debug)]
pub struct RedisNode {
    /// Its data, its view of the cluster and its log. A node started there again is the same node, if its port is too.
    pub directory: PathBuf,
    /// For clients.
    pub port: u16,
    /// For the other nodes.
    pub bus_port: u16,
    /// How long a node may be silent before the others call it failed.
    pub node_timeout: Duration,
    /// Whether the data is to be kept for long: then its log of writes is rewritten as it grows.
    pub compacts_log: bool,
}

impl RedisNode {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// How to start it; makes its directory.
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
            // However far behind, a replica takes over: that is the loss the code above it must survive.
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
            // Not a politer one: a frozen node would never see it.
            death_signal: Signal::Kill,
        })
    }
}
