//! Watches of events: each watched event is read a few times per second, once for all its watchers. A slow watcher skips
//! intermediate states but always gets the latest. A watcher stores only the revision of its last message: the last eight
//! states of an event are kept for all its watchers together, and a watcher that is further behind gets a full update.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use onsale_kit::{
    backoff::BackoffConfig,
    worker::{Round, Worker},
};
use onsale_types::{EventId, SectorId};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Engine;
use crate::{
    domain::{
        availability::{Availability, AvailabilityUpdate},
        event::EventState,
    },
    error::Error,
};

/// Wait after a failed read, on top of the interval.
const FAILED: BackoffConfig = BackoffConfig {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(1),
    multiplier: 1,
    attempts_max: u32::MAX,
};

/// States of an event that are kept for slow watchers: a few seconds of changes.
const RECENT_MAX: usize = 8;

/// The last states of an event, oldest first; never empty.
type Recent = VecDeque<Arc<Availability>>;

/// The events that this process watches.
#[derive(Debug)]
pub(super) struct Watches {
    /// The worker of each event holds the strong reference, so streams end with their worker, also at shutdown.
    senders: Mutex<HashMap<EventId, Weak<watch::Sender<Recent>>>>,
    interval: Duration,
}

impl Watches {
    pub(super) fn new(interval: Duration) -> Self {
        Self { senders: Mutex::default(), interval }
    }

