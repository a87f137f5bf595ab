//! Restarted servers keep their data. A mesh that is stopped and started again relies on this.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use onsale_testkit::{
    stack::{
        PostgresServerConfig, PreparedPostgres, RedisNode, START_TIMEOUT, form_cluster, is_cluster_settled,
        process::{Process, Signal, free_port},
    },
    wait_until,
};

fn redis_nodes(directory: &std::path::Path) -> Vec<RedisNode> {
    let node = |number: u32| RedisNode {
        directory: directory.join(number.to_string()),
        port: free_port().unwrap(),
        bus_port: free_port().unwrap(),
        node_timeout: Duration::from_secs(2),
        compacts_log: true,
    };
    (1..=6).map(node).collect()
}

fn start(nodes: &[RedisNode]) -> Vec<Process> {
    nodes.iter().map(|node| Process::start(&node.launch().unwrap()).unwrap()).collect()
}

async fn settle(nodes: &[RedisNode]) {
    let addresses: Vec<_> = nodes.iter().map(RedisNode::address).collect();
    wait_until("the cluster settles", START_TIMEOUT, || async {
        is_cluster_settled(&addresses).await.unwrap_or(false)
    })
    .await;
}

async fn ask(nodes: &[RedisNode], command: &str, arguments: &[&str]) -> Option<String> {
    let urls: Vec<_> = nodes.iter().map(|node| format!("redis://{}", node.address())).collect();
    let client = redis::cluster::ClusterClient::new(urls).unwrap();
    let mut connection = client.get_async_connection().await.unwrap();
    redis::cmd(command).arg(arguments).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn restarted_cluster_keeps_its_layout_and_data() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = redis_nodes(directory.path());
    let first = start(&nodes);
    form_cluster(&nodes, 3, START_TIMEOUT).await.unwrap();
    settle(&nodes).await;
    ask(&nodes, "SET", &["{k}", "kept"]).await;
    for process in first {
        process.stop(Signal::Terminate, START_TIMEOUT).await.unwrap();
    }
    let _second = start(&nodes);
    settle(&nodes).await;
    assert_eq!(ask(&nodes, "GET", &["{k}"]).await.as_deref(), Some("kept"));
}

#[tokio::test]
async fn killed_postgres_restarts_with_its_data() {
    let directory = tempfile::Builder::new()
        // If we are root, the server runs under another account, which must be able to enter the directory.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let port = free_port().unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    for (signal, sql) in [
        (Signal::Kill, "CREATE TABLE kept AS SELECT 7 AS number"),
        (Signal::Interrupt, "INSERT INTO kept SELECT number + 1 FROM kept"),
    ] {
        let prepared = PreparedPostgres::in_directory(directory.path(), true).await.unwrap();
        let launch = prepared.launch(port, &PostgresServerConfig::default()).unwrap();
        let process = Process::start(&launch).unwrap();
        wait_until("postgres answers", START_TIMEOUT, || prepared.answers(port)).await;
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let work = async move { client.batch_execute(sql).await };
        let (done, _) = tokio::join!(work, connection);
        done.unwrap();
        process.stop(signal, START_TIMEOUT).await.unwrap();
    }
}
