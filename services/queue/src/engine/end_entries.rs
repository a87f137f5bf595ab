//! Ends open entries without a purchase, in the caller's transaction: leaving, blocking and expiry have this step in common.

use onsale_storage::postgres::Transaction;
use onsale_types::EntryId;

use super::Engine;
use crate::{
    domain::{
        entry::{Entry, EntryState, ExpireReason},
        event::OutgoingQueueEvent,
        queue::QueueAndLine,
    },
    error::Error,
    store::{entries, lines},
};

impl Engine {
    /// Ends those of `entries` that are open: updates the rows and the counters of the locked line, and appends
    /// `queue.expired`. Returns the entries that ended.
    pub(crate) async fn end_entries(
        &self,
        transaction: &Transaction,
        current: &mut QueueAndLine,
        entries: &[EntryId],
        reason: ExpireReason,
    ) -> Result<Vec<Entry>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        current.line.bump_revision();
        let (revision, now) = (current.line.revision, current.now);
        let ended = entries::end(transaction, entries, reason, revision, now).await?;
        for entry in &ended {
            match &entry.turn {
                Some(turn) => current.line.end_turn(turn, now),
                None => current.line.remove_waiting(),
            }
            let before = if entry.turn.is_some() { EntryState::Admitted } else { EntryState::Waiting };
            current.line.count_end(before, entry.state);
        }
        lines::save(transaction, current.queue.event_id, &current.line).await?;
        let queue = &current.queue;
        let events: Vec<_> = ended.iter().map(|entry| OutgoingQueueEvent::Expired { queue, entry }).collect();
        self.stores.outbox.append(transaction, &events).await?;
        Ok(ended)
    }
}
