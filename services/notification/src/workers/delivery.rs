//! Delivery worker: a round leases as many due deliveries as there are free slots, and sends each in a task of its own. An attempt
//! that ends frees its slot and hints the worker. At shutdown no more are leased, and those being sent finish.

use std::{iter, sync::Arc, time::Duration};

use onsale_kit::{
    backoff::BackoffConfig,
    tasks::Tasks,
    worker::{Round, Worker},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{app::App, config::DeliveryConfig, error::Error};

/// Waits after rounds that failed to lease deliveries.
const FAILURES: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

pub(super) fn start(app: &Arc<App>, config: &DeliveryConfig, tasks: &Tasks) {
    let sender = Sender {
        app: Arc::clone(app),
        tasks: tasks.clone(),
        slots: Arc::new(Semaphore::new(config.concurrency)),
    };
    Worker::every("deliver", config.poll_every)
        .backoff(FAILURES)
        .notified_by(app.delivery_hints())
        .start(tasks, move || sender.clone().lease_and_send());
}

#[derive(Clone)]
struct Sender {
    app: Arc<App>,
    tasks: Tasks,
    /// One permit for each mail that may be sent at the same time.
    slots: Arc<Semaphore>,
}

impl Sender {
    async fn lease_and_send(self) -> Result<Round, Error> {
        let free = iter::from_fn(|| Arc::clone(&self.slots).try_acquire_owned().ok());
        let permits: Vec<OwnedSemaphorePermit> = free.collect();
        if permits.is_empty() {
            return Ok(Round::Idle);
        }
        let leased = self.app.lease_deliveries(permits.len()).await?;
        for (delivery, permit) in leased.deliveries.into_iter().zip(permits) {
            let app = Arc::clone(&self.app);
            let slot = Slot { permit: Some(permit), worker: app.delivery_hints() };
            // If the attempt panics, the delivery is due again after its lease.
            self.tasks.spawn("send delivery", async move {
                app.send_delivery(delivery).await;
                drop(slot);
            });
        }
        // Skipped deliveries need no slot, so that more may be due while slots are free.
        Ok(if leased.is_full { Round::More } else { Round::Idle })
    }
}

/// Slot of one attempt. Dropping it, also after a panic, frees the slot and then hints the worker.
struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    worker: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.worker.notify_one();
    }
}
