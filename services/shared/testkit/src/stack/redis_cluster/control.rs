//! Operations on a running cluster: queries of roles, faults and repairs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue};

use super::{NodeIndex, RedisCluster, view};
use crate::stack::Error;
use crate::stack::process::{POLL_INTERVAL, Process, Signal};

/// Timeout of one administrative command. A node that needs longer is considered frozen.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);
const KEYS_PER_MOVE: usize = 100;

impl RedisCluster {
    /// Returns the master of `key`'s slot. The view of a node that can reach a majority of the masters wins.
    pub async fn master_of(&self, key: &str) -> Result<NodeIndex, Error> {
        let slot = self.slot_of(key).await?;
        let mut answer = Err(Error::NoSuchNode);
        for (_, node) in self.running() {
            let Ok(nodes) = view_from(node.address()).await else { continue };
            let owner = nodes.iter().find(|it| it.is("master") && it.is_healthy() && it.holds(slot));
            if let Some(owner) = owner {
                answer = self.index_of(owner.port);
                // A node that cannot reach a majority of the masters may have a stale view. Its cluster state shows that.
                if cluster_state_is_ok(node.address()).await {
                    break;
                }
            }
        }
        answer
    }

    /// Returns a healthy replica of the master of `key`'s slot.
    pub async fn replica_of(&self, key: &str) -> Result<NodeIndex, Error> {
        let master = self.master_of(key).await?;
        let nodes = view_from(self.address(master)?).await?;
        let own = nodes.iter().find(|it| it.is("myself")).map(|it| it.id.clone());
        let replica = nodes.iter().find(|it| it.master.is_some() && it.master == own && it.is_healthy());
        self.index_of(replica.ok_or(Error::NoSuchNode)?.port)
    }

    /// Kills a node without warning. `restart` starts it again.
    pub async fn kill(&self, node: NodeIndex) -> Result<(), Error> {
        let process = self.node(node)?.process.lock().take();
        match process {
            Some(process) => process.stop(Signal::Kill, Duration::from_secs(5)).await,
            None => Ok(()),
        }
    }

    /// Kills the master of `key`'s slot and returns its index.
    pub async fn kill_master_of(&self, key: &str) -> Result<NodeIndex, Error> {
        let master = self.master_of(key).await?;
        self.kill(master).await?;
        Ok(master)
    }

    /// Starts a killed node with its data and on its port, and waits until it responds.
    pub async fn restart(&self, index: NodeIndex) -> Result<(), Error> {
        let node = self.node(index)?;
        let mut process = Process::start(&node.server.launch()?)?;
        wait_until_answering(&mut process, node.address(), self.config.start_timeout).await?;
        *node.process.lock() = Some(process);
        Ok(())
    }

    /// Freezes a node: it keeps its connections but responds to no command.
    pub fn freeze(&self, node: NodeIndex) -> Result<(), Error> {
        self.signal(node, Signal::Stop)
    }

    /// Freezes all nodes of the cluster.
    pub fn freeze_all(&self) -> Result<(), Error> {
        self.running().try_for_each(|(index, _)| self.freeze(index))
    }

    /// Resumes one frozen node.
    pub fn thaw(&self, node: NodeIndex) -> Result<(), Error> {
        self.signal(node, Signal::Continue)
    }

    /// Resumes all frozen nodes of the cluster.
    pub fn thaw_all(&self) -> Result<(), Error> {
        self.running().try_for_each(|(index, _)| self.thaw(index))
    }

    /// Freezes the replica of `key`'s master and disconnects it from later writes. A test then kills the master and thaws the
    /// replica, which takes over without these writes: a failover that loses acknowledged writes.
    pub async fn cut_off_replica_of(&self, key: &str) -> Result<NodeIndex, Error> {
        let (master, replica) = (self.master_of(key).await?, self.replica_of(key).await?);
        self.freeze(replica)?;
        // Without this the socket of the frozen replica would still buffer what the master sends.
        let mut connection = connect(self.address(master)?).await?;
        ask::<redis::Value>(&mut connection, "CLIENT", &["KILL".into(), "TYPE".into(), "replica".into()])
            .await?;
        Ok(replica)
    }

