//! `event.created`, `event.activated`, `event.ended`, `inventory.sold_out` and `inventory.available`: workers::consumers →
//! app → store::lines (lock) → domain::event → store → engine::publish.

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Named as _};

use super::App;
use crate::{
    domain::{event::InventoryUpdate, queue_change::QueueChange},
    error::Error,
    store::{lines, queues},
};

impl App {
    /// Stores an update and moves the queue as far as it allows. Updates may arrive in any order; an older one changes nothing.
    pub(crate) async fn apply_inventory_update(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        update: InventoryUpdate,
    ) -> Result<(), Error> {
        queues::ensure(transaction, event_id).await?;
        let mut current = lines::lock_any(transaction, event_id, &self.engine.defaults).await?;
        let before = current.queue.state;
        if !current.queue.apply_inventory_update(update, current.now) {
            return Ok(());
        }
        current.line.bump_revision();
        queues::save(transaction, &current.queue).await?;
        lines::save(transaction, event_id, &current.line).await?;
        if current.queue.state != before {
            let (from, to) = (before.name(), current.queue.state.name());
            tracing::info!(%event_id, from, to, "queue state changed by an update of inventory");
        }
        self.engine.publish_after_commit(transaction, QueueChange::controlled(&current));
        Ok(())
    }
}
