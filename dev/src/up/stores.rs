//! Stores of a mesh: one Postgres and one Redis Cluster, whose data survives a restart of the mesh.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use onsale::mesh::folder::{Folder, write_private};
use onsale_testkit::stack::{PreparedPostgres, RedisNode, form_cluster, is_cluster_settled, process};
use tokio_postgres::NoTls;

use super::{
    DATABASE, leftovers,
    ports::{Port, Ports},
};

/// Longest wait for a store to accept queries.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Masters of the cluster; the other three nodes are replicas.
const MASTERS: usize = 3;
/// Parent of the Postgres data folder if the account of Postgres may not enter the folder of the mesh.
const ELSEWHERE: &str = "/var/lib/onsale";

/// Creates the data directory of Postgres if there is none.
pub(crate) async fn prepare_postgres(folder: &Folder) -> anyhow::Result<PreparedPostgres> {
    let base = postgres_base(folder)?;
    leftovers::unblock_postgres(&base.join("data"));
    PreparedPostgres::in_directory(&base, true).await.context("failed to prepare Postgres")
}

/// Returns the folder of Postgres. Started by root, Postgres runs under another account. If that account cannot enter the
/// folder of the mesh (a clone in root's home), the data is below [`ELSEWHERE`], and the mesh's folder has a link to it.
fn postgres_base(folder: &Folder) -> anyhow::Result<PathBuf> {
    let base = folder.data("postgres");
    if base.exists() {
        return base.canonicalize().context("failed to resolve the data folder of Postgres");
    }
    std::fs::create_dir_all(&base).context("failed to create the data folder of Postgres")?;
    if !process::is_root() || may_enter(&base)? {
        return Ok(base);
    }
    let name = format!("{:016x}", rand::random::<u64>());
    let elsewhere = PathBuf::from(ELSEWHERE).join(name);
    std::fs::create_dir_all(&elsewhere).context("failed to create the data folder of Postgres")?;
    std::fs::remove_dir(&base).context("failed to replace the data folder of Postgres")?;
    std::os::unix::fs::symlink(&elsewhere, &base).context("failed to link the data folder of Postgres")?;
    Ok(elsewhere)
}

fn may_enter(base: &std::path::Path) -> anyhow::Result<bool> {
    let test = process::find_program("test", "coreutils")?;
    let mut command = process::guarded(&test, Some("postgres"), process::Signal::Kill)?;
    command.arg("-x").arg(base).current_dir("/");
    Ok(process::run_to_end(command, "test").is_ok())
}

/// Deletes all data, secrets and logs. Postgres data outside of the folder is deleted first: only a link in the folder leads
/// to it.
pub(crate) fn wipe(folder: &Folder) -> anyhow::Result<()> {
    if let Ok(elsewhere) = std::fs::read_link(folder.data("postgres"))
        && elsewhere.starts_with(ELSEWHERE)
        && elsewhere.exists()
    {
        std::fs::remove_dir_all(&elsewhere)
            .with_context(|| format!("failed to remove {}", elsewhere.display()))?;
        // Fails while another mesh has data there.
        let _ = std::fs::remove_dir(ELSEWHERE);
    }
    folder.wipe()
}

/// Waits until Postgres accepts connections and creates the database if it does not exist.
pub(crate) async fn open_postgres(prepared: &PreparedPostgres, ports: &Ports) -> anyhow::Result<()> {
    let address = ports.address(Port::Postgres);
    wait_for("Postgres", async || prepared.answers(address.port()).await).await?;
    let url = format!("postgres://postgres@{address}/postgres");
    let (client, connection) =
        tokio_postgres::connect(&url, NoTls).await.context("failed to connect to Postgres")?;
    let make = async move {
        let found = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
        if found.is_none() {
            client.batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    // The connection ends when `make` drops its client.
    let (made, _) = tokio::join!(make, connection);
    made.context("failed to create the database")
}

/// Prepares the data folder of Redis for `nodes`. Deletes the data of a cluster that was formed on other ports or never
/// completely: nodes know each other by port, and services rebuild everything in Redis from Postgres.
pub(crate) fn prepare_redis(folder: &Folder, nodes: &[RedisNode]) -> anyhow::Result<()> {
    let formed = std::fs::read_to_string(formed_file(folder)).unwrap_or_default();
    let data = folder.data("redis");
    if formed != signature(nodes) && data.exists() {
        std::fs::remove_dir_all(&data).context("failed to delete the data of Redis")?;
    }
    std::fs::create_dir_all(&data).context("failed to create the data folder of Redis")
}

/// Forms a cluster of the nodes if they are not one yet, and waits until all nodes agree on it.
pub(crate) async fn open_redis(folder: &Folder, nodes: &[RedisNode]) -> anyhow::Result<()> {
    let addresses: Vec<_> = nodes.iter().map(RedisNode::address).collect();
    let formed = formed_file(folder);
    if !formed.exists() {
        form_cluster(nodes, MASTERS, TIMEOUT).await.context("failed to form the Redis Cluster")?;
    }
    wait_for("the Redis Cluster", async || is_cluster_settled(&addresses).await.unwrap_or(false)).await?;
    write_private(&formed, &signature(nodes))
}

/// Returns the file that exists once the cluster was complete, with the [`signature`] of its nodes.
fn formed_file(folder: &Folder) -> PathBuf {
    folder.data("redis").join("formed")
}

fn signature(nodes: &[RedisNode]) -> String {
    nodes.iter().map(|node| format!("{}@{} ", node.port, node.bus_port)).collect()
}

async fn wait_for(what: &str, condition: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + TIMEOUT;
    while !condition().await {
        if tokio::time::Instant::now() >= end {
            bail!("timed out after {} s waiting for {what}: see `onsale logs`", TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
