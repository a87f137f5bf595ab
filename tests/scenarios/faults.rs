//! Losses in the middle of a sale: Redis forgets everything, and each service dies once. All is sold, and the books balance.

use std::time::Duration;

use onsale::buy::order::{Order, Step, fulfil};
use onsale_proto::inventory::v1::Event;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::support::{
    TIMEOUT,
    mesh::{self, Mesh},
    redis::Pools,
    sale,
};

const UNITS: u32 = 20;

/// Twenty customers buy a ticket each, a few at a time; `fault` is done once a quarter of them is through.
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
            // They trickle in, so that the fault meets purchases at every step.
            tokio::time::sleep(Duration::from_millis(u64::from(number) * 150)).await;
            let mut tickets = 0;
            let email = sale::unique_email("buyer");
            let done = fulfil(&door, &email, &order, |step| match step {
                Step::Claimed(_) => {
                    let _ = sender.send(());
                }
                Step::Ticketed(issued) => tickets = issued.len(),
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
    assert_eq!(sold, usize::try_from(UNITS).unwrap(), "all are sold");
    event
}

#[tokio::test]
async fn redis_forgets_everything_in_the_middle_of_a_sale() {
    let mesh = mesh::exclusive().lock().await;
    sell_out_with(&mesh, async |_| mesh.flush_redis().await).await;
    mesh.audit().await;
}

#[tokio::test]
async fn redis_lies_about_what_is_free_in_the_middle_of_a_sale() {
    let mesh = mesh::exclusive().lock().await;
    let overwrite = async |event: &Event| {
        let pools = Pools::of(&mesh, event).await;
        for round in 0..20 {
            pools.overwrite(round % 2 == 0).await;
            // The sale goes on between two lies.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    sell_out_with(&mesh, overwrite).await;
    mesh.audit().await;
}

#[tokio::test]
async fn redis_loses_a_master_in_the_middle_of_a_sale() {
    let mesh = mesh::exclusive().lock().await;
    sell_out_with(&mesh, async |event| Pools::of(&mesh, event).await.fail_over_master(&mesh).await).await;
    mesh.audit().await;
}

#[tokio::test]
async fn each_service_dies_once_in_the_middle_of_a_sale() {
    let mesh = mesh::exclusive().lock().await;
    for service in ["queue", "inventory", "claim", "payment", "ticketing", "notification", "gateway"] {
        sell_out_with(&mesh, async |_| mesh.kill_and_await_restart(service).await).await;
        mesh.audit().await;
    }
}
