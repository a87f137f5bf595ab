//! Watching: one customer's stream, fed by the follower of the queue. Nothing is buffered for a slow reader: when it reads
//! again it gets the newest truth.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::Stream;
use onsale_types::{CustomerId, EntryId};

use super::{
    App,
    fanout::{Polled, Watcher},
    finding::EntryKey,
    follow::{LineReplica, PublicState, ReplicaHandle},
    snapshot::PublicSnapshot,
    standing::EntryQuery,
    tokens::GrantedTurn,
};
use crate::{
    domain::{
        entry::Entry,
        policy::QueueMode,
        refusal::Refusal,
        watcher::{Update, WatchedEntry, WatcherState},
    },
    error::Error,
    metrics,
};

/// How long the copy of a line may take to be as new as the entry that is to be watched.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often an entry that moved between two looks is looked at again.
const ATTEMPTS_MAX: u32 = 3;

/// One message of a watcher.
#[derive(Clone, Debug)]
pub(crate) struct WatchMessage {
    /// Of the queue.
    pub(crate) revision: u64,
    /// The entry's number in line.
    pub(crate) seq: u64,
    /// What happened.
    pub(crate) update: Update,
    /// With a turn: what its customer needs to use it.
    pub(crate) turn: Option<GrantedTurn>,
    /// With the public facts: these.
    pub(crate) snapshot: Option<Arc<PublicSnapshot>>,
}

/// An open stream. Dropping it ends the watch.
pub(crate) struct WatchStream {
    app: Arc<App>,
    followed: ReplicaHandle,
    watcher: Arc<Watcher>,
}

impl App {
    /// Streams what happens to the caller's entry and to its queue; the first message is the full truth.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        own: &EntryQuery,
        last_revision: u64,
    ) -> Result<WatchStream, Error> {
        let followed = self.follow(own.event_id).await?;
        // Nothing can be told before there is something to tell of the queue.
        followed.reach(0, PATIENCE).await;
        let public = followed.public().ok_or(Error::Behind)?;
        let (entry, place, revision) = match public.current.queue.policy.mode {
            QueueMode::Tracked => self.stand_for(&followed, own).await?,
            QueueMode::Windowed => self.stand_with_ticket(&followed, own).await?,
        };
        if followed.is_tracked() {
            self.seen.record_open(own.event_id, [entry.entry_id]);
        }
        let heard = WatcherState::nothing(place, &public.current.line);
        let who: (EntryId, CustomerId, u64) = (entry.entry_id, entry.customer_id, entry.seq);
        let now = self.followers.ticks.now();
        let watcher = Watcher::new(who, heard, revision.max(last_revision), now);
        followed.enter(watcher.slot());
        Ok(WatchStream { app: Arc::clone(self), followed, watcher })
    }

    /// The caller's entry, where it is, and the revision at which it is there. The copy of the line is at least as new as
    /// what Postgres says now, so nobody who comes back sees an older truth.
    async fn stand_for(
        self: &Arc<Self>,
        followed: &LineReplica,
        own: &EntryQuery,
    ) -> Result<(Entry, WatchedEntry, u64), Error> {
        let wanted = EntryKey { event_id: own.event_id, customer_id: own.customer_id };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let found = self.finding.submit(wanted).await?;
            let found = found.ok_or(Refusal::EntryNotFound { event_id: own.event_id })?;
            self.check_token(own, found.now)?;
            if let Some(place) = WatchedEntry::of(&found.entry) {
                return Ok((found.entry, place, found.revision));
            }
            if !followed.reach(found.revision, PATIENCE).await {
                return Err(Error::Behind);
            }
            let seq = found.entry.seq;
            let position = followed.positions(&[seq], found.revision).and_then(|found| *found.first()?);
            match position {
                Some(position) => {
                    return Ok((found.entry, WatchedEntry::Waiting { position }, found.revision));
                }
                // It left the line since we looked.
                None if attempts < ATTEMPTS_MAX => {}
                None => return Err(Error::Behind),
            }
        }
    }
}

impl App {
    /// The same in a WINDOWED queue, which knows the caller by the ticket only.
    async fn stand_with_ticket(
        &self,
        followed: &LineReplica,
        own: &EntryQuery,
    ) -> Result<(Entry, WatchedEntry, u64), Error> {
        let (current, ticket) = self.own_queue(own).await?;
        let ticket = ticket.ok_or(Refusal::QueueTokenRequired)?;
        let revision = current.line.revision;
        let (entry, position) = ticket.entry(&current.queue, &current.line, current.now);
        let place =
            position.map(|position| WatchedEntry::Waiting { position }).or_else(|| WatchedEntry::of(&entry));
        if !followed.reach(revision, PATIENCE).await {
            return Err(Error::Behind);
        }
        Ok((entry, place.ok_or(Error::Stored { what: "ticket" })?, revision))
    }
}

impl WatchStream {
    fn told(&self, revision: u64, update: Update, public: &PublicState) -> Result<WatchMessage, Error> {
        let watcher = &self.watcher;
        let turn = match &update {
            Update::Turn(turn) => {
                let event_id = self.followed.event_id;
                Some(self.app.tokens.turn_of(event_id, watcher.entry_id, watcher.customer_id, *turn)?)
            }
            Update::Position { .. }
            | Update::Moved { .. }
            | Update::Snapshot
            | Update::Paused { .. }
            | Update::Resumed { .. }
            | Update::Closed { .. }
            | Update::Expired { .. } => None,
        };
        let snapshot = (update == Update::Snapshot).then(|| public.snapshot.clone()).flatten();
        Ok(WatchMessage { revision, seq: watcher.seq, update, turn, snapshot })
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchMessage, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = self.app.followers.ticks.now();
        loop {
            match self.watcher.poll(&self.followed, now, context.waker()) {
                // It is not taken yet; the next ones come by themselves.
                Polled::Update(_, Update::Snapshot, public) if public.snapshot.is_none() => {}
                Polled::Update(revision, update, public) => {
                    metrics::update_sent();
                    return Poll::Ready(Some(self.told(revision, update, &public)));
                }
                Polled::Nothing => return Poll::Pending,
                Polled::TooSlow => {
                    metrics::too_slow();
                    return Poll::Ready(Some(Err(Error::TooSlow)));
                }
                Polled::Over => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        if self.followed.is_tracked() {
            self.app.seen.record_closed(self.followed.event_id, self.watcher.entry_id);
        }
    }
}

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Watching").field("watcher", &self.watcher).finish_non_exhaustive()
    }
}
