//! Positions in line: from this pod's replica of the line if there is one; else from Redis if it has every waiting entry;
//! else counted in Postgres.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use onsale_kit::{
    batcher::{BatchOutcome, Processor},
    error::Chain,
};
use onsale_storage::postgres::Postgres;
use onsale_types::{EntryId, EventId};

use super::{reconcile::ReconcileRequests, replicas::LineReplicas};
use crate::{
    domain::queue_change::WaitingChange,
    error::Error,
    metrics,
    store::{entries, ranks::Ranks},
};

/// Positions read from Redis by one call.
const CHUNK: usize = 1_000;

/// Looks up positions.
#[derive(Debug)]
pub(crate) struct PositionLookup {
    postgres: Postgres,
    ranks: Ranks,
    reconcile_requests: Arc<ReconcileRequests>,
    replicas: Arc<LineReplicas>,
}

/// A question for the position of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PositionQuery {
    pub(crate) event_id: EventId,
    pub(crate) entry_id: EntryId,
    /// Number of the entry in line.
    pub(crate) seq: u64,
    /// Revision of the line at which the entry waited.
    pub(crate) revision: u64,
}

/// Answers the position queries of a batch with one lookup per event: without Redis, one count of a line serves all of them.
pub(crate) struct PositionProcessor(pub(crate) Arc<PositionLookup>);

impl PositionLookup {
    /// Returns a lookup that requests a reconciliation of each line that is wrong in Redis.
    pub(crate) fn new(
        postgres: Postgres,
        ranks: Ranks,
        reconcile_requests: Arc<ReconcileRequests>,
        replicas: Arc<LineReplicas>,
    ) -> Self {
        Self { postgres, ranks, reconcile_requests, replicas }
    }

    /// Returns the positions of entries, given with their numbers, at `revision` or later. `None` for an entry that does not
    /// wait.
    pub(crate) async fn find(
        &self,
        event_id: EventId,
        entries: &[(EntryId, u64)],
        revision: u64,
    ) -> Result<Vec<Option<u64>>, Error> {
        if let Some(replica) = self.replicas.get(event_id) {
            let seqs: Vec<u64> = entries.iter().map(|(_, seq)| *seq).collect();
            if let Some(positions) = replica.positions(&seqs, revision) {
                return Ok(positions);
            }
        }
        let mut positions = Vec::with_capacity(entries.len());
        for chunk in entries.chunks(CHUNK) {
            positions.extend(self.find_in_stores(event_id, chunk).await?);
        }
        Ok(positions)
    }

    async fn find_in_stores(
        &self,
        event_id: EventId,
        entries: &[(EntryId, u64)],
    ) -> Result<Vec<Option<u64>>, Error> {
        let ids: Vec<EntryId> = entries.iter().map(|(entry_id, _)| *entry_id).collect();
        let in_redis = match self.ranks.positions(event_id, &ids).await {
            Ok(positions) => positions.filter(|positions| positions.len() == entries.len()),
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to read positions from redis, counting them in postgres");
                None
            }
        };
        let is_loaded = in_redis.is_some();
        let known = in_redis.unwrap_or_else(|| vec![None; entries.len()]);
        let missing: Vec<u64> = known
            .iter()
            .zip(entries)
            .filter(|(position, _)| position.is_none())
            .map(|(_, (_, seq))| *seq)
            .collect();
        if missing.is_empty() {
            return Ok(known);
        }
        let counted: HashMap<u64, u64> =
            entries::positions(&self.postgres, event_id, &missing).await?.into_iter().collect();
        if !counted.is_empty() {
            // These entries wait although Redis does not have them.
            metrics::counted_in_postgres(counted.len());
            if is_loaded {
                self.add_to_redis(event_id, entries, &counted).await;
            }
            self.reconcile_requests.request(event_id);
        }
        let positions = known.into_iter().zip(entries);
        Ok(positions.map(|(known, (_, seq))| known.or_else(|| counted.get(seq).copied())).collect())
    }

    /// Adds waiting entries that Redis lost although it counts as loaded. Reconciliation skips a long line whose counts are
    /// right, and an entry that Redis has too many makes up for a lost one in the count.
    async fn add_to_redis(&self, event_id: EventId, entries: &[(EntryId, u64)], counted: &HashMap<u64, u64>) {
        let waits = |(_, seq): &&(EntryId, u64)| counted.contains_key(seq);
        let joined = entries.iter().filter(waits).copied().collect();
        let change = WaitingChange { joined, ..WaitingChange::default() };
        if let Err(error) = self.ranks.apply(event_id, &change, None).await {
            tracing::debug!(%event_id, error = %Chain(&error), "failed to add lost entries to redis, reconciling the line");
        }
    }
}

impl Processor<PositionQuery> for PositionProcessor {
    type Output = Option<u64>;
    type Error = Error;

    async fn process(&self, items: &[PositionQuery]) -> BatchOutcome<Option<u64>, Error> {
        let mut events: BTreeMap<EventId, (Vec<(EntryId, u64)>, u64)> = BTreeMap::new();
        for item in items {
            let (entries, revision) = events.entry(item.event_id).or_default();
            entries.push((item.entry_id, item.seq));
            *revision = item.revision.max(*revision);
        }
        let mut found = HashMap::new();
        for (event_id, (entries, revision)) in events {
            match self.0.find(event_id, &entries, revision).await {
                Ok(positions) => found.extend(entries.iter().map(|(entry_id, _)| *entry_id).zip(positions)),
                Err(error) => return BatchOutcome::Failed(error),
            }
        }
        let answer = |item: &PositionQuery| Ok(found.get(&item.entry_id).copied().flatten());
        BatchOutcome::Answered(items.iter().map(answer).collect())
    }
}
