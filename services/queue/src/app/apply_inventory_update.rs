//! What Inventory reports about an event. Reports come in any order; each is kept, and the queue follows from all of them.

use std::sync::Arc;

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Timestamp};

use super::{App, tell::QueueChange};
use crate::{
    domain::queue::{EventDetails, Queue},
    error::Error,
    store::queues,
};

/// A report of Inventory.
#[derive(Clone, Debug)]
pub(crate) enum InventoryUpdate {
    /// The event was created, or its draft changed.
    Created(EventDetails),
    /// It was made public.
    Activated {
        /// Of the event.
        revision: u64,
        /// When it opens; none: now.
        on_sale_time: Option<Timestamp>,
    },
    /// Its sale ended for good.
    Ended {
        /// Of the event.
        revision: u64,
    },
    /// Nothing is free and nothing is held.
    SoldOut {
        /// Of what is free.
        revision: u64,
    },
    /// Units came back.
    Available {
        /// Of what is free.
        revision: u64,
    },
}

impl App {
    /// Keeps a report, and moves the queue as far as it allows.
    pub(crate) async fn learn(
        self: &Arc<Self>,
        transaction: &Transaction,
        event_id: EventId,
        report: InventoryUpdate,
    ) -> Result<(), Error> {
        queues::ensure(transaction, event_id).await?;
        let mut current = queues::lock_any(transaction, event_id, &self.defaults).await?;
        let before = current.queue.state;
        if !apply(&mut current.queue, report, current.now) {
            return Ok(());
        }
        current.line.touch();
        queues::save_queue(transaction, &current.queue).await?;
        queues::save_line(transaction, event_id, &current.line).await?;
        if current.queue.state != before {
            let (from, to) = (before.name(), current.queue.state.name());
            tracing::info!(%event_id, from, to, "queue moved by a report of inventory");
        }
        self.publish_after_commit(transaction, QueueChange::steered(&current));
        Ok(())
    }
}

/// Whether the report is news.
fn apply(queue: &mut Queue, report: InventoryUpdate, now: Timestamp) -> bool {
    match report {
        InventoryUpdate::Created(created) => queue.created(created, now),
        InventoryUpdate::Activated { revision, on_sale_time } => queue.activated(revision, on_sale_time, now),
        InventoryUpdate::Ended { revision } => queue.ended(revision, now),
        InventoryUpdate::SoldOut { revision } => queue.sold_out(revision, now),
        InventoryUpdate::Available { revision } => queue.available(revision, now),
    }
}
