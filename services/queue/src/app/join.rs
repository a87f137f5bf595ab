//! Joining: those who arrive together get their places in one transaction, in the order in which they came.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use onsale_kit::{
    batcher::{BatchOutcome, Batcher, BatcherConfig, Processor},
    tasks::Tasks,
};
use onsale_storage::postgres::{self, Transaction};
use onsale_types::{CustomerId, EntryId, EventId, RequestId};
use uuid::Uuid;

use super::{App, standing::Standing, tell::News};
use crate::{
    config::JoinConfig,
    domain::{
        entry::{Entry, EntryState},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
    metrics,
    store::{
        blocked,
        entries::{self, MadeEntry, NewEntry},
        queues::{self, Facts},
    },
};

/// The index that knows which request made which entry.
const REQUEST_INDEX: &str = "entry_request";

/// Events of one batch worked on at a time.
const EVENTS_CONCURRENCY: usize = 4;

/// A customer who wants to join.
#[derive(Clone, Debug)]
pub struct Join {
    /// Which queue.
    pub event_id: EventId,
    /// Who.
    pub customer_id: CustomerId,
    /// The customer's name for this wish.
    pub request_id: RequestId,
    /// What the request says.
    pub fingerprint: Uuid,
    /// What neighbors see as name.
    pub display_name: String,
    /// What neighbors see as picture.
    pub avatar_url: String,
}

/// A customer's place.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Where they stand.
    pub standing: Standing,
    /// The queue token.
    pub queue_token: String,
}

/// Takes joins and hands them over in batches. An event has one lane, in which one batch is worked on at a time: that is
/// what the line's lock would make of it anyway, and it keeps the order of arrival.
#[derive(Debug)]
pub struct Joins {
    app: Arc<App>,
    lanes: Vec<Batcher<Join, Standing, Error>>,
}

struct Lane {
    app: Arc<App>,
}

/// What a transaction of joins came to.
struct Outcome {
    facts: Facts,
    /// Of each item, in order.
    entries: Vec<Result<Entry, Error>>,
    new: Vec<(EntryId, u64)>,
}

impl Joins {
    /// As many lanes as `config` says.
    #[must_use]
    pub fn new(app: &Arc<App>, config: &JoinConfig, tasks: &Tasks) -> Self {
        let batcher = BatcherConfig {
            queue_max: config.queue_max,
            batch_max: config.batch_max,
            linger_max: config.linger,
            concurrency: 1,
            ..BatcherConfig::default()
        };
        let lane = || Batcher::new("join", batcher, Lane { app: Arc::clone(app) }, tasks);
        Self { app: Arc::clone(app), lanes: std::iter::repeat_with(lane).take(config.lanes.max(1)).collect() }
    }

    /// Puts a customer in line, or answers the place they have.
    pub async fn join(&self, join: Join) -> Result<Joined, Error> {
        let mut hasher = DefaultHasher::new();
        join.event_id.hash(&mut hasher);
        let lanes = u64::try_from(self.lanes.len()).unwrap_or(1).max(1);
        let index = usize::try_from(hasher.finish() % lanes).unwrap_or(0);
        let Some(lane) = self.lanes.get(index) else { return Err(Error::Stored { what: "lane" }) };
        let standing = lane.submit(join).await?;
        // Each signs its own: the lane has the next batch to go on with.
        let queue_token = self.app.tokens.place(&standing.entry)?;
        Ok(Joined { standing, queue_token })
    }
}

impl Processor<Join> for Lane {
    type Output = Standing;
    type Error = Error;

