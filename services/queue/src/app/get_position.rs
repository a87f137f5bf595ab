//! `GetPosition` and `Heartbeat`: grpc → app → store::queues → store::entries → engine::positions → engine::entry_views.

use super::App;
use crate::{
    domain::{
        entry::{Entry, EntryState},
        entry_view::{EntryQuery, EntryView},
        policy::QueueMode,
        refusal::Refusal,
    },
    engine::positions::PositionQuery,
    error::Error,
    store::entries,
};

/// Attempts to read an entry that leaves the line between two reads.
const ATTEMPTS_MAX: u32 = 3;

impl App {
    /// Returns the caller's entry with its position. Counts as a heartbeat.
    pub(crate) async fn get_position(&self, query: &EntryQuery) -> Result<EntryView, Error> {
        let engine = &self.engine;
        let mut attempts = 0;
        loop {
            attempts += 1;
            engine.polls.count();
            let (current, windowed) = engine.queried_queue(query).await?;
            if let Some(windowed) = windowed.filter(|_| current.queue.policy.mode == QueueMode::Windowed) {
                engine.viewers.record_poll(query.event_id, windowed.entry_id());
                let (entry, position) = windowed.entry(&current.queue, &current.line, current.now);
                return engine.entry_view(&current, entry, position);
            }
            let entry = self.newest_entry(query).await?;
            engine.heartbeats.record(&entry);
            engine.viewers.record_poll(entry.event_id, entry.entry_id);
            let position = match entry.state {
                EntryState::Waiting => {
                    let (event_id, entry_id, seq) = (entry.event_id, entry.entry_id, entry.seq);
                    let revision = current.line.revision;
                    let query = PositionQuery { event_id, entry_id, seq, revision };
                    engine.position_batcher.submit(query).await?
                }
                EntryState::Admitted | EntryState::Completed | EntryState::Expired | EntryState::Left => None,
            };
            // The entry left the line after it was read: its new state is the better answer.
            if entry.state == EntryState::Waiting && position.is_none() && attempts < ATTEMPTS_MAX {
                continue;
            }
            return engine.entry_view(&current, entry, position);
        }
    }

    async fn newest_entry(&self, query: &EntryQuery) -> Result<Entry, Error> {
        let EntryQuery { event_id, customer_id, .. } = *query;
        let entry = entries::newest(&self.engine.stores.postgres, event_id, customer_id).await?;
        Ok(entry.ok_or(Refusal::EntryNotFound { event_id })?)
    }
}
