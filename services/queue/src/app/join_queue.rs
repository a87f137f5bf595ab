//! `JoinQueue`: grpc → app (batch per shard) → store::lines (lock, find) → domain::join → store::lines (append) →
//! engine::publish → store::ranks.
//!
//! Joins that arrive together share the lock of the line and one transaction. An event belongs to one shard, whose batches
//! run one after the other: the lock would serialize them anyway, and the order of arrival is kept.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use onsale_kit::batcher::{BatchOutcome, Batcher, BatcherConfig, Processor};
use onsale_storage::postgres::{self, Transaction};
use onsale_types::{EntryId, EventId};

use super::App;
use crate::{
    config::JoinConfig,
    domain::{
        entry::{Entry, EntryState},
        entry_view::EntryView,
        join::{self, JoinDecisions, JoinRequest, Joined},
        policy::QueueMode,
        queue::QueueAndLine,
        queue_change::QueueChange,
        refusal::Refusal,
    },
    engine::Engine,
    error::Error,
    metrics,
    store::lines,
};

/// The unique index on customer and request id.
const REQUEST_INDEX: &str = "entry_request";

/// Events of one batch that are joined at a time, so that a batch with many events does not take every connection.
const EVENTS_CONCURRENCY: usize = 4;

/// The batchers of joins, one per shard.
#[derive(Debug)]
pub(crate) struct JoinBatcher {
    shards: Vec<Batcher<JoinRequest, EntryView, Error>>,
}

struct JoinProcessor {
    engine: Arc<Engine>,
}

impl App {
    /// Puts the customer in line, or returns the entry they have.
    pub(crate) async fn join_queue(&self, request: JoinRequest) -> Result<Joined, Error> {
        let view = self.joins.submit(request).await?;
        // Signed here, so that the shard can begin its next batch.
        let queue_token = self.engine.tokens.queue_token(&view.entry)?;
        Ok(Joined { view, queue_token })
    }
}

impl JoinBatcher {
    /// Starts as many batchers as `config` has lanes.
    pub(crate) fn new(engine: &Arc<Engine>, config: &JoinConfig) -> Self {
        let batcher = BatcherConfig {
            queue_max: config.queue_max,
            batch_max: config.batch_max,
            linger_max: config.linger,
            concurrency: 1,
            ..BatcherConfig::default()
        };
        let shard = || {
            let processor = JoinProcessor { engine: Arc::clone(engine) };
            Batcher::new("join", batcher, processor, &engine.tasks)
        };
        Self { shards: std::iter::repeat_with(shard).take(config.lanes.max(1)).collect() }
    }

    async fn submit(&self, request: JoinRequest) -> Result<EntryView, Error> {
        let mut hasher = DefaultHasher::new();
        request.event_id.hash(&mut hasher);
        let shards = u64::try_from(self.shards.len()).unwrap_or(1).max(1);
        let index = usize::try_from(hasher.finish() % shards).unwrap_or(0);
        let Some(shard) = self.shards.get(index) else { return Err(Error::Unreadable { what: "shard" }) };
        Ok(shard.submit(request).await?)
    }
}

impl Processor<JoinRequest> for JoinProcessor {
    type Output = EntryView;
    type Error = Error;

