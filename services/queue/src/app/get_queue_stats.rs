//! `GetQueueStats`: grpc → app → store::queues → store::stats → engine::viewers. The numbers of a queue are computed at most
//! about once a second per pod, however many organizers ask.

use std::{sync::Arc, time::Duration};

use futures_util::future;
use onsale_types::{EventId, OrganizerId};
use quick_cache::sync::Cache;
use tokio::{sync::Mutex, time::Instant};

use super::App;
use crate::{
    domain::stats::QueueStats,
    error::Error,
    store::{queues, stats},
};

/// Time for which numbers are served. Just under 1 s, so that a caller who asks every second gets new ones.
const FRESH: Duration = Duration::from_millis(900);

/// Largest number of queues whose numbers are cached.
const CACHED_MAX: usize = 10_000;

/// The numbers of queues of the last second.
pub(crate) struct StatsCache(Cache<EventId, Arc<CachedStats>>);

/// The numbers of a queue and the time at which they were computed. Locked meanwhile, so that further callers wait for the
/// same numbers.
type CachedStats = Mutex<Option<(Instant, Arc<QueueStats>)>>;

impl Default for StatsCache {
    fn default() -> Self {
        Self(Cache::new(CACHED_MAX))
    }
}

impl StatsCache {
    fn of(&self, event_id: EventId) -> Arc<CachedStats> {
        let created =
            self.0.get_or_insert_with(&event_id, || Ok::<_, std::convert::Infallible>(Arc::default()));
        match created {
            Ok(cached) => cached,
            Err(never) => match never {},
        }
    }
}

impl App {
    /// Returns the live numbers of a queue of the organizer's.
    pub(crate) async fn get_queue_stats(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
    ) -> Result<Arc<QueueStats>, Error> {
        let cached = self.stats.of(event_id);
        let mut cached = cached.lock().await;
        if let Some((taken, stats)) = cached.as_ref()
            && taken.elapsed() < FRESH
        {
            stats.current.queue.check_owner(organizer_id)?;
            return Ok(Arc::clone(stats));
        }
        let engine = &self.engine;
        let current = queues::read(&engine.stores.postgres, event_id, &engine.defaults).await?;
        // Checked first: another organizer's request must not cost the statements below.
        current.queue.check_owner(organizer_id)?;
        let recent = stats::recent(&engine.stores.postgres, event_id);
        let (recent, viewers) = future::join(recent, engine.viewers.count(event_id)).await;
        let stats = Arc::new(QueueStats { current, recent: recent?, viewers });
        *cached = Some((Instant::now(), Arc::clone(&stats)));
        Ok(stats)
    }
}
