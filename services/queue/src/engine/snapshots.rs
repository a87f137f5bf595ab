//! Cache of public snapshots. Anybody may read a queue, so one snapshot serves every request within a second.

use std::{sync::Arc, time::Duration};

use onsale_types::EventId;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::Engine;
use crate::{domain::snapshot::PublicSnapshot, error::Error, store::queues};

/// Time for which a snapshot is served.
const FRESH: Duration = Duration::from_secs(1);

/// Largest number of cached snapshots.
const CACHED_MAX: usize = 10_000;

/// Time that a client should wait before it reads the next snapshot.
const NEXT_POLL_AFTER: Duration = Duration::from_secs(5);

/// Snapshots of the last second, with the time at which they were taken.
#[derive(Debug)]
pub(crate) struct SnapshotCache(Cache<EventId, (Instant, Arc<PublicSnapshot>)>);

impl Default for SnapshotCache {
    fn default() -> Self {
        Self(Cache::new(CACHED_MAX))
    }
}

impl Engine {
    /// Returns the public snapshot of a queue, at most one second old.
    pub(crate) async fn snapshot(&self, event_id: EventId) -> Result<Arc<PublicSnapshot>, Error> {
        if let Some((taken, snapshot)) = self.snapshots.0.get(&event_id)
            && taken.elapsed() < FRESH
        {
            return Ok(snapshot);
        }
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let admitted_last_minute = queues::admitted_last_minute(&self.stores.postgres, event_id).await?;
        let viewer_count = self.viewers.count(event_id).await.viewers;
        let snapshot = Arc::new(PublicSnapshot {
            current,
            viewer_count,
            admitted_last_minute,
            next_poll_after: NEXT_POLL_AFTER,
        });
        self.snapshots.0.insert(event_id, (Instant::now(), Arc::clone(&snapshot)));
        Ok(snapshot)
    }
}
