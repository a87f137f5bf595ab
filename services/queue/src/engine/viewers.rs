//! Viewers of an event: each pod counts its own and reports them to the other pods, and a reader sums them up. A report also
//! has the lag of the pod's replica of the line.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_types::{EntryId, EventId};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{domain::stats::ViewerReport, error::Error, store::pods::Pods};

/// A customer counts as a viewer for one to two of these spans after a poll. Customers who poll as told always count.
const HALF_SPAN: Duration = Duration::from_secs(30);

/// Largest number of pollers on this pod; further ones are not counted.
const POLLERS_MAX: usize = 200_000;

/// Reports written at a time.
const REPORTS_CONCURRENCY: usize = 16;

/// Viewers of all events.
#[derive(Debug)]
pub(crate) struct Viewers {
    pods: Pods,
    local: Mutex<LocalViewers>,
}

/// Viewers on this pod.
#[derive(Debug)]
struct LocalViewers {
    /// Time at which the newer pollers of all events last became the older ones.
    rotated: Instant,
    pollers: usize,
    events: HashMap<EventId, EventViewers>,
}

/// Viewers of one event on this pod. An entry is among the newer or the older pollers, never both.
#[derive(Debug, Default)]
struct EventViewers {
    newer: HashSet<EntryId>,
    older: HashSet<EntryId>,
    streams: u64,
    lag: Duration,
}

impl Viewers {
    /// Returns an empty count that is reported through `pods`.
    pub(crate) fn new(pods: Pods) -> Self {
        Self { pods, local: Mutex::new(LocalViewers::new(Instant::now())) }
    }

    /// Records a poll of a customer without a stream.
    pub(crate) fn record_poll(&self, event_id: EventId, entry_id: EntryId) {
        self.local.lock().record_poll(event_id, entry_id, Instant::now());
    }

    /// Sets the number of open streams of the event on this pod, and the lag of its replica of the line.
    pub(crate) fn set_streams(&self, event_id: EventId, count: u64, lag: Duration) {
        self.local.lock().set_streams(event_id, count, lag);
    }

    /// Counts the viewers of the event: those of this pod now, and those of the other pods as of their last reports. Without
    /// Redis only those of this pod count.
    pub(crate) async fn count(&self, event_id: EventId) -> ViewerReport {
        let others = match self.pods.others(event_id).await {
            Ok(others) => others,
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to read viewers of other pods, counting this pod only");
                ViewerReport::default()
            }
        };
        self.local.lock().report(event_id, Instant::now()).and(others)
    }

    /// Writes the reports of this pod.
    pub(crate) async fn report(&self) -> Result<(), Error> {
        let reports = self.local.lock().take_reports(Instant::now());
        let reports = stream::iter(reports)
            .map(|(event_id, report)| async move { self.pods.report(event_id, report).await })
            .buffer_unordered(REPORTS_CONCURRENCY);
        // A failed report must not stop the others. It is not repeated; the next round writes a newer one.
        let failed = reports.filter_map(|reported| std::future::ready(reported.err())).collect::<Vec<_>>();
        failed.await.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl LocalViewers {
    fn new(now: Instant) -> Self {
        Self { rotated: now, pollers: 0, events: HashMap::new() }
    }

    fn record_poll(&mut self, event_id: EventId, entry_id: EntryId, now: Instant) {
        self.rotate(now);
        let viewers = self.events.entry(event_id).or_default();
        let is_known = viewers.newer.contains(&entry_id) || viewers.older.remove(&entry_id);
        if is_known {
            viewers.newer.insert(entry_id);
        } else if self.pollers < POLLERS_MAX {
            viewers.newer.insert(entry_id);
            self.pollers = self.pollers.saturating_add(1);
        }
    }

    fn set_streams(&mut self, event_id: EventId, count: u64, lag: Duration) {
        let viewers = self.events.entry(event_id).or_default();
        (viewers.streams, viewers.lag) = (count, lag);
    }

    fn report(&mut self, event_id: EventId, now: Instant) -> ViewerReport {
        self.rotate(now);
        self.events.get(&event_id).map(EventViewers::report).unwrap_or_default()
    }

    /// Returns the reports to write. An event without viewers is reported once more and then removed.
    fn take_reports(&mut self, now: Instant) -> Vec<(EventId, ViewerReport)> {
        self.rotate(now);
        let reports = self.events.iter().map(|(event_id, viewers)| (*event_id, viewers.report())).collect();
        self.events.retain(|_, viewers| viewers.report() != ViewerReport::default());
        reports
    }

    /// Removes pollers whose last poll is one to two half spans old.
    fn rotate(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.rotated);
        if span < HALF_SPAN {
            return;
        }
        self.rotated = now;
        self.pollers = 0;
        for viewers in self.events.values_mut() {
            viewers.older = std::mem::take(&mut viewers.newer);
            if span >= HALF_SPAN * 2 {
                viewers.older.clear();
            }
            self.pollers = self.pollers.saturating_add(viewers.older.len());
        }
    }
}

impl EventViewers {
    fn report(&self) -> ViewerReport {
        let pollers = u64::try_from(self.newer.len().saturating_add(self.older.len())).unwrap_or(u64::MAX);
        ViewerReport { viewers: self.streams.saturating_add(pollers), lag: self.lag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poller_counts_as_one_viewer_until_it_stops_polling() {
        let start = Instant::now();
        let mut local = LocalViewers::new(start);
        let (event, entry, other) = (EventId::generate(), EntryId::generate(), EntryId::generate());
        for seconds in [0, 1, 29, 59, 89] {
            local.record_poll(event, entry, start + Duration::from_secs(seconds));
            assert_eq!(local.report(event, start + Duration::from_secs(seconds)).viewers, 1);
        }
        local.record_poll(event, other, start + Duration::from_secs(90));
        assert_eq!(local.report(event, start + Duration::from_secs(91)).viewers, 2);
        assert_eq!(local.report(event, start + Duration::from_secs(119)).viewers, 2);
        assert_eq!(local.report(event, start + Duration::from_secs(200)).viewers, 0);
        assert_eq!(local.report(EventId::generate(), start).viewers, 0);
    }

    #[test]
    fn event_without_viewers_is_reported_once_more() {
        let start = Instant::now();
        let mut local = LocalViewers::new(start);
        let event = EventId::generate();
        local.record_poll(event, EntryId::generate(), start);
        local.set_streams(event, 3, Duration::from_millis(7));
        let report = ViewerReport { viewers: 4, lag: Duration::from_millis(7) };
        assert_eq!(local.take_reports(start), vec![(event, report)]);
        assert_eq!(local.take_reports(start), vec![(event, report)]);
        local.set_streams(event, 0, Duration::ZERO);
        let later = start + HALF_SPAN * 2;
        assert_eq!(local.take_reports(later), vec![(event, ViewerReport::default())]);
        assert_eq!(local.take_reports(later), Vec::new());
    }

    #[test]
    fn pollers_beyond_the_bound_do_not_count() {
        let start = Instant::now();
        let mut local = LocalViewers::new(start);
        let event = EventId::generate();
        for _ in 0..POLLERS_MAX + 5 {
            local.record_poll(event, EntryId::generate(), start);
        }
        assert_eq!(local.report(event, start).viewers, u64::try_from(POLLERS_MAX).unwrap());
        let later = start + HALF_SPAN * 2;
        local.record_poll(event, EntryId::generate(), later);
        assert_eq!(local.report(event, later).viewers, 1);
    }
}