    async fn process(&self, items: &[JoinRequest]) -> BatchOutcome<EntryView, Error> {
        let mut events: BTreeMap<EventId, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            events.entry(item.event_id).or_default().push(index);
        }
        let groups = events.into_iter().map(|(event_id, indexes)| async move {
            let group: Vec<&JoinRequest> = indexes.iter().filter_map(|index| items.get(*index)).collect();
            let answers = self.join_event(event_id, &group).await;
            indexes.into_iter().zip(answers).collect::<Vec<_>>()
        });
        let mut answers: Vec<_> =
            stream::iter(groups).buffer_unordered(EVENTS_CONCURRENCY).flat_map(stream::iter).collect().await;
        answers.sort_by_key(|(index, _)| *index);
        BatchOutcome::Answered(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

impl JoinProcessor {
    /// Joins customers to one event in one transaction; returns an answer for each request.
    async fn join_event(
        &self,
        event_id: EventId,
        requests: &[&JoinRequest],
    ) -> Vec<Result<EntryView, Error>> {
        let work =
            |transaction: Transaction| async move { self.join_in(&transaction, event_id, requests).await };
        let failure = match self.engine.stores.postgres.transaction("join", work).await {
            Ok((current, decisions)) => {
                let answers = self.publish_and_answer(&current, decisions).await;
                // The entries are committed: a repeat of a request returns the same entry.
                return answers.unwrap_or_else(|error| share(error, requests.len()));
            }
            Err(error) => error,
        };
        // Nothing was committed, and a single request may be the cause: the others are tried without it.
        if let (true, Some((first, second))) = (is_suspect(&failure), halves(requests)) {
            let mut answers = Box::pin(self.join_event(event_id, first)).await;
            answers.extend(Box::pin(self.join_event(event_id, second)).await);
            return answers;
        }
        if let Error::Postgres(error) = &failure
            && error.conflict() == Some(REQUEST_INDEX)
        {
            return requests.iter().map(|_| Err(Refusal::RequestIdReused.into())).collect();
        }
        share(failure, requests.len())
    }

    async fn join_in(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        requests: &[&JoinRequest],
    ) -> Result<(QueueAndLine, JoinDecisions), Error> {
        let mut current = lines::lock(transaction, event_id, &self.engine.defaults).await?;
        let mode = current.queue.policy.mode;
        let facts = lines::find_joins(transaction, event_id, mode, requests).await?;
        let before = current.line;
        let decisions = join::decide(&mut current, requests, facts);
        if decisions.joined_count > 0 {
            let (after, now) = (&current.line, current.now);
            lines::append(transaction, event_id, &before, after, &decisions.new_entries, now).await?;
        }
        Ok((current, decisions))
    }

    /// Publishes the new entries after the commit, and returns the view of every entry.
    async fn publish_and_answer(
        &self,
        current: &QueueAndLine,
        decisions: JoinDecisions,
    ) -> Result<Vec<Result<EntryView, Error>>, Error> {
        let JoinDecisions { answers, joined_count, new_entries } = decisions;
        let (mode, line) = (current.queue.policy.mode, &current.line);
        let first_seq = line.last_seq.saturating_sub(joined_count).saturating_add(1);
        if joined_count > 0 {
            metrics::joined(joined_count);
            let joined = new_entries.iter().map(|entry| entry.entry_id).zip(first_seq..).collect();
            self.engine.publish_in_background(QueueChange::joined(current, joined));
        }
        let known = match mode {
            QueueMode::Tracked => self.known_positions(current, &answers, first_seq).await?,
            QueueMode::Windowed => HashMap::new(),
        };
        let view = |entry: Entry| {
            let is_new = entry.seq >= first_seq;
            let position = match mode {
                QueueMode::Windowed => Some(entry.seq.saturating_sub(line.last_admitted_seq)),
                // New entries are at the end of the line, in the order of their numbers.
                QueueMode::Tracked if is_new => {
                    Some(line.waiting_count.saturating_sub(line.last_seq.saturating_sub(entry.seq)))
                }
                QueueMode::Tracked => known.get(&entry.seq).copied(),
            };
            // A new entry gets its first heartbeat when it is added to Redis.
            if mode == QueueMode::Tracked && !is_new {
                self.engine.heartbeats.record(&entry);
            }
            self.engine.entry_view(current, entry, position)
        };
        Ok(answers.into_iter().map(|answer| view(answer?)).collect())
    }

    /// Looks up the positions of entries that waited before this batch, by number in line.
    async fn known_positions(
        &self,
        current: &QueueAndLine,
        answers: &[Result<Entry, Refusal>],
        first_seq: u64,
    ) -> Result<HashMap<u64, u64>, Error> {
        let known: Vec<(EntryId, u64)> = answers
            .iter()
            .flatten()
            .filter(|entry| entry.state == EntryState::Waiting && entry.seq < first_seq)
            .map(|entry| (entry.entry_id, entry.seq))
            .collect();
        if known.is_empty() {
            return Ok(HashMap::new());
        }
        let (event_id, revision) = (current.queue.event_id, current.line.revision);
        let positions = self.engine.positions.find(event_id, &known, revision).await?;
        Ok(known
            .into_iter()
            .zip(positions)
            .filter_map(|((_, seq), position)| Some((seq, position?)))
            .collect())
    }
}

/// Returns true if nothing was committed and a single request may be the cause.
fn is_suspect(error: &Error) -> bool {
    matches!(error, Error::Postgres(postgres::Error::Query { .. } | postgres::Error::Conflict { .. }))
}

/// Splits a batch of at least two requests.
fn halves<'a, 'b>(requests: &'a [&'b JoinRequest]) -> Option<(&'a [&'b JoinRequest], &'a [&'b JoinRequest])> {
    (requests.len() > 1).then(|| requests.split_at(requests.len() / 2))
}

/// Answers each of `count` requests with the same failure.
fn share(failure: Error, count: usize) -> Vec<Result<EntryView, Error>> {
    let failure = Arc::new(failure);
    std::iter::repeat_with(|| Err(Error::Shared(Arc::clone(&failure)))).take(count).collect()
}
