//! Makes the line in Redis what it is in Postgres: after a wipe, a failover, a lost write. Compares page by page, so it
//! is the same work for an empty Redis and for one that lacks a single entry; and it never waits for the line's lock.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use onsale_types::{EntryId, EventId};
use tokio::sync::Notify;

use super::{App, lock};
use crate::{
    error::Error,
    metrics,
    store::{
        entries, queues,
        ranks::{MarkMode, WaitingChange},
    },
};

/// Entries compared at a time.
const PAGE: u32 = 2_000;

/// A longer line whose counts agree is not compared entry by entry in every round.
const ALWAYS_COMPARED_MAX: u64 = 20_000;

/// Lines that Redis seems to have wrong.
#[derive(Debug, Default)]
pub(crate) struct ReconcileRequests {
    wanted: Mutex<HashSet<EventId>>,
    wake: Notify,
}

impl ReconcileRequests {
    /// The line of this event is to be compared soon.
    pub(crate) fn want(&self, event_id: EventId) {
        lock(&self.wanted).insert(event_id);
        self.wake.notify_one();
    }

    /// Waits until something is wanted, and takes it.
    pub(crate) async fn wanted(&self) -> Vec<EventId> {
        loop {
            let wanted: Vec<EventId> = lock(&self.wanted).drain().collect();
            if !wanted.is_empty() {
                return wanted;
            }
            self.wake.notified().await;
        }
    }
}

impl App {
    /// Compares every line in which somebody waits.
    pub(crate) async fn reconcile_all(&self) -> Result<(), Error> {
        for event_id in queues::waiting(&self.stores.postgres).await? {
            // By the healing loop, which tries again what fails.
            self.reconcile_requests.want(event_id);
        }
        Ok(())
    }

    /// Compares one line with Postgres and corrects it.
    pub(crate) async fn heal(&self, event_id: EventId) -> Result<(), Error> {
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let sizes = self.ranks.sizes(event_id).await?;
        let counts_agree =
            sizes.waiting == current.line.waiting_count && sizes.seen >= current.line.waiting_count;
        if sizes.is_loaded && counts_agree && current.line.waiting_count > ALWAYS_COMPARED_MAX {
            return Ok(());
        }
        let mark = if sizes.is_loaded { None } else { Some(self.ranks.begin_loading(event_id).await?) };
        let corrected = self.compare(event_id, current.line.last_seq, current.line.last_admitted_seq).await?;
        if let Some(mark) = mark {
            let is_loaded = self.ranks.finish_loading(event_id, mark).await?;
            tracing::info!(%event_id, entries = corrected, is_loaded, "line brought to redis");
        } else if corrected > 0 {
            tracing::info!(%event_id, entries = corrected, "line in redis corrected");
        }
        metrics::healed(corrected);
        Ok(())
    }

    /// Compares all seqs up to `last_seq`; answers how many entries were wrong. Whoever joins meanwhile has a higher one, so
    /// an entry that Postgres does not have here has gone for good.
    async fn compare(&self, event_id: EventId, last_seq: u64, last_admitted_seq: u64) -> Result<u64, Error> {
        let (mut after, mut corrected) = (0, 0_u64);
        loop {
            let page = entries::page(&self.stores.postgres, event_id, after, last_seq, PAGE).await?;
            let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
            let upto = page.last().filter(|_| !is_last).map_or(last_seq, |(_, seq)| *seq);
            let known: HashMap<EntryId, u64> =
                self.ranks.page(event_id, after, upto).await?.into_iter().collect();
            let moved = difference(&page, &known, last_admitted_seq);
            corrected =
                corrected.saturating_add(u64::try_from(moved.joined.len() + moved.gone.len()).unwrap_or(0));
            self.ranks.apply(event_id, &moved, None).await?;
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

/// What makes `known` equal to `page`.
fn difference(
    page: &[(EntryId, u64)],
    known: &HashMap<EntryId, u64>,
    last_admitted_seq: u64,
) -> WaitingChange {
    let truth: HashMap<EntryId, u64> = page.iter().copied().collect();
    WaitingChange {
        joined: page.iter().filter(|(id, seq)| known.get(id) != Some(seq)).copied().collect(),
        gone: known.keys().filter(|id| !truth.contains_key(id)).copied().collect(),
        last_admitted_seq,
    }
}
