//! An organizer's live numbers. Taken at most once a second per queue, whoever asks, however many at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{Stream, StreamExt, future, stream};
use onsale_types::{EventId, OrganizerId};
use tokio::time::{Instant, sleep};

use super::{App, lock};
use crate::{
    error::Error,
    store::{
        pods::ViewerReport,
        queues::{self, QueueAndLine},
        stats::{self, RecentActivity},
    },
};

/// How long numbers serve: a little less than a second, so that who asks every second gets new ones.
const FRESH: Duration = Duration::from_millis(900);

/// Queues whose numbers are kept; beyond, all are forgotten.
const KEPT_MAX: usize = 10_000;

/// Numbers of the last moment.
#[derive(Debug, Default)]
pub(crate) struct StatsCache {
    kept: Mutex<HashMap<EventId, Arc<Kept>>>,
}

/// A queue's numbers and when they were taken. Locked while they are: who asks meanwhile gets the same ones.
type Kept = tokio::sync::Mutex<Option<(Instant, Arc<QueueStats>)>>;

/// The live numbers of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueStats {
    /// The queue and its counters.
    pub(crate) current: QueueAndLine,
    /// What happened lately.
    pub(crate) lately: RecentActivity,
    /// Who looks, and how far pods are behind.
    pub(crate) audience: ViewerReport,
}

impl StatsCache {
    fn of(&self, event_id: EventId) -> Arc<Kept> {
        let mut kept = lock(&self.kept);
        if kept.len() >= KEPT_MAX && !kept.contains_key(&event_id) {
            kept.clear();
        }
        Arc::clone(kept.entry(event_id).or_default())
    }
}

impl App {
    /// The live numbers of a queue of the organizer's.
    pub(crate) async fn stats(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<Arc<QueueStats>, Error> {
        let kept = self.statistics.of(event_id);
        let mut kept = kept.lock().await;
        if let Some((taken, stats)) = kept.as_ref()
            && taken.elapsed() < FRESH
        {
            stats.current.queue.check_owner(organizer_id)?;
            return Ok(Arc::clone(stats));
        }
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        // First: numbers are not taken for a stranger.
        current.queue.check_owner(organizer_id)?;
        let lately = stats::lately(&self.stores.postgres, event_id);
        let (lately, audience) = future::join(lately, self.viewers.of(event_id)).await;
        let stats = Arc::new(QueueStats { current, lately: lately?, audience });
        *kept = Some((Instant::now(), Arc::clone(&stats)));
        Ok(stats)
    }

    /// Streams the live numbers, the first at once, then every `interval`. Nothing is kept for a slow reader.
    pub(crate) async fn watch_stats(
        self: &Arc<Self>,
        organizer_id: OrganizerId,
        event_id: EventId,
        interval: Duration,
    ) -> Result<impl Stream<Item = Result<Arc<QueueStats>, Error>> + Send + use<>, Error> {
        let first = self.stats(organizer_id, event_id).await?;
        let next = stream::try_unfold(Arc::clone(self), move |app| async move {
            sleep(interval).await;
            let stats = app.stats(organizer_id, event_id).await?;
            Ok(Some((stats, app)))
        });
        Ok(stream::once(future::ready(Ok(first))).chain(next))
    }
}
