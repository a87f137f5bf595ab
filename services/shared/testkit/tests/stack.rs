//! The stack isolates tests from each other, survives injected faults, and leaves no process behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::process::Command;
use std::time::Duration;

use onsale_testkit::stack::{self, RedisCluster};
use onsale_testkit::wait_until;

async fn client(cluster: &RedisCluster) -> redis::cluster_async::ClusterConnection {
    redis::cluster::ClusterClientBuilder::new(cluster.urls())
        .response_timeout(Duration::from_secs(1))
        .build()
        .unwrap()
        .get_async_connection()
        .await
        .unwrap()
}

async fn set(cluster: &RedisCluster, key: &str, value: &str) {
    redis::cmd("SET").arg(key).arg(value).exec_async(&mut client(cluster).await).await.unwrap();
}

async fn get(cluster: &RedisCluster, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query_async(&mut client(cluster).await).await.unwrap()
}

#[tokio::test]
async fn each_test_gets_its_own_database() {
    let (one, two) = tokio::try_join!(stack::database(), stack::database()).unwrap();
    assert_ne!(one.name, two.name);
}

#[tokio::test]
async fn each_test_gets_its_own_key_prefix() {
    let (one, two) = tokio::try_join!(stack::redis(), stack::redis()).unwrap();
    assert_eq!(one.urls, two.urls);
    assert_eq!(one.urls.len(), 6);
    assert_ne!(one.prefix, two.prefix);
}

#[tokio::test]
async fn replica_replaces_a_killed_master_which_returns_as_replica() {
    let cluster = RedisCluster::start_private().await.unwrap();
    set(&cluster, "{k}", "kept").await;
    let replica = cluster.replica_of("{k}").await.unwrap();
    let master = cluster.kill_master_of("{k}").await.unwrap();
    cluster.wait_until_settled().await.unwrap();
    assert_eq!(cluster.master_of("{k}").await.unwrap(), replica);
    cluster.restart(master).await.unwrap();
    cluster.wait_until_settled().await.unwrap();
    assert_eq!(cluster.master_of("{k}").await.unwrap(), replica);
    assert_eq!(cluster.replica_of("{k}").await.unwrap(), master);
    assert_eq!(get(&cluster, "{k}").await.as_deref(), Some("kept"));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn frozen_master_becomes_a_replica_after_the_thaw() {
    let cluster = RedisCluster::start_private().await.unwrap();
    let (master, replica) = tokio::try_join!(cluster.master_of("{k}"), cluster.replica_of("{k}")).unwrap();
    cluster.freeze(master).unwrap();
    wait_until("the replica takes over", Duration::from_secs(20), || async {
        cluster.master_of("{k}").await.ok() == Some(replica)
    })
    .await;
    cluster.thaw(master).unwrap();
    cluster.wait_until_settled().await.unwrap();
    assert_eq!(cluster.replica_of("{k}").await.unwrap(), master);
}

#[tokio::test]
async fn cut_off_replica_takes_over_without_the_last_writes() {
    let cluster = RedisCluster::start_private().await.unwrap();
    set(&cluster, "{k}early", "kept").await;
    cluster.wait_until_settled().await.unwrap();
    let replica = cluster.cut_off_replica_of("{k}").await.unwrap();
    set(&cluster, "{k}late", "lost").await;
    let master = cluster.kill_master_of("{k}").await.unwrap();
    cluster.thaw(replica).unwrap();
    cluster.wait_until_settled().await.unwrap();
    cluster.restart(master).await.unwrap();
    cluster.wait_until_settled().await.unwrap();
    assert_eq!(get(&cluster, "{k}early").await.as_deref(), Some("kept"));
    assert_eq!(get(&cluster, "{k}late").await, None);
}

#[tokio::test]
async fn moved_slots_and_planned_failovers_lose_no_keys() {
    let cluster = RedisCluster::start_private().await.unwrap();
    set(&cluster, "{k}", "kept").await;
    let before = cluster.master_of("{k}").await.unwrap();
    let moved_to = cluster.move_slot_of("{k}").await.unwrap();
    assert_ne!(before, moved_to);
    assert_eq!(cluster.master_of("{k}").await.unwrap(), moved_to);
    let handed_to = cluster.hand_over("{k}").await.unwrap();
    cluster.wait_until_settled().await.unwrap();
    assert_eq!(cluster.master_of("{k}").await.unwrap(), handed_to);
    assert_eq!(get(&cluster, "{k}").await.as_deref(), Some("kept"));
    cluster.flush_all().await.unwrap();
    assert_eq!(get(&cluster, "{k}").await, None);
}

/// Returns the command lines that contain `port` as a whole word. Process ids are left out, because one may equal the port.
fn processes_of(port: &str) -> Vec<String> {
    let listing = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    let names_it = |line: &&str| line.split(|it: char| !it.is_alphanumeric()).any(|word| word == port);
    text.lines().filter(names_it).map(str::to_owned).collect()
}

/// Runs `teststack` with `script`, which writes the addresses of the stack into a file. Returns its exit code and the
/// content of that file.
async fn teststack(script: &str, then: impl FnOnce(u32)) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("note");
    let mut child = Command::new(env!("CARGO_BIN_EXE_teststack"))
        .args(["--", "sh", "-c", script, "sh"])
        .arg(&note)
        .spawn()
        .unwrap();
    wait_until("the command of the stack has started", Duration::from_secs(30), || async { note.exists() })
        .await;
    then(child.id());
    let status = child.wait().unwrap();
    (status.code(), std::fs::read_to_string(&note).unwrap())
}

async fn assert_gone(addresses: &str) {
    let ports: Vec<&str> = addresses.split([' ', ',', '\n']).filter_map(|it| it.split(':').nth(1)).collect();
    assert_eq!(ports.len(), 7, "one Postgres and six Redis nodes in {addresses:?}");
    for port in ports {
        wait_until("the server has ended", Duration::from_secs(10), || async {
            processes_of(port).is_empty()
                && std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err()
        })
        .await;
    }
}

const NOTE: &str = r#"echo "$ONSALE_TEST_POSTGRES $ONSALE_TEST_REDIS" > "$1.new" && mv "$1.new" "$1""#;

#[tokio::test]
async fn teststack_returns_the_exit_code_and_leaves_no_server() {
    let (code, addresses) = teststack(&format!("{NOTE}; exit 7"), |_| {}).await;
    assert_eq!(code, Some(7));
    assert_gone(&addresses).await;
}

#[tokio::test]
async fn terminated_teststack_leaves_no_server() {
    let (code, addresses) = teststack(&format!("{NOTE}; sleep 60"), |pid| signal("TERM", pid)).await;
    assert_eq!(code, Some(143));
    assert_gone(&addresses).await;
}

#[tokio::test]
async fn killed_teststack_leaves_no_server() {
    let (code, addresses) = teststack(&format!("{NOTE}; exec sleep 60"), |pid| signal("KILL", pid)).await;
    assert_eq!(code, None);
    assert_gone(&addresses).await;
}

fn signal(name: &str, pid: u32) {
    let status =
        Command::new("sh").args(["-c", "kill -s $1 $2", "sh", name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}
