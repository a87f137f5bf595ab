//! `LeaveQueue`: grpc → app → store::lines (lock) → store::entries → engine::end_entries → engine::publish.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{CustomerId, EventId};

use super::App;
use crate::{
    domain::{
        entry::{Entry, ExpireReason},
        policy::QueueMode,
        queue_change::QueueChange,
        refusal::Refusal,
    },
    error::Error,
    store::{entries, lines},
};

impl App {
    /// Ends the caller's place or turn, for all of their devices. Returns an entry that has ended as it is, and `None` in a
    /// WINDOWED queue.
    pub(crate) async fn leave_queue(
        &self,
        customer_id: CustomerId,
        event_id: EventId,
        request: &Request<'_, Option<Entry>>,
    ) -> Result<Answer<Option<Entry>>, Error> {
        let work = |transaction: Transaction| async move {
            let mut current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            if current.queue.policy.mode == QueueMode::Windowed {
                // No entry is stored: the client leaves by dropping its queue token.
                return Ok((None, None));
            }
            let entry = entries::newest_in(&transaction, event_id, customer_id).await?;
            let entry = entry.ok_or(Refusal::EntryNotFound { event_id })?;
            if !entry.state.is_open() {
                return Ok((Some(entry), None));
            }
            let (ids, reason) = ([entry.entry_id], ExpireReason::Left);
            let ended = self.engine.end_entries(&transaction, &mut current, &ids, reason).await?;
            let left = ended.first().cloned().unwrap_or(entry);
            let change = (!ended.is_empty()).then(|| QueueChange::ended(&current, ended));
            Ok((Some(left), change))
        };
        self.change_once("leave", request, work).await
    }
}
