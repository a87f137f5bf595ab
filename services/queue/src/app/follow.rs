//! One follower per queue that this pod's watchers look at: it learns of changes once, for all of them. A hint makes it look
//! at once, and it looks every now and then in any case, so a lost hint costs a moment and never a fact.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::StreamExt;
use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
};
use onsale_types::{EntryId, EventId};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior},
};

use super::{App, lock};
use crate::{
    domain::{
        entry::{Entry, EntryState},
        watching::Place,
    },
    error::Error,
    store::{
        entries,
        queues::{self, Facts},
    },
};

/// What a burst of hints is gathered for: one look serves them all.
const GATHER: Duration = Duration::from_millis(20);

const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// What is true of a queue and of the entries that are watched.
#[derive(Debug)]
pub struct View {
    /// The queue and its line. Apart, so that a watcher can keep them without the places of all the others.
    pub facts: Arc<Facts>,
    /// Where each watched entry is.
    pub places: HashMap<EntryId, Place>,
}

/// The queues that are followed.
#[derive(Debug, Default)]
pub struct Followers {
    events: Mutex<HashMap<EventId, Arc<Followed>>>,
}

/// A queue that is followed.
#[derive(Debug)]
struct Followed {
    watched: Mutex<HashMap<EntryId, Watched>>,
    /// Holds the newest view only: who reads slowly skips the ones between.
    views: watch::Sender<Option<Arc<View>>>,
    nudge: Notify,
}

/// An entry that is watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    seq: u64,
    watchers: usize,
}

/// One watcher's end. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    followed: Arc<Followed>,
    entry_id: EntryId,
    views: watch::Receiver<Option<Arc<View>>>,
}

/// What a follower remembers from look to look.
#[derive(Default)]
struct Memory {
    revision: Option<u64>,
    state: Option<crate::domain::queue::QueueState>,
    /// Entries looked at before; those that left the line as they were then.
    known: HashMap<EntryId, Option<Entry>>,
    /// The last positions.
    positions: HashMap<EntryId, u64>,
}

