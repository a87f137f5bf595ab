//! Who looks at an event: counted on every pod, reported to the others every now and then, summed by whoever is asked. With
//! it goes how far each pod's view of the queue is behind.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_types::{EntryId, EventId};
use tokio::time::Instant;

use super::lock;
use crate::{
    error::Error,
    store::pods::{Pods, ViewerReport},
};

/// A poll makes a viewer for one to two of these: who polls as told to is always one.
const HALF_SPAN: Duration = Duration::from_secs(30);

/// Pollers remembered; further ones are not counted.
const POLLERS_MAX: usize = 200_000;

/// Reports under way at a time.
const REPORTS_CONCURRENCY: usize = 16;

/// Who looks at what.
#[derive(Debug)]
pub(crate) struct Viewers {
    pods: Pods,
    here: Mutex<LocalViewers>,
}

/// Who looks on this pod.
#[derive(Debug)]
struct LocalViewers {
    /// When the pollers of all events were last made the older ones.
    turned: Instant,
    pollers: usize,
    events: HashMap<EventId, EventViewers>,
}

/// Who looks at one event on this pod. An entry is among the newer or the older pollers, never both.
#[derive(Debug, Default)]
struct EventViewers {
    newer: HashSet<EntryId>,
    older: HashSet<EntryId>,
    streams: u64,
    lag: Duration,
}

impl Viewers {
    /// Nobody yet; reports go to `pods`.
    pub(crate) fn new(pods: Pods) -> Self {
        Self { pods, here: Mutex::new(LocalViewers::new(Instant::now())) }
    }

    /// A customer without a stream asked about their entry.
    pub(crate) fn record_poll(&self, event_id: EventId, entry_id: EntryId) {
        lock(&self.here).record_poll(event_id, entry_id, Instant::now());
    }

    /// How many streams of the event are open on this pod, and how far behind they are fed.
    pub(crate) fn set_streams(&self, event_id: EventId, count: u64, lag: Duration) {
        lock(&self.here).set_streams(event_id, count, lag);
    }

    /// Who looks at the event, on all pods. What this pod has is of now; what others have, as of their last report. Without
    /// Redis it is what this pod has.
    pub(crate) async fn of(&self, event_id: EventId) -> ViewerReport {
        let others = match self.pods.others(event_id).await {
            Ok(others) => others,
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "viewers of other pods are not known");
                ViewerReport::default()
            }
        };
        lock(&self.here).share(event_id, Instant::now()).and(others)
    }

    /// Reports what this pod has to the others.
    pub(crate) async fn report(&self) -> Result<(), Error> {
        let shares = lock(&self.here).take_shares(Instant::now());
        let reports = stream::iter(shares)
            .map(|(event_id, share)| async move { self.pods.report(event_id, share).await })
            .buffer_unordered(REPORTS_CONCURRENCY);
        // One that cannot be made keeps no other from it; old ones are not made up for.
        let failed = reports.filter_map(|reported| std::future::ready(reported.err())).collect::<Vec<_>>();
        failed.await.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl LocalViewers {
    fn new(now: Instant) -> Self {
        Self { turned: now, pollers: 0, events: HashMap::new() }
    }

    fn record_poll(&mut self, event_id: EventId, entry_id: EntryId, now: Instant) {
        self.turn(now);
        let audience = self.events.entry(event_id).or_default();
        let is_known = audience.newer.contains(&entry_id) || audience.older.remove(&entry_id);
        if is_known {
            audience.newer.insert(entry_id);
        } else if self.pollers < POLLERS_MAX {
            audience.newer.insert(entry_id);
            self.pollers = self.pollers.saturating_add(1);
        }
    }

    fn set_streams(&mut self, event_id: EventId, count: u64, lag: Duration) {
        let audience = self.events.entry(event_id).or_default();
        (audience.streams, audience.lag) = (count, lag);
    }

    fn share(&mut self, event_id: EventId, now: Instant) -> ViewerReport {
        self.turn(now);
        self.events.get(&event_id).map(EventViewers::share).unwrap_or_default()
    }

    /// What there is to report. An event that nobody looks at any more is in it once, and then forgotten.
    fn take_shares(&mut self, now: Instant) -> Vec<(EventId, ViewerReport)> {
        self.turn(now);
        let shares = self.events.iter().map(|(event_id, audience)| (*event_id, audience.share())).collect();
        self.events.retain(|_, audience| audience.share() != ViewerReport::default());
        shares
    }

    /// Forgets who has not polled for long.
    fn turn(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.turned);
        if span < HALF_SPAN {
            return;
        }
        self.turned = now;
        self.pollers = 0;
        for audience in self.events.values_mut() {
            audience.older = std::mem::take(&mut audience.newer);
            if span >= HALF_SPAN * 2 {
                audience.older.clear();
            }
            self.pollers = self.pollers.saturating_add(audience.older.len());
        }
    }
}

impl EventViewers {
    fn share(&self) -> ViewerReport {
        let pollers = u64::try_from(self.newer.len().saturating_add(self.older.len())).unwrap_or(u64::MAX);
        ViewerReport { viewers: self.streams.saturating_add(pollers), lag: self.lag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_polls_counts_once_and_for_as_long_as_they_poll() {
        let start = Instant::now();
        let mut here = LocalViewers::new(start);
        let (event, entry, other) = (EventId::generate(), EntryId::generate(), EntryId::generate());
        for seconds in [0, 1, 29, 59, 89] {
            here.record_poll(event, entry, start + Duration::from_secs(seconds));
            assert_eq!(here.share(event, start + Duration::from_secs(seconds)).viewers, 1);
        }
        here.record_poll(event, other, start + Duration::from_secs(90));
        assert_eq!(here.share(event, start + Duration::from_secs(91)).viewers, 2);
        assert_eq!(here.share(event, start + Duration::from_secs(119)).viewers, 2);
        assert_eq!(here.share(event, start + Duration::from_secs(200)).viewers, 0);
        assert_eq!(here.share(EventId::generate(), start).viewers, 0);
    }

    #[test]
    fn streams_count_beside_pollers_and_an_event_without_either_is_reported_once_more() {
        let start = Instant::now();
        let mut here = LocalViewers::new(start);
        let event = EventId::generate();
        here.record_poll(event, EntryId::generate(), start);
        here.set_streams(event, 3, Duration::from_millis(7));
        let share = ViewerReport { viewers: 4, lag: Duration::from_millis(7) };
        assert_eq!(here.take_shares(start), vec![(event, share)]);
        assert_eq!(here.take_shares(start), vec![(event, share)]);
        here.set_streams(event, 0, Duration::ZERO);
        let later = start + HALF_SPAN * 2;
        assert_eq!(here.take_shares(later), vec![(event, ViewerReport::default())]);
        assert_eq!(here.take_shares(later), Vec::new());
    }

    #[test]
    fn pollers_beyond_the_bound_are_not_remembered_until_others_are_forgotten() {
        let start = Instant::now();
        let mut here = LocalViewers::new(start);
        let event = EventId::generate();
        for _ in 0..POLLERS_MAX + 5 {
            here.record_poll(event, EntryId::generate(), start);
        }
        assert_eq!(here.share(event, start).viewers, u64::try_from(POLLERS_MAX).unwrap());
        let later = start + HALF_SPAN * 2;
        here.record_poll(event, EntryId::generate(), later);
        assert_eq!(here.share(event, later).viewers, 1);
    }
}
