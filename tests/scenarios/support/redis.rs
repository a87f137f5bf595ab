//! Operations on the Redis Cluster of a mesh: commands on one node, corrupted pools, and the failover of a master.

use std::{process::Stdio, time::Duration};

use onsale_inventory::store::keys::Keys;
use onsale_proto::inventory::v1::Event;
use onsale_storage::redis::{Command, Key, Redis, RedisConfig};
use onsale_testkit::wait_until;

use super::{TIMEOUT, mesh::Mesh};

/// Timeout of one command. A node that needs longer is considered frozen.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a command on one node and returns its output, which is empty if the node does not respond.
pub(crate) async fn ask(node: &str, command: &[&str]) -> String {
    let (host, port) = node.trim_start_matches("redis://").rsplit_once(':').unwrap();
    let mut client = tokio::process::Command::new("redis-cli");
    client.args(["-h", host, "-p", port]).args(command).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER_TIMEOUT, client.output()).await;
    output.map(|output| String::from_utf8_lossy(&output.unwrap().stdout).into_owned()).unwrap_or_default()
}

/// Pools of free units of an event, for tests that corrupt them.
pub(crate) struct Pools {
    redis: Redis,
    keys: Vec<(Key, usize)>,
}

impl Pools {
    pub(crate) async fn of(mesh: &Mesh, event: &Event) -> Self {
        let redis = Redis::connect(&RedisConfig::new(mesh.redis_nodes().to_vec(), "onsale")).await.unwrap();
        let keys = Keys::new(redis.keyspace(onsale_inventory::SERVICE).unwrap());
        let event_id = event.event_id.parse().unwrap();
        let key = |sector_id: &str| keys.pool(event_id, sector_id.parse().unwrap()).unwrap();
        let sectors = event.sectors.iter();
        let bytes = |capacity: u32| usize::try_from(capacity.div_ceil(8)).unwrap();
        let keys = sectors.map(|sector| (key(&sector.sector_id), bytes(sector.capacity))).collect();
        Self { redis, keys }
    }

    /// Overwrites the pools, so that all units look free or all look taken.
    pub(crate) async fn overwrite(&self, are_free: bool) {
        for (key, bytes) in &self.keys {
            let pool = vec![if are_free { 0xff_u8 } else { 0 }; *bytes];
            self.redis.run::<()>(Command::new("SET").key(key).arg(&pool[..])).await.unwrap();
        }
    }

    /// Freezes the master of the first pool until its replica has taken over, then kills it and waits for its restart.
    pub(crate) async fn fail_over_master(&self, mesh: &Mesh) {
        let (key, _) = &self.keys[0];
        let nodes = mesh.redis_nodes();
        let slot: u16 = ask(&nodes[0], &["CLUSTER", "KEYSLOT", key.as_str()]).await.trim().parse().unwrap();
        let lost = master_of(nodes, slot, None).await.unwrap();
        let name = format!("redis-{}", lost + 1);
        mesh.freeze(&name);
        wait_until("the replica is master", TIMEOUT, || async {
            master_of(nodes, slot, Some(lost)).await.is_some_and(|master| master != lost)
        })
        .await;
        mesh.kill_and_await_restart(&name).await;
    }
}

/// Returns the index of the master of `slot`, from the view of the first node that is not `frozen`.
async fn master_of(nodes: &[String], slot: u16, frozen: Option<usize>) -> Option<usize> {
    let witness = (0..nodes.len()).find(|place| Some(*place) != frozen)?;
    let view = ask(&nodes[witness], &["CLUSTER", "NODES"]).await;
    let master = view.lines().find(|line| is_master_of(line, slot))?;
    let address = master.split_whitespace().nth(1)?.split('@').next()?;
    nodes.iter().position(|node| node.ends_with(address))
}

/// Returns true if a line of `CLUSTER NODES` describes a healthy master of `slot`.
fn is_master_of(line: &str, slot: u16) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let flags: Vec<&str> = words[2].split(',').collect();
    let ranges = words.iter().skip(8).filter(|range| !range.starts_with('['));
    let mut bounds = ranges.map(|range| range.split_once('-').unwrap_or((range, range)));
    let holds = bounds.any(|(first, last)| (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot));
    flags.contains(&"master") && !flags.iter().any(|flag| flag.starts_with("fail")) && holds
}
