//! Buffers heartbeats and open-stream notices (at most 200,000) and flushes them to Redis about once a second.

use std::{collections::HashMap, time::Duration};

use onsale_types::{EntryId, EventId};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Engine;
use crate::{
    domain::entry::{Entry, EntryState},
    error::Error,
    store::ranks::MarkMode,
};

/// Largest number of buffered heartbeats. Further ones are dropped; each customer sends another one soon enough not to count
/// as idle.
const BUFFERED_MAX: usize = 200_000;

/// Heartbeats flushed by one call.
const CHUNK: usize = 1_000;

/// Heartbeats that are not in Redis yet.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatBuffer {
    buffered: Mutex<Buffered>,
    /// Begin of the time without a known loss of heartbeats. `None` until the next flush succeeds.
    complete_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Buffered {
    count: usize,
    events: HashMap<EventId, HashMap<EntryId, HeartbeatKind>>,
}

/// Kind of a heartbeat. The last one of an entry counts, except that a poll does not replace an open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeartbeatKind {
    /// The customer called a method about the entry.
    Poll,
    /// The customer has an open stream.
    StreamOpen,
    /// The customer closed a stream.
    StreamClosed,
}

impl HeartbeatBuffer {
    /// Records a heartbeat of the entry's customer if the entry waits.
    pub(crate) fn record(&self, entry: &Entry) {
        if entry.state == EntryState::Waiting {
            self.add(entry.event_id, [entry.entry_id], HeartbeatKind::Poll);
        }
    }

    /// Records that these entries have open streams.
    pub(crate) fn record_open(&self, event_id: EventId, entries: impl IntoIterator<Item = EntryId>) {
        self.add(event_id, entries, HeartbeatKind::StreamOpen);
    }

    /// Records that a stream of this entry was closed.
    pub(crate) fn record_closed(&self, event_id: EventId, entry_id: EntryId) {
        self.add(event_id, [entry_id], HeartbeatKind::StreamClosed);
    }

    fn add(&self, event_id: EventId, entries: impl IntoIterator<Item = EntryId>, kind: HeartbeatKind) {
        let mut buffered = self.buffered.lock();
        for entry_id in entries {
            if buffered.count >= BUFFERED_MAX {
                return;
            }
            let kinds = buffered.events.entry(event_id).or_default();
            let before = kinds.insert(entry_id, kind);
            match before {
                // A poll does not close a stream.
                Some(HeartbeatKind::StreamOpen) if kind == HeartbeatKind::Poll => {
                    kinds.insert(entry_id, HeartbeatKind::StreamOpen);
                }
                Some(_) => {}
                None => buffered.count = buffered.count.saturating_add(1),
            }
        }
    }

    /// Returns true if heartbeats have reached Redis without a gap for at least `idle`. Only then does a missing heartbeat
    /// show that a customer is idle.
    pub(crate) fn is_complete_for(&self, idle: Duration) -> bool {
        self.complete_since.lock().is_some_and(|since| since.elapsed() >= idle)
    }

    /// Records that heartbeats may have been lost until now.
    pub(crate) fn interrupt(&self) {
        *self.complete_since.lock() = None;
    }

    fn record_flush(&self) {
        self.complete_since.lock().get_or_insert_with(Instant::now);
    }
}

impl Engine {
    /// Flushes the buffer to Redis. Heartbeats that fail return to the buffer while it has room.
    pub(crate) async fn flush_heartbeats(&self) -> Result<(), Error> {
        let buffered = std::mem::take(&mut *self.heartbeats.buffered.lock());
        let mut result = Ok(());
        for (event_id, kinds) in buffered.events {
            let kinds: Vec<(EntryId, HeartbeatKind)> = kinds.into_iter().collect();
            for chunk in kinds.chunks(CHUNK) {
                // A failure in one line must not stop the others.
                if let Err(error) = self.flush_chunk(event_id, chunk).await {
                    for (entry_id, kind) in chunk {
                        self.heartbeats.add(event_id, [*entry_id], *kind);
                    }
                    result = Err(error);
                }
            }
        }
        match &result {
            Ok(()) => self.heartbeats.record_flush(),
            Err(_) => self.heartbeats.interrupt(),
        }
        result
    }

    async fn flush_chunk(&self, event_id: EventId, kinds: &[(EntryId, HeartbeatKind)]) -> Result<(), Error> {
        let of = |wanted: HeartbeatKind| -> Vec<EntryId> {
            kinds.iter().filter(|(_, kind)| *kind == wanted).map(|(entry_id, _)| *entry_id).collect()
        };
        // A closed stream counts as a heartbeat too: the customer was there until then.
        let all: Vec<EntryId> = kinds.iter().map(|(entry_id, _)| *entry_id).collect();
        self.ranks.mark(event_id, MarkMode::All, &all).await?;
        self.presence.opened(event_id, &of(HeartbeatKind::StreamOpen)).await?;
        self.presence.closed(event_id, &of(HeartbeatKind::StreamClosed)).await?;
        Ok(())
    }
}
