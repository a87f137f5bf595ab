//! The public facts of a queue. Anybody may ask, so an answer serves everybody who asks within a moment.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use onsale_types::EventId;
use tokio::time::Instant;

use super::{App, lock};
use crate::{
    error::Error,
    store::queues::{self, QueueAndLine},
};

/// How long an answer serves.
const FRESH: Duration = Duration::from_secs(1);

/// Answers kept; beyond, all are forgotten.
const KEPT_MAX: usize = 10_000;

/// When it is worth asking again.
const NEXT_POLL_AFTER: Duration = Duration::from_secs(5);

/// Answers of the last moment.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache {
    kept: Mutex<HashMap<EventId, (Instant, Arc<PublicSnapshot>)>>,
}

/// The public facts of a queue.
#[derive(Clone, Debug)]
pub(crate) struct PublicSnapshot {
    /// The queue and its line.
    pub(crate) current: QueueAndLine,
    /// Who looks at the event, on all pods.
    pub(crate) viewer_count: u64,
    /// Turns granted within the last minute.
    pub(crate) admitted_last_minute: u64,
    /// When to ask again.
    pub(crate) next_poll_after: Duration,
}

impl App {
    /// The public facts of a queue.
    pub(crate) async fn snapshot(&self, event_id: EventId) -> Result<Arc<PublicSnapshot>, Error> {
        let kept = lock(&self.snapshots.kept).get(&event_id).cloned();
        if let Some((taken, snapshot)) = kept
            && taken.elapsed() < FRESH
        {
            return Ok(snapshot);
        }
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let admitted_last_minute = queues::admitted_lately(&self.stores.postgres, event_id).await?;
        let viewer_count = self.viewers.of(event_id).await.viewers;
        let snapshot = Arc::new(PublicSnapshot {
            current,
            viewer_count,
            admitted_last_minute,
            next_poll_after: NEXT_POLL_AFTER,
        });
        let mut kept = lock(&self.snapshots.kept);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(event_id, (Instant::now(), Arc::clone(&snapshot)));
        Ok(snapshot)
    }
}
