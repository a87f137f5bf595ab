//! Leaving, on all devices; and what every end without a purchase has in common.

use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{CustomerId, EntryId, EventId};

use super::{App, tell::QueueChange};
use crate::{
    convert,
    domain::{
        entry::{Entry, EntryState, ExpireReason},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
    store::{
        entries,
        queues::{self, QueueAndLine},
    },
};

impl App {
    /// Gives up the caller's place or turn. One that has ended is answered as it is.
    pub(crate) async fn leave(
        &self,
        customer_id: CustomerId,
        event_id: EventId,
        request: &idempotency::Request<'_>,
    ) -> Result<onsale_proto::queue::v1::LeaveQueueResponse, Error> {
        let work = |transaction: Transaction| async move {
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            if current.queue.policy.mode == QueueMode::Windowed {
                // Nothing is stored: forgetting the ticket is leaving.
                return Ok((convert::responses::left(None), None));
            }
            let entry = entries::newest_in(&transaction, event_id, customer_id).await?;
            let entry = entry.ok_or(Refusal::EntryNotFound { event_id })?;
            if !entry.state.is_open() {
                return Ok((convert::responses::left(Some(&entry)), None));
            }
            let ended = self.end(&transaction, &mut current, &[entry.entry_id], ExpireReason::Left).await?;
            let answer = convert::responses::left(ended.first().or(Some(&entry)));
            let news = (!ended.is_empty()).then(|| QueueChange::ended(&current, ended));
            Ok((answer, news))
        };
        self.change_once("leave", request, work).await
    }

    /// Ends open entries of a locked line without a purchase: the rows, the counters, and the events that tell of it.
    pub(crate) async fn end(
        &self,
        transaction: &Transaction,
        current: &mut QueueAndLine,
        entries: &[EntryId],
        reason: ExpireReason,
    ) -> Result<Vec<Entry>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let event_id = current.queue.event_id;
        current.line.touch();
        let ended = entries::end(transaction, entries, reason, current.line.revision, current.now).await?;
        for entry in &ended {
            match &entry.turn {
                Some(turn) => current.line.turn_ended(turn, current.now),
                None => current.line.waiting_ended(),
            }
            let before = if entry.turn.is_some() { EntryState::Admitted } else { EntryState::Waiting };
            current.line.count_end(before, entry.state);
        }
        queues::save_line(transaction, event_id, &current.line).await?;
        let events: Vec<_> =
            ended.iter().map(|entry| convert::events::expired(&current.queue, entry)).collect();
        self.stores.outbox.append(transaction, &events).await?;
        Ok(ended)
    }
}
