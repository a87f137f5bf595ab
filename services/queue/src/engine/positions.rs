//! Positions: from the copy of the line that this pod keeps, if it does; from Redis as long as it knows everybody who
//! waits; else counted in Postgres.

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

use super::{follow::LineReplicas, heal::ReconcileRequests};
use crate::{
    error::Error,
    metrics,
    store::{
        entries,
        ranks::{Ranks, WaitingChange},
    },
};

/// Positions asked of Redis in one call.
const CHUNK: usize = 1_000;

/// Where positions come from.
#[derive(Debug)]
pub(crate) struct PositionLookup {
    postgres: Postgres,
    ranks: Ranks,
    reconcile_requests: Arc<ReconcileRequests>,
    followers: Arc<LineReplicas>,
}

/// A position that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PositionQuery {
    /// In which line.
    pub(crate) event_id: EventId,
    /// Whose.
    pub(crate) entry_id: EntryId,
    /// Its seq.
    pub(crate) seq: u64,
    /// The revision of the line at which it was seen to wait.
    pub(crate) revision: u64,
}

/// Answers positions that are asked for at the same time together: without Redis, one count of the line serves them all.
pub(crate) struct PositionProcessor(pub(crate) Arc<PositionLookup>);

impl PositionLookup {
    /// Positions from the copies of `followers`, from `ranks`, or from `postgres`; what is wrong is told to `healing`.
    pub(crate) fn new(
        postgres: Postgres,
        ranks: Ranks,
        reconcile_requests: Arc<ReconcileRequests>,
        followers: Arc<LineReplicas>,
    ) -> Self {
        Self { postgres, ranks, reconcile_requests, followers }
    }

    /// The positions of entries with their seqs, as they were at `revision` or are since; none for one that does not wait
    /// (any more).
    pub(crate) async fn of(
        &self,
        event_id: EventId,
        asked: &[(EntryId, u64)],
        revision: u64,
    ) -> Result<Vec<Option<u64>>, Error> {
        if let Some(followed) = self.followers.get(event_id) {
            let seqs: Vec<u64> = asked.iter().map(|(_, seq)| *seq).collect();
            if let Some(positions) = followed.positions(&seqs, revision) {
                return Ok(positions);
            }
        }
        let mut positions = Vec::with_capacity(asked.len());
        for chunk in asked.chunks(CHUNK) {
            positions.extend(self.of_chunk(event_id, chunk).await?);
        }
        Ok(positions)
    }

    async fn of_chunk(&self, event_id: EventId, asked: &[(EntryId, u64)]) -> Result<Vec<Option<u64>>, Error> {
        let ids: Vec<EntryId> = asked.iter().map(|(entry_id, _)| *entry_id).collect();
        let answered = match self.ranks.positions(event_id, &ids).await {
            Ok(positions) => positions.filter(|positions| positions.len() == asked.len()),
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "positions are counted in postgres");
                None
            }
        };
        let is_loaded = answered.is_some();
        let known = answered.unwrap_or_else(|| vec![None; asked.len()]);
        let missing: Vec<u64> = known
            .iter()
            .zip(asked)
            .filter(|(position, _)| position.is_none())
            .map(|(_, (_, seq))| *seq)
            .collect();
        if missing.is_empty() {
            return Ok(known);
        }
        let counted: HashMap<u64, u64> =
            entries::positions(&self.postgres, event_id, &missing).await?.into_iter().collect();
        if !counted.is_empty() {
            // They wait, and Redis did not know it.
            metrics::counted_in_postgres(counted.len());
            if is_loaded {
                self.correct(event_id, asked, &counted).await;
            }
            self.reconcile_requests.want(event_id);
        }
        let positions = known.into_iter().zip(asked);
        Ok(positions.map(|(known, (_, seq))| known.or_else(|| counted.get(seq).copied())).collect())
    }

    /// Tells Redis of those who wait although it believes to know everybody. A long line is compared only when its count is
    /// wrong, and one that is there for nothing makes it look right.
    async fn correct(&self, event_id: EventId, asked: &[(EntryId, u64)], counted: &HashMap<u64, u64>) {
        let waits = |(_, seq): &&(EntryId, u64)| counted.contains_key(seq);
        let moved = WaitingChange {
            joined: asked.iter().filter(waits).copied().collect(),
            ..WaitingChange::default()
        };
        if let Err(error) = self.ranks.apply(event_id, &moved, None).await {
            tracing::debug!(%event_id, error = %Chain(&error), "failed to correct the line in redis");
        }
    }
}

impl Processor<PositionQuery> for PositionProcessor {
    type Output = Option<u64>;
    type Error = Error;

    async fn process(&self, items: &[PositionQuery]) -> BatchOutcome<Option<u64>, Error> {
        let mut events: BTreeMap<EventId, (Vec<(EntryId, u64)>, u64)> = BTreeMap::new();
        for item in items {
            let (asked, revision) = events.entry(item.event_id).or_default();
            asked.push((item.entry_id, item.seq));
            *revision = item.revision.max(*revision);
        }
        let mut found = HashMap::new();
        for (event_id, (asked, revision)) in events {
            match self.0.of(event_id, &asked, revision).await {
                Ok(positions) => found.extend(asked.iter().map(|(entry_id, _)| *entry_id).zip(positions)),
                Err(error) => return BatchOutcome::Failed(error),
            }
        }
        let answer = |item: &PositionQuery| Ok(found.get(&item.entry_id).copied().flatten());
        BatchOutcome::Answered(items.iter().map(answer).collect())
    }
}
