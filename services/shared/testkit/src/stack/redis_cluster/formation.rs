//! Forms a cluster out of separate nodes. Direct commands take half the time of `redis-cli --cluster create`.

use std::time::Duration;

use super::control::{ask, connect, wait_for};
use super::{RedisNode, view};
use crate::stack::Error;

const SLOTS: usize = 16_384;

/// Waits until all `nodes` respond and forms a cluster: the first `masters` nodes share the slots and the others become
/// their replicas. The cluster is not yet settled when this returns.
pub async fn form_cluster(nodes: &[RedisNode], masters: usize, timeout: Duration) -> Result<(), Error> {
    wait_for("all nodes to answer", timeout, async || all_nodes_answer(nodes).await).await?;
    let mut connections = Vec::with_capacity(nodes.len());
    for node in nodes {
        connections.push(connect(node.address()).await?);
    }
    for (index, connection) in connections.iter_mut().enumerate() {
        // Give each node its own epoch: otherwise the nodes must first resolve conflicts between equal epochs.
        ask::<()>(connection, "CLUSTER", &["SET-CONFIG-EPOCH".into(), (index + 1).to_string()]).await?;
        if index < masters {
            let (first, end) = (SLOTS * index / masters, SLOTS * (index + 1) / masters);
            let range = ["ADDSLOTSRANGE".into(), first.to_string(), (end - 1).to_string()];
            ask::<()>(connection, "CLUSTER", &range).await?;
        }
    }
    // Introduce every node to every other one, which is faster than waiting for gossip.
    for (index, connection) in connections.iter_mut().enumerate() {
        for node in nodes.iter().skip(index + 1) {
            let [port, bus_port] = [node.port.to_string(), node.bus_port.to_string()];
            ask::<()>(connection, "CLUSTER", &["MEET".into(), "127.0.0.1".into(), port, bus_port]).await?;
        }
    }
    let known = async || all_nodes_are_known(nodes).await;
    wait_for("all nodes to know each other", timeout, known).await?;

    let mut ids = Vec::with_capacity(connections.len());
    for connection in &mut connections {
        ids.push(ask::<String>(connection, "CLUSTER", &["MYID".into()]).await?);
    }
    for (replica, connection) in connections.iter_mut().skip(masters).enumerate() {
        let master = ids.get(replica % masters).cloned().unwrap_or_default();
        ask::<()>(connection, "CLUSTER", &["REPLICATE".into(), master]).await?;
    }
    Ok(())
}

async fn all_nodes_answer(nodes: &[RedisNode]) -> Result<bool, Error> {
    for node in nodes {
        ask::<String>(&mut connect(node.address()).await?, "PING", &[]).await?;
    }
    Ok(true)
}

async fn all_nodes_are_known(nodes: &[RedisNode]) -> Result<bool, Error> {
    for node in nodes {
        let mut connection = connect(node.address()).await?;
        let seen = view::parse(&ask::<String>(&mut connection, "CLUSTER", &["NODES".into()]).await?);
        if seen.len() != nodes.len() || !seen.iter().all(view::NodeView::is_healthy) {
            return Ok(false);
        }
    }
    Ok(true)
}