    async fn process(&self, items: &[Join]) -> BatchOutcome<Standing, Error> {
        let mut events: BTreeMap<EventId, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            events.entry(item.event_id).or_default().push(index);
        }
        let groups = events.into_iter().map(|(event_id, indexes)| async move {
            let group: Vec<&Join> = indexes.iter().filter_map(|index| items.get(*index)).collect();
            let answers = self.app.join_together(event_id, &group).await;
            indexes.into_iter().zip(answers).collect::<Vec<_>>()
        });
        // A few at a time: a batch that names many events, known or not, must not take every connection.
        let mut answers: Vec<_> =
            stream::iter(groups).buffer_unordered(EVENTS_CONCURRENCY).flat_map(stream::iter).collect().await;
        answers.sort_by_key(|(index, _)| *index);
        BatchOutcome::Answered(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

impl App {
    /// The answers to joins of one event, one for each.
    async fn join_together(
        self: &Arc<Self>,
        event_id: EventId,
        items: &[&Join],
    ) -> Vec<Result<Standing, Error>> {
        let failure = match self.join_once(event_id, items).await {
            Ok(outcome) => {
                let answers = self.after_join(event_id, outcome).await;
                // Everything is written: who asks again gets the same place.
                return answers.unwrap_or_else(|error| share(error, items.len()));
            }
            Err(error) => error,
        };
        // Nothing was written, and one of them may be to blame: the others must not suffer for it.
        if let (true, Some((first, second))) = (is_suspect(&failure), halves(items)) {
            let mut answers = Box::pin(self.join_together(event_id, first)).await;
            answers.extend(Box::pin(self.join_together(event_id, second)).await);
            return answers;
        }
        if let Error::Postgres(error) = &failure
            && error.conflict() == Some(REQUEST_INDEX)
        {
            return items.iter().map(|_| Err(Error::RequestIdReused)).collect();
        }
        share(failure, items.len())
    }

    async fn join_once(&self, event_id: EventId, items: &[&Join]) -> Result<Outcome, Error> {
        let work =
            |transaction: Transaction| async move { self.join_in(&transaction, event_id, items).await };
        self.stores.postgres.transaction("join", work).await
    }

    async fn join_in(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        items: &[&Join],
    ) -> Result<Outcome, Error> {
        let mut facts = queues::lock(transaction, event_id, &self.defaults).await?;
        let customers: Vec<Uuid> = items.iter().map(|item| item.customer_id.as_uuid()).collect();
        if facts.queue.policy.mode == QueueMode::Windowed {
            let blocked = blocked::among(transaction, event_id, &customers).await?;
            let entries = self.issue_tickets(transaction, &mut facts, items, &blocked).await?;
            return Ok(Outcome { facts, entries, new: Vec::new() });
        }
        let requests: Vec<Uuid> = items.iter().map(|item| item.request_id.as_uuid()).collect();
        let (known, blocked) = futures_util::future::try_join(
            entries::known_of(transaction, event_id, &customers, &requests),
            blocked::among(transaction, event_id, &customers),
        )
        .await?;
        let before = facts.line;
        let (answers, new) = decide(&facts, items, known, &blocked);
        if !new.is_empty() {
            facts.line.joined(count(&new));
            let line = &facts.line;
            futures_util::future::try_join(
                entries::insert(transaction, event_id, &before, line.revision, facts.now, &new),
                queues::save_line(transaction, event_id, line),
            )
            .await?;
        }
        let new = new
            .iter()
            .zip(before.last_seq.saturating_add(1)..)
            .map(|(new, seq)| (new.entry_id, seq))
            .collect();
        Ok(Outcome { facts, entries: answers, new })
    }

    /// Everything is durable; Redis follows, and the answers are put together.
    async fn after_join(
        self: &Arc<Self>,
        event_id: EventId,
        outcome: Outcome,
    ) -> Result<Vec<Result<Standing, Error>>, Error> {
        let Outcome { facts, entries, new } = outcome;
        if facts.queue.policy.mode == QueueMode::Windowed {
            return Ok(self.tickets_issued(&facts, entries));
        }
        // The new ones stand at the end of the line, in their order; nobody has to be asked.
        let first_seq = facts.line.last_seq.saturating_sub(count(&new)).saturating_add(1);
        let first_position = facts.line.waiting_count.saturating_sub(count(&new)).saturating_add(1);
        let known: Vec<(EntryId, u64)> = entries
            .iter()
            .flatten()
            .filter(|entry| entry.state == EntryState::Waiting && entry.seq < first_seq)
            .map(|entry| (entry.entry_id, entry.seq))
            .collect();
        if !new.is_empty() {
            metrics::joined(new.len());
            self.tell_soon(News::joined(&facts, new));
        }
        let positions = self.places.of(event_id, &known, facts.line.revision).await?;
        let mut positions: HashMap<u64, u64> = known
            .into_iter()
            .zip(positions)
            .filter_map(|((_, seq), position)| Some((seq, position?)))
            .collect();
        positions.extend((first_seq..=facts.line.last_seq).zip(first_position..));
        let joined = |entry: Entry| {
            // Who is new gets a sign of life with the place in Redis.
            if entry.seq < first_seq {
                self.note_seen(&entry);
            }
            let position = positions.get(&entry.seq).copied();
            self.standing(&facts, entry, position)
        };
        Ok(entries.into_iter().map(|entry| entry.and_then(joined)).collect())
    }
}

/// Who gets which place: the one they have, a new one at the end, or none.
fn decide(
    facts: &Facts,
    items: &[&Join],
    known: Vec<MadeEntry>,
    blocked: &HashSet<CustomerId>,
) -> (Vec<Result<Entry, Error>>, Vec<NewEntry>) {
    let is_open =
        |known: &&MadeEntry| known.entry.event_id == facts.queue.event_id && known.entry.state.is_open();
    let mut open: HashMap<CustomerId, Entry> =
        known.iter().filter(is_open).map(|known| (known.entry.customer_id, known.entry.clone())).collect();
    let made: HashMap<(CustomerId, RequestId), MadeEntry> =
        known.into_iter().map(|made| ((made.entry.customer_id, made.request_id), made)).collect();
    let mut new: Vec<NewEntry> = Vec::new();
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let before = made.get(&(item.customer_id, item.request_id));
        let joined_now = count(&new);
        let answer = if let Some(before) = before {
            let is_same = before.fingerprint == item.fingerprint;
            if is_same { Ok(before.entry.clone()) } else { Err(Error::RequestIdReused) }
        } else if let Some(entry) = open.get(&item.customer_id) {
            Ok(entry.clone())
        } else if blocked.contains(&item.customer_id) {
            Err(Refusal::CustomerBlocked.into())
        } else {
            let waiting_count = facts.line.waiting_count.saturating_add(joined_now);
            match facts.queue.check_join(facts.now, waiting_count) {
                Err(refusal) => Err(refusal.into()),
                Ok(()) => {
                    let entry = new_entry(facts, item, joined_now);
                    new.push(NewEntry {
                        entry_id: entry.entry_id,
                        customer_id: item.customer_id,
                        display_name: item.display_name.clone(),
                        avatar_url: item.avatar_url.clone(),
                        request_id: item.request_id,
                        fingerprint: item.fingerprint,
                    });
                    open.insert(item.customer_id, entry.clone());
                    Ok(entry)
                }
            }
        };
        answers.push(answer);
    }
    (answers, new)
}

fn new_entry(facts: &Facts, item: &Join, joined_before: u64) -> Entry {
    Entry {
        entry_id: EntryId::generate(),
        event_id: item.event_id,
        customer_id: item.customer_id,
        seq: facts.line.last_seq.saturating_add(joined_before).saturating_add(1),
        state: EntryState::Waiting,
        join_time: facts.now,
        display_name: item.display_name.clone(),
        avatar_url: item.avatar_url.clone(),
        turn: None,
        end_time: None,
        expire_reason: None,
        claim_id: None,
    }
}

fn count<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

/// Whether a row may be to blame, and nothing was written.
fn is_suspect(error: &Error) -> bool {
    matches!(error, Error::Postgres(postgres::Error::Query { .. } | postgres::Error::Conflict { .. }))
}

fn halves<'a, 'b>(items: &'a [&'b Join]) -> Option<(&'a [&'b Join], &'a [&'b Join])> {
    (items.len() > 1).then(|| items.split_at(items.len() / 2))
}

/// One failure as the answer to each of `count`.
fn share(failure: Error, count: usize) -> Vec<Result<Standing, Error>> {
    let failure = Arc::new(failure);
    std::iter::repeat_with(|| Err(Error::Shared(Arc::clone(&failure)))).take(count).collect()
}
