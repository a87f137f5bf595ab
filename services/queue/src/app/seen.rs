//! Signs of life: gathered here, carried to Redis together.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use onsale_types::{EntryId, EventId};

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
}

impl App {
    /// Carries what was noted to Redis. What cannot be carried is lost: silence counts only after many of them.
    pub async fn carry_seen(&self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut *lock(&self.seen.waiting));
        for (event_id, entries) in waiting.events {
            let entries: Vec<EntryId> = entries.into_iter().collect();
            for chunk in entries.chunks(CHUNK) {
                self.ranks.mark(event_id, Marks::All, chunk).await?;
            }
        }
        Ok(())
    }
}