    /// Makes the replica of `key`'s master take over with the consent of the master, so that no write is lost. Returns the
    /// new master.
    pub async fn hand_over(&self, key: &str) -> Result<NodeIndex, Error> {
        let replica = self.replica_of(key).await?;
        let mut connection = connect(self.address(replica)?).await?;
        ask::<()>(&mut connection, "CLUSTER", &["FAILOVER".into()]).await?;
        let taken_over = async || Ok(self.master_of(key).await? == replica);
        wait_for("the replica to take over", self.config.start_timeout, taken_over).await?;
        Ok(replica)
    }

    /// Runs `FLUSHALL` on all masters.
    pub async fn flush_all(&self) -> Result<(), Error> {
        for (_, node) in self.running() {
            let mut connection = connect(node.address()).await?;
            match ask::<()>(&mut connection, "FLUSHALL", &[]).await {
                // A replica refuses the command and receives the flush from its master.
                Err(Error::Redis { source, .. }) if source.code() == Some("READONLY") => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Moves `key`'s slot with all its keys to another master and returns that master.
    pub async fn move_slot_of(&self, key: &str) -> Result<NodeIndex, Error> {
        let slot = self.slot_of(key).await?;
        let from = self.master_of(key).await?;
        let nodes = view_from(self.address(from)?).await?;
        let own = nodes.iter().find(|it| it.is("myself")).ok_or(Error::NoSuchNode)?;
        let target = nodes
            .iter()
            .find(|it| it.is("master") && it.is_healthy() && it.id != own.id)
            .ok_or(Error::NoSuchNode)?;
        let to = self.index_of(target.port)?;
        let mut source = connect(self.address(from)?).await?;
        let mut destination = connect(self.address(to)?).await?;
        set_slot(&mut destination, slot, "IMPORTING", &own.id).await?;
        set_slot(&mut source, slot, "MIGRATING", &target.id).await?;
        migrate_keys(&mut source, slot, target.port).await?;
        for connection in [&mut destination, &mut source] {
            set_slot(connection, slot, "NODE", &target.id).await?;
        }
        self.wait_until_settled().await?;
        Ok(to)
    }

    /// Waits until all running nodes are settled, as [`is_cluster_settled`] defines it.
    pub async fn wait_until_settled(&self) -> Result<(), Error> {
        let settled = async || {
            let alive: Vec<SocketAddr> = self.running().map(|(_, node)| node.address()).collect();
            is_cluster_settled(&alive).await
        };
        wait_for("the cluster to settle", self.config.start_timeout, settled).await
    }

    async fn slot_of(&self, key: &str) -> Result<u16, Error> {
        for (_, node) in self.running() {
            let Ok(mut connection) = connect(node.address()).await else { continue };
            if let Ok(slot) = ask(&mut connection, "CLUSTER", &["KEYSLOT".into(), key.to_owned()]).await {
                return Ok(slot);
            }
        }
        Err(Error::NoSuchNode)
    }

    fn signal(&self, node: NodeIndex, signal: Signal) -> Result<(), Error> {
        self.node(node)?
            .process
            .lock()
            .as_ref()
            .map_or(Err(Error::NoSuchNode), |process| process.signal(signal))
    }

    fn index_of(&self, port: u16) -> Result<NodeIndex, Error> {
        self.nodes.iter().position(|node| node.server.port == port).map(NodeIndex).ok_or(Error::NoSuchNode)
    }
}

/// Returns true if every node in `alive` reports a healthy cluster, all agree on the owner of each slot, and every replica
/// is in sync with its master.
pub async fn is_cluster_settled(alive: &[SocketAddr]) -> Result<bool, Error> {
    let ports: Vec<u16> = alive.iter().map(SocketAddr::port).collect();
    let mut agreed = None;
    for node in alive {
        let nodes = view_from(*node).await?;
        let all_well = ports.iter().all(|port| nodes.iter().any(|it| it.port == *port && it.is_healthy()));
        let roles = view::roles(&nodes, &ports);
        // A master without slots has just lost them and will become a replica.
        let no_idle_master = roles.values().all(|(master, slots)| master.is_some() || !slots.is_empty());
        let same = *agreed.get_or_insert_with(|| roles.clone()) == roles;
        let settled = all_well && no_idle_master && same;
        if !settled || !cluster_state_is_ok(*node).await || !follows_its_master(*node).await {
            return Ok(false);
        }
    }
    Ok(agreed.is_some())
}

/// Waits until `condition` returns true. An error counts as false, because a node may be starting or stopping.
pub(super) async fn wait_for(
    what: &'static str,
    timeout: Duration,
    condition: impl AsyncFn() -> Result<bool, Error>,
) -> Result<(), Error> {
    let end = Instant::now() + timeout;
    while !matches!(condition().await, Ok(true)) {
        if Instant::now() >= end {
            return Err(Error::NotReady { name: what.to_owned(), waited: timeout });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Opens an administrative connection to one node.
pub(super) async fn connect(address: SocketAddr) -> Result<MultiplexedConnection, Error> {
    let failed = |source| Error::Redis { command: "connect".to_owned(), source };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(COMMAND_TIMEOUT))
        .set_response_timeout(Some(COMMAND_TIMEOUT));
    let client = redis::Client::open(format!("redis://{address}")).map_err(failed)?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
}

pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &str,
    arguments: &[String],
) -> Result<T, Error> {
    let mut line = redis::cmd(command);
    for argument in arguments {
        line.arg(argument);
    }
    line.query_async(connection)
        .await
        .map_err(|source| Error::Redis { command: format!("{command} {}", arguments.join(" ")), source })
}

pub(super) async fn wait_until_answering(
    process: &mut Process,
    address: SocketAddr,
    timeout: Duration,
) -> Result<(), Error> {
    let end = Instant::now() + timeout;
    loop {
        if let Some(error) = process.failure() {
            return Err(error);
        }
        if let Ok(mut connection) = connect(address).await
            && ask::<String>(&mut connection, "PING", &[]).await.is_ok()
        {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(Error::NotReady { name: "redis-server".to_owned(), waited: timeout });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn view_from(node: SocketAddr) -> Result<Vec<view::NodeView>, Error> {
    let mut connection = connect(node).await?;
    Ok(view::parse(&ask::<String>(&mut connection, "CLUSTER", &["NODES".into()]).await?))
}

async fn cluster_state_is_ok(node: SocketAddr) -> bool {
    reports(node, "CLUSTER", "cluster_state:ok").await
}

/// Returns true if the node is in sync with its master, or is a master itself.
async fn follows_its_master(node: SocketAddr) -> bool {
    reports(node, "INFO", "role:master").await
        || (reports(node, "INFO", "master_link_status:up").await
            && reports(node, "INFO", "master_sync_in_progress:0").await)
}

async fn reports(node: SocketAddr, command: &str, line: &str) -> bool {
    let argument = if command == "INFO" { "replication" } else { "INFO" };
    let Ok(mut connection) = connect(node).await else { return false };
    let answer = ask::<String>(&mut connection, command, &[argument.to_owned()]).await;
    answer.is_ok_and(|text| text.lines().any(|it| it.trim() == line))
}

async fn set_slot(
    connection: &mut MultiplexedConnection,
    slot: u16,
    state: &str,
    node: &str,
) -> Result<(), Error> {
    let arguments = ["SETSLOT".to_owned(), slot.to_string(), state.to_owned(), node.to_owned()];
    ask(connection, "CLUSTER", &arguments).await
}

async fn migrate_keys(source: &mut MultiplexedConnection, slot: u16, port: u16) -> Result<(), Error> {
    loop {
        let request = ["GETKEYSINSLOT".to_owned(), slot.to_string(), KEYS_PER_MOVE.to_string()];
        let keys: Vec<String> = ask(source, "CLUSTER", &request).await?;
        if keys.is_empty() {
            return Ok(());
        }
        let mut arguments: Vec<String> =
            ["127.0.0.1", &port.to_string(), "", "0", "5000", "KEYS"].map(str::to_owned).into();
        arguments.extend(keys);
        ask::<redis::Value>(source, "MIGRATE", &arguments).await?;
    }
}
