//! What Inventory reports about an event. Reports come in any order; each is kept, and the queue follows from all of them.

use std::sync::Arc;

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Timestamp};

use super::{App, tell::News};
use crate::{
    domain::queue::{Created, Queue},
    error::Error,
    store::queues,
};

/// A report of Inventory.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// The event was created, or its draft changed.
    Created(Created),
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
        report: Report,
    ) -> Result<(), Error> {
        queues::ensure(transaction, event_id).await?;
        let mut facts = queues::lock_any(transaction, event_id, &self.defaults).await?;
        let before = facts.queue.state;
        if !apply(&mut facts.queue, report, facts.now) {
            return Ok(());
        }
        facts.line.touch();
        queues::save_queue(transaction, &facts.queue).await?;
        queues::save_line(transaction, event_id, &facts.line).await?;
        if facts.queue.state != before {
            let (from, to) = (before.name(), facts.queue.state.name());
            tracing::info!(%event_id, from, to, "queue moved by a report of inventory");
        }
        self.tell_after(transaction, News::steered(&facts));
        Ok(())
    }
}

/// Whether the report is news.
fn apply(queue: &mut Queue, report: Report, now: Timestamp) -> bool {
    match report {
        Report::Created(created) => queue.created(created, now),
        Report::Activated { revision, on_sale_time } => queue.activated(revision, on_sale_time, now),
        Report::Ended { revision } => queue.ended(revision, now),
        Report::SoldOut { revision } => queue.sold_out(revision, now),
        Report::Available { revision } => queue.available(revision, now),
    }
}
