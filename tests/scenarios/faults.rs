//! Faults in the middle of a sale: Redis loses or corrupts its data or a master, and each service is killed once. All units
//! are sold, and `onsale audit` finds no violation.

use std::time::Duration;

use onsale::buy::order::{Order, PurchaseStep, place_order};
use onsale_proto::inventory::v1::Event;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::support::{
    TIMEOUT,
    mesh::{self, Mesh},
    redis::Pools,
    sale,
};

const UNITS: u32 = 20;

/// Lets 20 customers buy one ticket each, one arriving every 150 ms, and runs `fault` after the fifth claim. Asserts that all
/// units are sold.
async fn sell_out_with(mesh: &Mesh, fault: impl AsyncFnOnce(&Event)) -> Event {
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(UNITS)]).await;
    let order = Order {
        event_id: event.event_id.clone(),
        sector_id: None,
        count: 1,
        mail_url: Some(mesh.mail_url().to_owned()),
        time_max: TIMEOUT * 5,
    };
    let (sender, mut claimed) = mpsc::unbounded_channel();
    let mut crowd = JoinSet::new();
    for number in 0..UNITS {
        let (door, order, sender) = (mesh.front_door(), order.clone(), sender.clone());
        crowd.spawn(async move {
            // Stagger the arrivals, so that the fault hits purchases at every step.
            tokio::time::sleep(Duration::from_millis(u64::from(number) * 150)).await;
            let mut tickets = 0;
            let email = sale::unique_email("buyer");
            let done = place_order(&door, &email, &order, |step| match step {
                PurchaseStep::Claimed(_) => {
                    let _ = sender.send(());
                }
                PurchaseStep::Ticketed(issued) => tickets = issued.len(),
                _ => {}
            });
            done.await.map(|()| tickets)
        });
    }
    for _ in 0..UNITS / 4 {
        timeout(TIMEOUT, claimed.recv()).await.unwrap();
    }
    fault(&event).await;
    let mut sold = 0;
    while let Some(done) = crowd.join_next().await {
        sold += done.unwrap().unwrap_or_else(|error| panic!("{}", onsale_kit::error::Chain(&error)));
    }
    assert_eq!(sold, usize::try_from(UNITS).unwrap(), "all units are sold");
    event
}

#[tokio::test]
async fn redis_flush_during_a_sale_loses_no_purchase() {
    let mesh = mesh::exclusive().lock().await;
    sell_out_with(&mesh, async |_| mesh.flush_redis().await).await;
    mesh.audit().await;
}

#[tokio::test]
async fn corrupted_redis_pools_during_a_sale_lose_no_purchase() {
    let mesh = mesh::exclusive().lock().await;
    let overwrite = async |event: &Event| {
        let pools = Pools::of(&mesh, event).await;
        for round in 0..20 {
            pools.overwrite(round % 2 == 0).await;
            // Let purchases continue between two corruptions.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    sell_out_with(&mesh, overwrite).await;
    mesh.audit().await;
}

#[tokio::test]
async fn redis_failover_during_a_sale_loses_no_purchase() {
    let mesh = mesh::exclusive().lock().await;
    sell_out_with(&mesh, async |event| Pools::of(&mesh, event).await.fail_over_master(&mesh).await).await;
    mesh.audit().await;
}

#[tokio::test]
async fn killed_services_during_a_sale_lose_no_purchase() {
    let mesh = mesh::exclusive().lock().await;
    for service in ["queue", "inventory", "claim", "payment", "ticketing", "notification", "gateway"] {
        sell_out_with(&mesh, async |_| mesh.kill_and_await_restart(service).await).await;
        mesh.audit().await;
    }
}