    fn subscribe(&self, event_id: EventId) -> Option<watch::Receiver<Recent>> {
        self.senders.lock().get(&event_id).and_then(Weak::upgrade).map(|sender| sender.subscribe())
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
pub(crate) struct AvailabilityWatcher {
    recent: watch::Receiver<Recent>,
    /// The sectors to report; empty: all.
    sectors: Vec<SectorId>,
    /// `None` before the first message.
    position: Option<WatcherPosition>,
}

#[derive(Clone, Copy, Debug)]
struct WatcherPosition {
    /// Revision of the last message.
    sent: u64,
    /// The latest revision that was equal to `sent` in the watcher's sectors.
    equal: u64,
    has_ended: bool,
}

impl AvailabilityWatcher {
    /// Waits for the next message: a full update at first, then changes. Returns `None` after the last message of an event that
    /// has ended, and at shutdown.
    pub(crate) async fn next(&mut self) -> Option<AvailabilityUpdate> {
        loop {
            match self.position {
                Some(position) if position.has_ended || self.recent.changed().await.is_err() => return None,
                Some(_) | None => {}
            }
            if let Some(update) = self.update() {
                return Some(update);
            }
        }
    }

    /// Returns the message that brings the watcher up to date, or `None` if nothing changed in its sectors.
    fn update(&mut self) -> Option<AvailabilityUpdate> {
        let recent = self.recent.borrow_and_update();
        let latest = recent.back()?;
        let state_at = |revision: u64| recent.iter().find(|state| state.revision == revision);
        let before = self.position.and_then(|position| Some((position, state_at(position.equal)?)));
        let update = match before {
            Some((position, before)) => latest.since(before, position.sent, &self.sectors),
            None => Some(AvailabilityUpdate::Full(latest.only(&self.sectors))),
        };
        let unchanged = self.position.filter(|_| update.is_none());
        let sent = unchanged.map_or(latest.revision, |position| position.sent);
        let has_ended = latest.state == EventState::Ended;
        self.position = Some(WatcherPosition { sent, equal: latest.revision, has_ended });
        update
    }
}

impl Engine {
    /// Starts to watch `sectors` of an event (empty: all).
    pub(crate) async fn watch(
        self: &Arc<Self>,
        event_id: EventId,
        sectors: Vec<SectorId>,
    ) -> Result<AvailabilityWatcher, Error> {
        let recent = match self.watches.subscribe(event_id) {
            Some(recent) => recent,
            None => self.start_watch(self.read_availability(event_id).await?),
        };
        Ok(AvailabilityWatcher { recent, sectors, position: None })
    }

    /// Starts a worker that reads the event, unless another watcher has meanwhile started one.
    fn start_watch(self: &Arc<Self>, first: Arc<Availability>) -> watch::Receiver<Recent> {
        let event_id = first.event_id;
        let mut senders = self.watches.senders.lock();
        if let Some(sender) = senders.get(&event_id).and_then(Weak::upgrade) {
            return sender.subscribe();
        }
        let (sender, recent) = watch::channel(Recent::from([first]));
        let sender = Arc::new(sender);
        senders.insert(event_id, Arc::downgrade(&sender));
        drop(senders);
        let engine = Arc::clone(self);
        Worker::every("watch availability", self.watches.interval).backoff(FAILED).start(
            &self.tasks,
            move || {
                let (engine, sender) = (Arc::clone(&engine), Arc::clone(&sender));
                async move { engine.read_watched(event_id, &sender).await }
            },
        );
        recent
    }

    /// Reads the event once for all its watchers. Done when it has no watcher left or has ended.
    async fn read_watched(&self, event_id: EventId, sender: &watch::Sender<Recent>) -> Result<Round, Error> {
        {
            // Under the lock, so that no watcher subscribes to a watch that ends.
            let mut senders = self.watches.senders.lock();
            if sender.receiver_count() == 0 {
                senders.remove(&event_id);
                return Ok(Round::Done);
            }
        }
        let known = sender.borrow().back().map(|latest| latest.revision);
        let Some(latest) = self.read_availability_if_changed(event_id, known).await? else {
            return Ok(Round::Idle);
        };
        let has_ended = latest.state == EventState::Ended;
        let mut senders = self.watches.senders.lock();
        sender.send_modify(|recent| keep(recent, Arc::new(latest)));
        if has_ended {
            senders.remove(&event_id);
            return Ok(Round::Done);
        }
        Ok(Round::Idle)
    }
}

#[cfg(test)]
mod tests {
    use onsale_types::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::domain::availability::SectorStock;

    fn sector(number: u128) -> SectorId {
        SectorId::from_uuid(Uuid::from_u128(number))
    }

    /// An event with two sectors, of which `free` units are free.
    fn state(revision: u64, free: [u32; 2]) -> Arc<Availability> {
        let stock = |(number, free_count): (u128, u32)| SectorStock {
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

    fn watcher(sender: &watch::Sender<Recent>, sectors: Vec<SectorId>) -> AvailabilityWatcher {
        AvailabilityWatcher { recent: sender.subscribe(), sectors, position: None }
    }

    #[tokio::test]
    async fn watcher_more_than_eight_states_behind_gets_a_full_update() {
        let (sender, _) = watch::channel(Recent::from([state(1, [50, 50])]));
        let mut watcher = watcher(&sender, Vec::new());
        assert!(matches!(watcher.next().await, Some(AvailabilityUpdate::Full(whole)) if whole.revision == 1));
        push(&sender, state(2, [49, 50]));
        push(&sender, state(3, [48, 50]));
        let Some(AvailabilityUpdate::Delta(delta)) = watcher.next().await else {
            panic!("a delta is shorter")
        };
        assert_eq!((delta.previous_revision, delta.revision), (1, 3));
        (4..20).for_each(|revision| push(&sender, state(revision, [40, 50])));
        assert!(
            matches!(watcher.next().await, Some(AvailabilityUpdate::Full(whole)) if whole.revision == 19)
        );
        assert_eq!(sender.borrow().len(), RECENT_MAX);
    }

    #[tokio::test]
    async fn changes_of_other_sectors_do_not_make_a_watcher_fall_behind() {
        let (sender, _) = watch::channel(Recent::from([state(1, [50, 50])]));
        let mut watcher = watcher(&sender, vec![sector(2)]);
        watcher.next().await;
        for revision in 2..20 {
            push(&sender, state(revision, [u32::try_from(revision).unwrap(), 50]));
            assert_eq!(watcher.update(), None);
        }
        push(&sender, state(20, [20, 49]));
        let Some(AvailabilityUpdate::Delta(delta)) = watcher.next().await else {
            panic!("a delta is shorter")
        };
        assert_eq!((delta.previous_revision, delta.revision), (1, 20), "counted from its last message");
    }
}
