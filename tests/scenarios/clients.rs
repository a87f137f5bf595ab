//! A third-party client: Python's grpcio, which reads the contracts by reflection only.

use std::process::Stdio;

use onsale_tests::repository;
use tokio::{process::Command, time::timeout};

use super::support::{TIMEOUT, mesh, sale};

#[tokio::test]
async fn python_client_buys_by_reflection() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let root = repository::root();
    let output = Command::new(root.join(".tools/venv/bin/python"))
        .arg(root.join("tests/clients/buy.py"))
        .args([door.url(), &event.event_id, &event.sectors[0].sector_id])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(TIMEOUT * 2, output).await.unwrap().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("2 tickets"), "{stdout}");
    mesh.audit().await;
}
