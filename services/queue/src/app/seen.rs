//! Signs of life: gathered here, carried to Redis together.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use onsale_types::{EntryId, EventId};
use tokio::time::Instant;

use super::{App, lock};
use crate::{error::Error, store::ranks::Marks};

/// Signs that wait to be carried; further ones are dropped, and come again with the next sign.
const WAITING_MAX: usize = 200_000;

/// Signs carried in one call.
const CHUNK: usize = 1_000;

/// Signs of life that are not in Redis yet.
#[derive(Debug, Default)]
pub struct Seen {
    waiting: Mutex<Waiting>,
    /// Since when no sign is known to have been missed.
    complete_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Waiting {
    count: usize,
    events: HashMap<EventId, HashSet<EntryId>>,
}

impl Seen {
    /// These entries' customers are there.
    pub fn note(&self, event_id: EventId, entries: impl IntoIterator<Item = EntryId>) {
        let mut waiting = lock(&self.waiting);
        for entry_id in entries {
            if waiting.count < WAITING_MAX && waiting.events.entry(event_id).or_default().insert(entry_id) {
                waiting.count = waiting.count.saturating_add(1);
            }
        }
    }

    /// Whether silence for `idle` is silence: had Redis been away meanwhile, it would have missed the signs.
    pub fn is_complete_for(&self, idle: Duration) -> bool {
        lock(&self.complete_since).is_some_and(|since| since.elapsed() >= idle)
    }

    /// Signs may have been missed until now.
    pub fn interrupted(&self) {
        *lock(&self.complete_since) = None;
    }

    fn carried(&self) {
        lock(&self.complete_since).get_or_insert_with(Instant::now);
    }
}

impl App {
    /// Carries what was noted to Redis. What cannot be carried waits for the next time.
    pub async fn carry_seen(&self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut *lock(&self.seen.waiting));
        let mut carried = Ok(());
        for (event_id, entries) in waiting.events {
            let entries: Vec<EntryId> = entries.into_iter().collect();
            for chunk in entries.chunks(CHUNK) {
                // One line that cannot be told of keeps no other from it.
                if let Err(error) = self.ranks.mark(event_id, Marks::All, chunk).await {
                    self.seen.note(event_id, chunk.iter().copied());
                    carried = Err(error.into());
                }
            }
        }
        match &carried {
            Ok(()) => self.seen.carried(),
            Err(_) => self.seen.interrupted(),
        }
        carried
    }
}
