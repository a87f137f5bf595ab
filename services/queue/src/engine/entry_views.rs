//! Builds the view of an entry with the token of its turn, and reads the queue of a customer's question.

use onsale_types::Timestamp;

use super::Engine;
use crate::{
    domain::{
        entry::{Entry, EntryState},
        entry_view::{EntryQuery, EntryView},
        policy::QueueMode,
        queue::QueueAndLine,
        refusal::Refusal,
        windowed_entry::WindowedEntry,
    },
    error::Error,
    store::queues,
};

impl Engine {
    /// Returns the view of `entry`. `position` counts only while the entry waits.
    pub(crate) fn entry_view(
        &self,
        current: &QueueAndLine,
        entry: Entry,
        position: Option<u64>,
    ) -> Result<EntryView, Error> {
        let turn = match (entry.state, entry.turn) {
            (EntryState::Admitted, Some(turn)) => Some(self.tokens.entry_turn(&entry, turn)?),
            _ => None,
        };
        Ok(EntryView::new(current, entry, position, turn, self.polls.per_second()))
    }

    /// Reads the queue of a question and verifies the queue token, if there is one. A WINDOWED queue requires it.
    pub(crate) async fn queried_queue(
        &self,
        query: &EntryQuery,
    ) -> Result<(QueueAndLine, Option<WindowedEntry>), Error> {
        let current = queues::read(&self.stores.postgres, query.event_id, &self.defaults).await?;
        let entry = self.verify_queue_token(query, current.now)?;
        match current.queue.policy.mode {
            QueueMode::Windowed if entry.is_none() => Err(Refusal::QueueTokenRequired.into()),
            QueueMode::Tracked | QueueMode::Windowed => Ok((current, entry)),
        }
    }

    /// Refuses a queue token that is not the caller's or has expired at `now`, the time of the database. Returns `None` if the
    /// caller sent no token.
    pub(crate) fn verify_queue_token(
        &self,
        query: &EntryQuery,
        now: Timestamp,
    ) -> Result<Option<WindowedEntry>, Refusal> {
        let EntryQuery { event_id, customer_id, queue_token } = query;
        if queue_token.is_empty() {
            return Ok(None);
        }
        self.tokens.verify_queue_token(queue_token, *event_id, *customer_id, now).map(Some)
    }
}
