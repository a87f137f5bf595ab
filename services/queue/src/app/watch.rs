//! Watching: one customer's stream, fed by the follower of the queue. Nothing is buffered for a slow reader: when it reads
//! again it gets the newest truth.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, stream};
use tokio::time::{Instant, sleep_until};

use super::{
    App,
    follow::{View, Watch},
    standing::OwnEntry,
    tokens::GrantedTurn,
};
use crate::{
    domain::{
        entry::{Entry, EntryState},
        watching::{Heard, Place, Update},
    },
    error::Error,
    store::queues::Facts,
};

/// One message of a watcher.
#[derive(Clone, Debug)]
pub struct Told {
    /// Of the queue.
    pub revision: u64,
    /// What happened.
    pub update: Update,
    /// With a turn: what its customer needs to use it.
    pub turn: Option<GrantedTurn>,
}

/// A watcher between two messages.
struct Watching {
    app: Arc<App>,
    /// As it was when the watch began; never changes: id, seq, customer.
    entry: Entry,
    watch: Watch,
    heard: Heard,
    /// What is true of the queue, and where the entry is, as far as is known. Never a whole view: who does not read would
    /// keep the places of everybody.
    facts: Arc<Facts>,
    place: Place,
    /// What is to be told next.
    ready: VecDeque<Update>,
    /// The highest revision told.
    revision: u64,
    remind_at: Instant,
}

impl App {
    /// Streams what happens to the caller's entry and to its queue; the first message is the full truth.
    pub async fn watch(
        self: &Arc<Self>,
        own: &OwnEntry,
        last_revision: u64,
    ) -> Result<impl Stream<Item = Result<Told, Error>> + Send + use<>, Error> {
        let (facts, entry) = self.own_entry(own).await?;
        self.note_seen(&entry);
        // Before the position is asked for: what changes from here on is not missed.
        let watch = self.follow(&entry);
        let place = match entry.state {
            EntryState::Waiting => {
                let position = self.places.of(entry.event_id, &[(entry.entry_id, entry.seq)]).await?;
                Place::Waiting { position: position.first().copied().flatten().unwrap_or(1) }
            }
            EntryState::Admitted | EntryState::Completed | EntryState::Expired | EntryState::Left => {
                Place::Moved(entry.clone())
            }
        };
        let revision = facts.line.revision.max(last_revision);
        let mut watching = Watching {
            app: Arc::clone(self),
            heard: Heard::nothing(entry.seq),
            watch,
            entry,
            facts: Arc::new(facts),
            place,
            ready: VecDeque::new(),
            revision,
            remind_at: Instant::now() + self.watching.position_interval,
        };
        watching.hear();
        Ok(stream::unfold(watching, |mut watching| async move {
            let told = watching.next().await?;
            Some((told, watching))
        }))
    }
}

impl Watching {
    /// The next message; none when there is nothing more to come.
    async fn next(&mut self) -> Option<Result<Told, Error>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                self.remind_at = Instant::now() + self.app.watching.position_interval;
                return Some(self.told(update));
            }
            if self.heard.is_over() {
                return None;
            }
            tokio::select! {
                view = self.watch.changed() => match view {
                    Some(view) => self.take(&view),
                    // The process is stopping; the chassis ends the stream with a retryable status.
                    None => std::future::pending().await,
                },
                () = sleep_until(self.remind_at) => self.remind(),
            }
        }
    }

    /// Hears what a view has to tell. One that is older than what was told, or does not know the entry yet, has nothing.
    fn take(&mut self, view: &View) {
        if view.facts.line.revision < self.facts.line.revision {
            return;
        }
        let Some(place) = view.places.get(&self.entry.entry_id) else { return };
        self.place = place.clone();
        self.facts = Arc::clone(&view.facts);
        self.hear();
    }

    fn hear(&mut self) {
        let updates = self.heard.hear(&self.place, &self.facts.queue, &self.facts.line);
        self.ready.extend(updates);
        self.revision = self.revision.max(self.facts.line.revision);
    }

    fn remind(&mut self) {
        self.remind_at = Instant::now() + self.app.watching.position_interval;
        let reminder = self.heard.remind(&self.place, &self.facts.queue, &self.facts.line);
        self.ready.extend(reminder);
    }

    fn told(&self, update: Update) -> Result<Told, Error> {
        let turn = match &update {
            Update::Turn(turn) => Some(self.app.tokens.turn(&self.entry, *turn)?),
            Update::Position { .. }
            | Update::Paused { .. }
            | Update::Resumed { .. }
            | Update::Closed { .. }
            | Update::Expired { .. } => None,
        };
        Ok(Told { revision: self.revision, update, turn })
    }
}
