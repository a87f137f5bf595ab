//! The stores of a mesh: a Postgres and a Redis Cluster that keep what they have from one start to the next.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use onsale_testkit::stack::{PreparedPostgres, RedisNode, form_cluster, is_cluster_settled, process};
use tokio_postgres::NoTls;

use super::{
    DATABASE,
    folder::{Folder, write_private},
    leftovers,
    ports::{Place, Ports},
};

/// How long a store may take to be usable.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Half of the nodes are masters.
const MASTERS: usize = 3;
/// Where Postgres keeps its data when its account may not walk into our folder.
const ELSEWHERE: &str = "/var/lib/onsale";

/// Makes the data directory of Postgres, or finds it.
pub(crate) async fn prepare_postgres(folder: &Folder) -> anyhow::Result<PreparedPostgres> {
    let base = postgres_base(folder)?;
    leftovers::unblock_postgres(&base.join("data"));
    PreparedPostgres::in_directory(&base, true).await.context("failed to prepare postgres")
}

/// Under root Postgres runs as another account. Where that one cannot come in (a clone in root's own home), the data lies
/// elsewhere, and a link stands in our folder.
fn postgres_base(folder: &Folder) -> anyhow::Result<PathBuf> {
    let base = folder.data("postgres");
    if base.exists() {
        return base.canonicalize().context("failed to find the data of postgres");
    }
    std::fs::create_dir_all(&base).context("failed to make a folder for postgres")?;
    if !process::is_root() || may_enter(&base)? {
        return Ok(base);
    }
    let name = format!("{:016x}", rand::random::<u64>());
    let elsewhere = PathBuf::from(ELSEWHERE).join(name);
    std::fs::create_dir_all(&elsewhere).context("failed to make a folder for postgres")?;
    std::fs::remove_dir(&base).context("failed to replace the folder of postgres")?;
    std::os::unix::fs::symlink(&elsewhere, &base).context("failed to link the folder of postgres")?;
    Ok(elsewhere)
}

fn may_enter(base: &std::path::Path) -> anyhow::Result<bool> {
    let test = process::find_program("test", "coreutils")?;
    let mut command = process::guarded(&test, Some("postgres"), process::Signal::Kill)?;
    command.arg("-x").arg(base).current_dir("/");
    Ok(process::run_to_end(command, "test").is_ok())
}

/// Forgets all data, secrets and logs. What lies outside of the folder goes first: a link inside is all that leads to it.
pub(crate) fn wipe(folder: &Folder) -> anyhow::Result<()> {
    if let Ok(elsewhere) = std::fs::read_link(folder.data("postgres"))
        && elsewhere.starts_with(ELSEWHERE)
        && elsewhere.exists()
    {
        std::fs::remove_dir_all(&elsewhere)
            .with_context(|| format!("failed to remove {}", elsewhere.display()))?;
        // Unless another mesh has something there.
        let _ = std::fs::remove_dir(ELSEWHERE);
    }
    folder.wipe()
}

/// Waits until Postgres answers, and makes the database if it is new.
pub(crate) async fn open_postgres(prepared: &PreparedPostgres, ports: &Ports) -> anyhow::Result<()> {
    let address = ports.address(Place::Postgres);
    wait_for("postgres", async || prepared.answers(address.port()).await).await?;
    let url = format!("postgres://postgres@{address}/postgres");
    let (client, connection) =
        tokio_postgres::connect(&url, NoTls).await.context("failed to reach postgres")?;
    let make = async move {
        let found = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
        if found.is_none() {
            client.batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    // The connection ends with its client, which `make` takes along.
    let (made, _) = tokio::join!(make, connection);
    made.context("failed to make the database")
}

/// Gets the folder of Redis ready for `nodes`. A cluster knows its nodes by their ports, and one that was never whole never
/// becomes it: in both cases it begins anew, because everything in it can be rebuilt from Postgres.
pub(crate) fn prepare_redis(folder: &Folder, nodes: &[RedisNode]) -> anyhow::Result<()> {
    let formed = std::fs::read_to_string(formed_file(folder)).unwrap_or_default();
    let data = folder.data("redis");
    if formed != signature(nodes) && data.exists() {
        std::fs::remove_dir_all(&data).context("failed to clear the data of redis")?;
    }
    std::fs::create_dir_all(&data).context("failed to make a folder for redis")
}

/// Joins the nodes into a cluster unless they are one, and waits until all agree.
pub(crate) async fn open_redis(folder: &Folder, nodes: &[RedisNode]) -> anyhow::Result<()> {
    let addresses: Vec<_> = nodes.iter().map(RedisNode::address).collect();
    let formed = formed_file(folder);
    if !formed.exists() {
        form_cluster(nodes, MASTERS, PATIENCE)
            .await
            .context("failed to make a cluster of the redis nodes")?;
    }
    wait_for("the redis cluster", async || is_cluster_settled(&addresses).await.unwrap_or(false)).await?;
    write_private(&formed, &signature(nodes))
}

/// There once the cluster was whole; says of which nodes.
fn formed_file(folder: &Folder) -> PathBuf {
    folder.data("redis").join("formed")
}

fn signature(nodes: &[RedisNode]) -> String {
    nodes.iter().map(|node| format!("{}@{} ", node.port, node.bus_port)).collect()
}

async fn wait_for(what: &str, condition: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        if tokio::time::Instant::now() >= end {
            bail!("waited {} s in vain for {what}: see `onsale logs`", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
