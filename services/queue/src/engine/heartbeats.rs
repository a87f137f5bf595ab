//! Signs of life and open streams: gathered here, carried to Redis together.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use onsale_types::{EntryId, EventId};
use tokio::time::Instant;

use super::{App, lock};
use crate::{error::Error, store::ranks::MarkMode};

/// Signs that wait to be carried; further ones are dropped, and come again with the next sign.
const WAITING_MAX: usize = 200_000;

/// Signs carried in one call.
const CHUNK: usize = 1_000;

/// Signs of life that are not in Redis yet.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatBuffer {
    waiting: Mutex<Waiting>,
    /// Since when no sign is known to have been missed.
    complete_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Waiting {
    count: usize,
    events: HashMap<EventId, HashMap<EntryId, HeartbeatKind>>,
}

/// What is known of an entry's customer. The last word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeartbeatKind {
    /// Asked about it.
    PositionQuery,
    /// Has an open stream.
    Open,
    /// Closed one.
    Closed,
}

impl HeartbeatBuffer {
    /// This entry's customer is there.
    pub(crate) fn note(&self, event_id: EventId, entry_id: EntryId) {
        self.add(event_id, [entry_id], HeartbeatKind::PositionQuery);
    }

    /// These entries have open streams.
    pub(crate) fn record_open(&self, event_id: EventId, entries: impl IntoIterator<Item = EntryId>) {
        self.add(event_id, entries, HeartbeatKind::Open);
    }

    /// A stream of this entry was closed.
    pub(crate) fn record_closed(&self, event_id: EventId, entry_id: EntryId) {
        self.add(event_id, [entry_id], HeartbeatKind::Closed);
    }

    fn add(&self, event_id: EventId, entries: impl IntoIterator<Item = EntryId>, sign: HeartbeatKind) {
        let mut waiting = lock(&self.waiting);
        for entry_id in entries {
            if waiting.count >= WAITING_MAX {
                return;
            }
            let signs = waiting.events.entry(event_id).or_default();
            let before = signs.insert(entry_id, sign);
            match before {
                // Asking closes no stream.
                Some(HeartbeatKind::Open) if sign == HeartbeatKind::PositionQuery => {
                    signs.insert(entry_id, HeartbeatKind::Open);
                }
                Some(_) => {}
                None => waiting.count = waiting.count.saturating_add(1),
            }
        }
    }

    /// Whether silence for `idle` is silence: had Redis been away meanwhile, it would have missed the signs.
    pub(crate) fn is_complete_for(&self, idle: Duration) -> bool {
        lock(&self.complete_since).is_some_and(|since| since.elapsed() >= idle)
    }

    /// Signs may have been missed until now.
    pub(crate) fn interrupt(&self) {
        *lock(&self.complete_since) = None;
    }

    fn flushed(&self) {
        lock(&self.complete_since).get_or_insert_with(Instant::now);
    }
}

impl App {
    /// Carries what was noted to Redis. What cannot be carried waits for the next time.
    pub(crate) async fn flush_heartbeats(&self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut *lock(&self.seen.waiting));
        let mut flushed = Ok(());
        for (event_id, signs) in waiting.events {
            let signs: Vec<(EntryId, HeartbeatKind)> = signs.into_iter().collect();
            for chunk in signs.chunks(CHUNK) {
                // One line that cannot be told of keeps no other from it.
                if let Err(error) = self.carry(event_id, chunk).await {
                    for (entry_id, sign) in chunk {
                        self.seen.add(event_id, [*entry_id], *sign);
                    }
                    flushed = Err(error);
                }
            }
        }
        match &flushed {
            Ok(()) => self.seen.flushed(),
            Err(_) => self.seen.interrupt(),
        }
        flushed
    }

    async fn carry(&self, event_id: EventId, signs: &[(EntryId, HeartbeatKind)]) -> Result<(), Error> {
        let of = |wanted: &[HeartbeatKind]| -> Vec<EntryId> {
            signs.iter().filter(|(_, sign)| wanted.contains(sign)).map(|(entry_id, _)| *entry_id).collect()
        };
        // Who closed a stream was there until then.
        self.ranks
            .mark(
                event_id,
                MarkMode::All,
                &of(&[HeartbeatKind::PositionQuery, HeartbeatKind::Open, HeartbeatKind::Closed]),
            )
            .await?;
        self.presence.opened(event_id, &of(&[HeartbeatKind::Open])).await?;
        self.presence.closed(event_id, &of(&[HeartbeatKind::Closed])).await?;
        Ok(())
    }
}
