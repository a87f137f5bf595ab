//! `WatchQueue`: grpc → app → engine::replicas → engine::find_entries → engine::fanout → stream of messages. Nothing is
//! buffered for a slow reader: when it reads again it gets the newest state.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::Stream;

use super::App;
use crate::{
    domain::{
        entry::Entry,
        entry_view::EntryQuery,
        policy::QueueMode,
        refusal::Refusal,
        watcher::{Update, WatchMessage, WatchedEntry, WatcherState},
    },
    engine::{
        Engine,
        fanout::{Polled, Watcher},
        find_entries::EntryKey,
        replicas::{LineReplica, PublicState, ReplicaHandle},
    },
    error::Error,
    metrics,
};

/// Longest wait until the replica of a line has reached the revision of the entry to watch.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Attempts to read an entry that leaves the line between two reads.
const ATTEMPTS_MAX: u32 = 3;

/// An open stream. Dropping it ends the watch.
pub(crate) struct WatchStream {
    engine: Arc<Engine>,
    replica: ReplicaHandle,
    watcher: Arc<Watcher>,
}

impl App {
    /// Streams the changes of the caller's entry and queue. The first message is the full state of the entry.
    pub(crate) async fn watch_queue(
        &self,
        query: &EntryQuery,
        last_revision: u64,
    ) -> Result<WatchStream, Error> {
        let engine = &self.engine;
        let replica = engine.open_replica(query.event_id).await?;
        // No message can be made before the updater's first round.
        replica.reach(0, TIMEOUT).await;
        let public = replica.public().ok_or(Error::ReplicaLagging)?;
        let (entry, watched, revision) = match public.current.queue.policy.mode {
            QueueMode::Tracked => self.find_tracked(&replica, query).await?,
            QueueMode::Windowed => self.find_windowed(&replica, query).await?,
        };
        if replica.is_tracked() {
            engine.heartbeats.record_open(query.event_id, [entry.entry_id]);
        }
        let state = WatcherState::new(watched, &public.current.line);
        let ids = (entry.entry_id, entry.customer_id, entry.seq);
        let now = engine.replicas.ticks.now();
        let watcher = Watcher::new(ids, state, revision.max(last_revision), now);
        replica.enter(watcher.slot());
        Ok(WatchStream { engine: Arc::clone(engine), replica, watcher })
    }

    /// Returns the caller's entry, its state, and the revision of that state. The replica is at least as new as the entry
    /// read from Postgres, so a client that reconnects never sees an older state.
    async fn find_tracked(
        &self,
        replica: &LineReplica,
        query: &EntryQuery,
    ) -> Result<(Entry, WatchedEntry, u64), Error> {
        let EntryQuery { event_id, customer_id, .. } = *query;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let found = self.engine.entry_batcher.submit(EntryKey { event_id, customer_id }).await?;
            let found = found.ok_or(Refusal::EntryNotFound { event_id })?;
            self.engine.verify_queue_token(query, found.now)?;
            if let Some(watched) = WatchedEntry::of(&found.entry) {
                return Ok((found.entry, watched, found.revision));
            }
            if !replica.reach(found.revision, TIMEOUT).await {
                return Err(Error::ReplicaLagging);
            }
            let positions = replica.positions(&[found.entry.seq], found.revision);
            match positions.and_then(|positions| *positions.first()?) {
                Some(position) => {
                    return Ok((found.entry, WatchedEntry::Waiting { position }, found.revision));
                }
                // The entry left the line after it was read.
                None if attempts < ATTEMPTS_MAX => {}
                None => return Err(Error::ReplicaLagging),
            }
        }
    }

    /// Like [`Self::find_tracked`] for a WINDOWED queue, whose entry follows from the queue token.
    async fn find_windowed(
        &self,
        replica: &LineReplica,
        query: &EntryQuery,
    ) -> Result<(Entry, WatchedEntry, u64), Error> {
        let (current, windowed) = self.engine.queried_queue(query).await?;
        let windowed = windowed.ok_or(Refusal::QueueTokenRequired)?;
        let revision = current.line.revision;
        let (entry, position) = windowed.entry(&current.queue, &current.line, current.now);
        let watched = match position {
            Some(position) => Some(WatchedEntry::Waiting { position }),
            None => WatchedEntry::of(&entry),
        };
        if !replica.reach(revision, TIMEOUT).await {
            return Err(Error::ReplicaLagging);
        }
        Ok((entry, watched.ok_or(Error::Unreadable { what: "windowed entry" })?, revision))
    }
}

impl WatchStream {
    fn message(&self, revision: u64, update: Update, public: &PublicState) -> Result<WatchMessage, Error> {
        let watcher = &self.watcher;
        let turn = match &update {
            Update::Turn(turn) => {
                let event_id = self.replica.event_id;
                Some(self.engine.tokens.turn(event_id, watcher.entry_id, watcher.customer_id, *turn)?)
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
        let now = self.engine.replicas.ticks.now();
        loop {
            match self.watcher.poll(&self.replica, now, context.waker()) {
                // No snapshot has been taken yet. The next one becomes due by itself.
                Polled::Update(_, Update::Snapshot, public) if public.snapshot.is_none() => {}
                Polled::Update(revision, update, public) => {
                    metrics::update_sent();
                    return Poll::Ready(Some(self.message(revision, update, &public)));
                }
                Polled::Pending => return Poll::Pending,
                Polled::TooSlow => {
                    metrics::watcher_too_slow();
                    return Poll::Ready(Some(Err(Error::WatcherTooSlow)));
                }
                Polled::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        if self.replica.is_tracked() {
            self.engine.heartbeats.record_closed(self.replica.event_id, self.watcher.entry_id);
        }
    }
}

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WatchStream").field("watcher", &self.watcher).finish_non_exhaustive()
    }
}