impl Watch {
    /// Waits for a newer view. None when the follower has ended, as the process is stopping.
    pub async fn changed(&mut self) -> Option<Arc<View>> {
        loop {
            self.views.changed().await.ok()?;
            let view = self.views.borrow_and_update().clone();
            if view.is_some() {
                return view;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = lock(&self.followed.watched);
        if let Some(entry) = watched.get_mut(&self.entry_id) {
            entry.watchers = entry.watchers.saturating_sub(1);
            if entry.watchers == 0 {
                watched.remove(&self.entry_id);
            }
        }
    }
}

impl Followers {
    /// The queue changed: look now.
    pub fn nudge(&self, event_id: EventId) {
        if let Some(followed) = lock(&self.events).get(&event_id) {
            followed.nudge.notify_one();
        }
    }
}

impl App {
    /// Follows an entry: the watch gives the newest view there is, and every one that comes after.
    pub(super) fn follow(self: &Arc<Self>, entry: &Entry) -> Watch {
        let mut events = lock(&self.followers.events);
        let followed = match events.get(&entry.event_id) {
            Some(followed) => Arc::clone(followed),
            None => {
                let (views, _) = watch::channel(None);
                let followed = Arc::new(Followed { watched: Mutex::default(), views, nudge: Notify::new() });
                events.insert(entry.event_id, Arc::clone(&followed));
                let follower = Arc::clone(self).run_follower(entry.event_id, Arc::clone(&followed));
                self.tasks.spawn("queue follower", follower);
                followed
            }
        };
        lock(&followed.watched)
            .entry(entry.entry_id)
            .or_insert(Watched { seq: entry.seq, watchers: 0 })
            .watchers += 1;
        drop(events);
        followed.nudge.notify_one();
        let mut views = followed.views.subscribe();
        // The newest view may be newer than what the watcher has read itself.
        views.mark_changed();
        Watch { followed, entry_id: entry.entry_id, views }
    }

    async fn run_follower(self: Arc<Self>, event_id: EventId, followed: Arc<Followed>) {
        let shutdown = self.tasks.token();
        let Ok(channel) = self.ranks.keys().moved(event_id) else { return };
        let mut hints = self.hints.subscribe(&channel);
        let mut looks = tokio::time::interval(self.watching.look_interval);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut backoff = Backoff::new(RETRY);
        let mut memory = Memory::default();
        let mut seen_due = Instant::now();
        loop {
            let is_hinted = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = looks.tick() => false,
                Some(_hint) = hints.next() => true,
                () = followed.nudge.notified() => true,
            };
            if is_hinted {
                tokio::time::sleep(GATHER).await;
            }
            if self.stop_following(event_id, &followed) {
                return;
            }
            let is_due = seen_due <= Instant::now();
            match self.look(event_id, &followed, &mut memory, is_hinted || is_due).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to look at a followed queue");
                    let pause = backoff.next_delay().unwrap_or(RETRY.max);
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
            if is_due {
                seen_due = Instant::now() + self.watching.seen_interval;
                self.seen.note(event_id, memory.positions.keys().copied());
            }
        }
    }

    /// Whether nobody watches any more; then the next who does begins anew.
    fn stop_following(&self, event_id: EventId, followed: &Followed) -> bool {
        let mut events = lock(&self.followers.events);
        let is_idle = lock(&followed.watched).is_empty();
        if is_idle {
            events.remove(&event_id);
        }
        is_idle
    }

    /// Looks at the queue, and shows what is new. Redis follows Postgres a moment later and may have been corrected, so
    /// after a hint, and every now and then, places are asked for `again` although the queue is as it was.
    async fn look(
        &self,
        event_id: EventId,
        followed: &Followed,
        memory: &mut Memory,
        again: bool,
    ) -> Result<(), Error> {
        let watched: HashMap<EntryId, Watched> = lock(&followed.watched).clone();
        memory.known.retain(|entry_id, _| watched.contains_key(entry_id));
        let facts = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let new: Vec<EntryId> =
            watched.keys().filter(|entry_id| !memory.known.contains_key(entry_id)).copied().collect();
        let is_same = memory.revision == Some(facts.line.revision) && memory.state == Some(facts.queue.state);
        if is_same && new.is_empty() && !again {
            return Ok(());
        }
        let mut moved =
            if new.is_empty() { Vec::new() } else { entries::by_ids(&self.stores.postgres, &new).await? };
        if let Some(revision) = memory.revision.filter(|revision| *revision != facts.line.revision) {
            moved.extend(entries::moved_since(&self.stores.postgres, event_id, revision).await?);
        }
        for entry in moved.into_iter().filter(|entry| watched.contains_key(&entry.entry_id)) {
            let is_waiting = entry.state == EntryState::Waiting;
            memory.known.insert(entry.entry_id, (!is_waiting).then_some(entry));
        }
        let waiting: Vec<(EntryId, u64)> = watched
            .iter()
            .filter(|(entry_id, _)| matches!(memory.known.get(entry_id), Some(None)))
            .map(|(entry_id, watched)| (*entry_id, watched.seq))
            .collect();
        let positions = self.places.of(event_id, &waiting).await?;
        memory.stand(&waiting, &positions);
        memory.revision = Some(facts.line.revision);
        memory.state = Some(facts.queue.state);
        let view = View { facts: Arc::new(facts), places: memory.places() };
        followed.views.send_replace(Some(Arc::new(view)));
        Ok(())
    }
}

impl Memory {
    /// Keeps the positions. One who is nowhere in line any more keeps the last one until the next look tells why.
    fn stand(&mut self, waiting: &[(EntryId, u64)], positions: &[Option<u64>]) {
        let before = std::mem::take(&mut self.positions);
        for ((entry_id, _), position) in waiting.iter().zip(positions) {
            if let Some(position) = position.or_else(|| before.get(entry_id).copied()) {
                self.positions.insert(*entry_id, position);
            }
        }
    }

    fn places(&self) -> HashMap<EntryId, Place> {
        let waiting = self
            .positions
            .iter()
            .map(|(entry_id, position)| (*entry_id, Place::Waiting { position: *position }));
        let moved = self
            .known
            .iter()
            .filter_map(|(entry_id, entry)| Some((*entry_id, Place::Moved(entry.as_ref()?.clone()))));
        waiting.chain(moved).collect()
    }
}
