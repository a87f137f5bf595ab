//! `WatchAvailability`: each watched event is looked at a few times per second, once for all its watchers. A watcher that is
//! slow short steps between, never the latest state. Of what it was told it keeps the revision only: the last few states
//! are kept for all watchers together, and who is further behind is told everything again.

use std::{
    collections::{HashMap, VecDeque},
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

/// So many states of an event are kept for those who are behind: a few seconds.
const RECENT_MAX: usize = 8;

/// The states of an event, oldest first; never empty.
type Recent = VecDeque<Arc<Availability>>;

type Senders = HashMap<EventId, watch::Sender<Recent>>;

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

fn keep(recent: &mut Recent, latest: Arc<Availability>) {
    recent.push_back(latest);
    if recent.len() > RECENT_MAX {
        recent.pop_front();
    }
}

/// One watcher of an event.
#[derive(Debug)]
pub struct AvailabilityWatcher {
    recent: watch::Receiver<Recent>,
    /// What to follow; none: all.
    sectors: Vec<SectorId>,
    /// What the watcher was told last.
    known: Option<WatcherPosition>,
}

#[derive(Clone, Copy, Debug)]
struct WatcherPosition {
    /// What the watcher's last message said.
    told: u64,
    /// The last one that had nothing else to say.
    seen: u64,
    has_ended: bool,
}

impl AvailabilityWatcher {
    /// What to tell next: everything at first, then what changed. None when the event has ended and all was told.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            match self.known {
                Some(known) if known.has_ended || self.recent.changed().await.is_err() => return None,
                Some(_) | None => {}
            }
            if let Some(change) = self.news() {
                return Some(change);
            }
        }
    }

    /// What is new to the watcher.
    fn news(&mut self) -> Option<Change> {
        let recent = self.recent.borrow_and_update();
        let latest = recent.back()?;
        let seen = |known: &WatcherPosition| recent.iter().find(|it| it.revision == known.seen);
        let change = match self.known.and_then(|known| Some((known, seen(&known)?))) {
            Some((known, before)) => latest.since(before, known.told, &self.sectors),
            None => Some(Change::Whole(latest.only(&self.sectors))),
        };
        let told = self.known.filter(|_| change.is_none()).map_or(latest.revision, |known| known.told);
        let has_ended = latest.state == EventState::Ended;
        self.known = Some(WatcherPosition { told, seen: latest.revision, has_ended });
        change
    }
}

impl App {
    /// Follows `sectors` of the event (none: all), if `viewer` may know of it.
    pub async fn watch_availability(
        self: &Arc<Self>,
        viewer: Viewer,
        event_id: EventId,
        sectors: Vec<SectorId>,
    ) -> Result<AvailabilityWatcher, Error> {
        check_sectors(&*self.visible_offer(event_id, viewer).await?, &sectors)?;
        let watched = self.watches.lock().get(&event_id).map(watch::Sender::subscribe);
        let recent = match watched {
            Some(recent) => recent,
            None => self.begin_watch(self.read_availability(event_id).await?),
        };
        Ok(AvailabilityWatcher { recent, sectors, known: None })
    }

    /// Begins to follow the event, unless another watcher has meanwhile.
    fn begin_watch(self: &Arc<Self>, first: Arc<Availability>) -> watch::Receiver<Recent> {
        let event_id = first.event_id;
        let mut senders = self.watches.lock();
        if let Some(sender) = senders.get(&event_id) {
            return sender.subscribe();
        }
        let (sender, recent) = watch::channel(Recent::from([first]));
        senders.insert(event_id, sender);
        drop(senders);
        self.tasks.spawn("watch availability", Arc::clone(self).follow(event_id));
        recent
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
                    Some(sender) => sender.borrow().back().map(|latest| latest.revision),
                    None => {
                        senders.remove(&event_id);
                        return;
                    }
                }
            };
            match self.read_availability_if_changed(event_id, known).await {
                Ok(Some(latest)) => {
                    let has_ended = latest.state == EventState::Ended;
                    let mut senders = self.watches.lock();
                    if let Some(sender) = senders.get(&event_id) {
                        sender.send_modify(|recent| keep(recent, Arc::new(latest)));
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

#[cfg(test)]
mod tests {
    use onsale_types::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::domain::availability::Stock;

    fn sector(number: u128) -> SectorId {
        SectorId::from_uuid(Uuid::from_u128(number))
    }

    /// An event with two sectors, of which `free` units are free.
    fn state(revision: u64, free: [u32; 2]) -> Arc<Availability> {
        let stock = |(number, free_count): (u128, u32)| Stock {
            sector_id: sector(number),
            capacity: 100,
            free_count,
            held_count: 0,
            free: None,
        };
        Arc::new(Availability {
            event_id: EventId::from_uuid(Uuid::from_u128(9)),
            revision,
            state: EventState::OnSale,
            sectors: (1..).zip(free).map(stock).collect(),
            time: Timestamp::EPOCH,
        })
    }

    fn push(sender: &watch::Sender<Recent>, state: Arc<Availability>) {
        sender.send_modify(|recent| keep(recent, state));
    }

    fn watching(sender: &watch::Sender<Recent>, sectors: Vec<SectorId>) -> AvailabilityWatcher {
        AvailabilityWatcher { recent: sender.subscribe(), sectors, known: None }
    }

    #[tokio::test]
    async fn who_falls_behind_is_told_everything_again() {
        let (sender, _) = watch::channel(Recent::from([state(1, [50, 50])]));
        let mut watcher = watching(&sender, Vec::new());
        assert!(matches!(watcher.next().await, Some(Change::Whole(whole)) if whole.revision == 1));
        push(&sender, state(2, [49, 50]));
        push(&sender, state(3, [48, 50]));
        let Some(Change::Part(delta)) = watcher.next().await else { panic!("a delta is shorter") };
        assert_eq!((delta.previous_revision, delta.revision), (1, 3));
        (4..20).for_each(|revision| push(&sender, state(revision, [40, 50])));
        assert!(matches!(watcher.next().await, Some(Change::Whole(whole)) if whole.revision == 19));
        assert_eq!(sender.borrow().len(), RECENT_MAX);
    }

    #[tokio::test]
    async fn who_follows_a_quiet_sector_is_not_behind_when_others_change() {
        let (sender, _) = watch::channel(Recent::from([state(1, [50, 50])]));
        let mut watcher = watching(&sender, vec![sector(2)]);
        watcher.next().await;
        for revision in 2..20 {
            push(&sender, state(revision, [u32::try_from(revision).unwrap(), 50]));
            assert_eq!(watcher.news(), None);
        }
        push(&sender, state(20, [20, 49]));
        let Some(Change::Part(delta)) = watcher.next().await else { panic!("a delta is shorter") };
        assert_eq!((delta.previous_revision, delta.revision), (1, 20), "counted from what it was told");
    }
}
