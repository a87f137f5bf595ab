//! `WatchAvailability`: each watched event is looked at a few times per second, once for all its watchers. A watcher that is
//! slow misses steps between, never the latest state.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use onsale_kit::error::Chain;
use onsale_types::{EventId, SectorId};
use tokio::sync::watch;

use super::{App, availability::check_sectors};
use crate::{
    domain::{
        availability::{Availability, Change},
        event::{EventState, Viewer},
    },
    error::Error,
};

/// After a failed look: Postgres is away, and everybody waits for it.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

type Senders = HashMap<EventId, watch::Sender<Arc<Availability>>>;

/// The events that somebody of this process watches.
#[derive(Debug, Default)]
pub(super) struct Watches {
    senders: Mutex<Senders>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watcher of an event.
#[derive(Debug)]
pub struct Watching {
    latest: watch::Receiver<Arc<Availability>>,
    /// What to follow; none: all.
    sectors: Vec<SectorId>,
    /// What the watcher was told last.
    known: Option<Arc<Availability>>,
}

impl Watching {
    /// What to tell next: everything at first, then what changed. None when the event has ended and all was told.
    pub async fn next(&mut self) -> Option<Change> {
        let Some(mut known) = self.known.take() else {
            let whole = Arc::clone(&self.latest.borrow_and_update());
            self.known = Some(Arc::clone(&whole));
            return Some(Change::Whole(whole.only(&self.sectors)));
        };
        loop {
            if known.state == EventState::Ended || self.latest.changed().await.is_err() {
                return None;
            }
            let latest = Arc::clone(&self.latest.borrow_and_update());
            let change = latest.since(&known, &self.sectors);
            if change.is_some() {
                known = latest;
                self.known = Some(known);
                return change;
            }
        }
    }
}

impl App {
    /// Follows `sectors` of the event (none: all), if `viewer` may know of it.
    pub async fn watch_availability(
        self: &Arc<Self>,
        viewer: Viewer,
        event_id: EventId,
        sectors: Vec<SectorId>,
    ) -> Result<Watching, Error> {
        let (_, offer) = self.find_event(event_id, viewer).await?;
        check_sectors(&offer, &sectors)?;
        let watched = self.watches.lock().get(&event_id).map(watch::Sender::subscribe);
        let latest = match watched {
            Some(latest) => latest,
            None => self.begin_watch(self.look(event_id).await?),
        };
        Ok(Watching { latest, sectors, known: None })
    }

    /// Begins to follow the event, unless another watcher has meanwhile.
    fn begin_watch(self: &Arc<Self>, first: Arc<Availability>) -> watch::Receiver<Arc<Availability>> {
        let event_id = first.event_id;
        let mut senders = self.watches.lock();
        if let Some(sender) = senders.get(&event_id) {
            return sender.subscribe();
        }
        let (sender, latest) = watch::channel(first);
        senders.insert(event_id, sender);
        drop(senders);
        self.tasks.spawn("watch availability", Arc::clone(self).follow(event_id));
        latest
    }

    /// Looks at the event until nobody watches it, it has ended, or the process stops.
    async fn follow(self: Arc<Self>, event_id: EventId) {
        let shutdown = self.tasks.token();
        let mut pause = self.config.availability.watch_every;
        while shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            pause = self.config.availability.watch_every;
            let known = {
                let mut senders = self.watches.lock();
                match senders.get(&event_id).filter(|sender| sender.receiver_count() > 0) {
                    Some(sender) => sender.borrow().revision,
                    None => {
                        senders.remove(&event_id);
                        return;
                    }
                }
            };
            match self.look_since(event_id, Some(known)).await {
                Ok(Some(latest)) => {
                    let has_ended = latest.state == EventState::Ended;
                    let mut senders = self.watches.lock();
                    if let Some(sender) = senders.get(&event_id) {
                        sender.send_replace(Arc::new(latest));
                    }
                    if has_ended {
                        senders.remove(&event_id);
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to look at a watched event");
                    pause = FAILURE_PAUSE;
                }
            }
        }
        self.watches.lock().remove(&event_id);
    }
}
