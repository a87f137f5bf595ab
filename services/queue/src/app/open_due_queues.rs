//! Job `opening sweep`: workers → app → store::lines (lock) → domain::queue → store → engine::publish.

use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::EventId;

use super::App;
use crate::{
    domain::queue_change::QueueChange,
    engine::leadership::LeaderShards,
    error::Error,
    store::{lines, queues},
};

impl App {
    /// Stores and publishes the opening of every queue whose opening time has passed.
    pub(crate) async fn open_due_queues(&self, shards: &LeaderShards) -> Result<(), Error> {
        for (event_id, lease) in shards.led(queues::due_to_open(&self.engine.stores.postgres).await?) {
            // A failure in one queue must not stop the others.
            if let Err(error) = self.open_due_queue(&lease, event_id).await {
                tracing::warn!(%event_id, error = %Chain(&error), "failed to open a queue, retrying next round");
            }
        }
        Ok(())
    }

    async fn open_due_queue(&self, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            // The lock returns the queue as of now, which is open; saving it stores the opening.
            let mut current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            current.line.bump_revision();
            queues::save(&transaction, &current.queue).await?;
            lines::save(&transaction, event_id, &current.line).await?;
            Ok::<_, Error>(current)
        };
        let current = self.engine.stores.postgres.transaction("open due", work).await?;
        tracing::info!(%event_id, "queue opened");
        self.engine.publish(QueueChange::controlled(&current)).await;
        Ok(())
    }
}
