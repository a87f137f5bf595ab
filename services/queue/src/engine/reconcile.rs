//! Reconciles lines in Redis with Postgres, after a wipe, a failover or a lost write. Lines are compared page by page, so the
//! cost is the same for an empty Redis and for one missing entry. The lock of the line is never taken.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use onsale_kit::error::Chain;
use onsale_types::{EntryId, EventId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Engine;
use crate::{
    domain::queue_change::WaitingChange,
    error::Error,
    metrics,
    store::{entries, queues, ranks::MarkMode},
};

/// Entries compared at a time.
const PAGE: u32 = 2_000;

/// Longest line that every reconciliation compares entry by entry. A longer one is compared only if its counts differ.
const ALWAYS_COMPARED_MAX: u64 = 20_000;

/// Events whose line may be wrong in Redis.
#[derive(Debug, Default)]
pub(crate) struct ReconcileRequests {
    requested: Mutex<HashSet<EventId>>,
    /// Notified by every request.
    pub(crate) notify: Arc<Notify>,
}

impl ReconcileRequests {
    /// Requests a comparison of the event's line.
    pub(crate) fn request(&self, event_id: EventId) {
        self.requested.lock().insert(event_id);
        self.notify.notify_one();
    }

    fn take(&self) -> HashSet<EventId> {
        std::mem::take(&mut *self.requested.lock())
    }
}

impl Engine {
    /// Reconciles the requested lines. A line that fails is requested again; the last failure is returned.
    pub(crate) async fn reconcile_requested(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for event_id in self.reconcile_requests.take() {
            if let Err(error) = self.reconcile_line(event_id).await {
                tracing::warn!(%event_id, error = %Chain(&error), "failed to reconcile a line in redis, retrying after a backoff");
                self.reconcile_requests.request(event_id);
                result = Err(error);
            }
        }
        result
    }

    async fn reconcile_line(&self, event_id: EventId) -> Result<(), Error> {
        let line = queues::read(&self.stores.postgres, event_id, &self.defaults).await?.line;
        let sizes = self.ranks.sizes(event_id).await?;
        let counts_agree = sizes.waiting == line.waiting_count && sizes.seen >= line.waiting_count;
        if sizes.is_loaded && counts_agree && line.waiting_count > ALWAYS_COMPARED_MAX {
            return Ok(());
        }
        let mark = if sizes.is_loaded { None } else { Some(self.ranks.begin_loading(event_id).await?) };
        let corrected = self.compare(event_id, line.last_seq, line.last_admitted_seq).await?;
        if let Some(mark) = mark {
            let is_loaded = self.ranks.finish_loading(event_id, mark).await?;
            tracing::info!(%event_id, entries = corrected, is_loaded, "line loaded into redis");
        } else if corrected > 0 {
            tracing::info!(%event_id, entries = corrected, "line corrected in redis");
        }
        metrics::line_corrected(corrected);
        Ok(())
    }

    /// Compares all numbers up to `last_seq` and returns how many entries were wrong. Customers who join meanwhile get higher
    /// numbers, so an entry that Postgres does not have in this range has ended.
    async fn compare(&self, event_id: EventId, last_seq: u64, last_admitted_seq: u64) -> Result<u64, Error> {
        let (mut after, mut corrected) = (0, 0_u64);
        loop {
            let page = entries::page(&self.stores.postgres, event_id, after, last_seq, PAGE).await?;
            let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
            let upto = page.last().filter(|_| !is_last).map_or(last_seq, |(_, seq)| *seq);
            let known: HashMap<EntryId, u64> =
                self.ranks.page(event_id, after, upto).await?.into_iter().collect();
            let change = difference(&page, &known, last_admitted_seq);
            corrected =
                corrected.saturating_add(u64::try_from(change.joined.len() + change.gone.len()).unwrap_or(0));
            self.ranks.apply(event_id, &change, None).await?;
            let ids: Vec<EntryId> = page.iter().map(|(entry_id, _)| *entry_id).collect();
            if !ids.is_empty() {
                self.ranks.mark(event_id, MarkMode::New, &ids).await?;
            }
            if is_last {
                return Ok(corrected);
            }
            after = upto;
        }
    }
}

/// Returns the change that makes `known`, the entries in Redis, equal to `page`, those in Postgres.
fn difference(
    page: &[(EntryId, u64)],
    known: &HashMap<EntryId, u64>,
    last_admitted_seq: u64,
) -> WaitingChange {
    let waiting: HashSet<EntryId> = page.iter().map(|(entry_id, _)| *entry_id).collect();
    WaitingChange {
        joined: page.iter().filter(|(id, seq)| known.get(id) != Some(seq)).copied().collect(),
        gone: known.keys().filter(|id| !waiting.contains(id)).copied().collect(),
        last_admitted_seq,
    }
}
