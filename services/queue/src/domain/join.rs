//! Joining a queue: the request, the decision for a batch of requests, and what a join changes in the line.

use std::collections::{HashMap, HashSet};

use onsale_types::{CustomerId, EntryId, EventId, RequestId, Timestamp};
use uuid::Uuid;

use super::{
    entry::{Entry, EntryState},
    entry_view::EntryView,
    line::Line,
    policy::QueueMode,
    queue::{CloseReason, Queue, QueueAndLine, QueueState},
    refusal::Refusal,
    windowed_entry::WindowedEntry,
};

/// `JoinQueue` of one customer.
#[derive(Clone, Debug)]
pub(crate) struct JoinRequest {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Idempotency key. Together with the customer it identifies the request.
    pub(crate) request_id: RequestId,
    /// Hash of the request body: one id with two bodies is refused.
    pub(crate) fingerprint: Uuid,
    /// Name that neighbors in line see; may be empty.
    pub(crate) display_name: String,
    /// Picture that neighbors in line see; may be empty.
    pub(crate) avatar_url: String,
}

/// Outcome of `JoinQueue`.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) view: EntryView,
    pub(crate) queue_token: String,
}

/// A stored entry with the request that made it.
#[derive(Clone, Debug)]
pub(crate) struct StoredJoin {
    /// The entry in its present state.
    pub(crate) entry: Entry,
    pub(crate) request_id: RequestId,
    pub(crate) fingerprint: Uuid,
}

/// Stored facts about the customers of a batch of joins.
#[derive(Debug, Default)]
pub(crate) struct JoinFacts {
    /// Open entries of the customers in this event, and entries that the same requests made in any event.
    pub(crate) stored: Vec<StoredJoin>,
    pub(crate) blocked: HashSet<CustomerId>,
}

/// An entry to insert at the end of the line.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(crate) entry_id: EntryId,
    pub(crate) customer_id: CustomerId,
    pub(crate) display_name: String,
    pub(crate) avatar_url: String,
    pub(crate) request_id: RequestId,
    pub(crate) fingerprint: Uuid,
}

/// The decision for a batch of joins of one event.
#[derive(Debug)]
pub(crate) struct JoinDecisions {
    /// The entry or the refusal of each request, in the order of the requests.
    pub(crate) answers: Vec<Result<Entry, Refusal>>,
    /// Numbers given out: the last ones up to `line.last_seq`.
    pub(crate) joined_count: u64,
    /// Entries to insert, in the order of their numbers. A WINDOWED queue stores none.
    pub(crate) new_entries: Vec<NewEntry>,
}

/// Decides each join of a batch: returns the customer's existing entry, adds one at the end of the line, or refuses. Moves the
/// counters of `current.line` past the new entries.
pub(crate) fn decide(
    current: &mut QueueAndLine,
    requests: &[&JoinRequest],
    facts: JoinFacts,
) -> JoinDecisions {
    let (answers, new_entries) = match current.queue.policy.mode {
        QueueMode::Tracked => decide_tracked(current, requests, facts),
        QueueMode::Windowed => (assign_numbers(current, requests, &facts.blocked), Vec::new()),
    };
    let joined_count = match current.queue.policy.mode {
        QueueMode::Tracked => count(&new_entries),
        // Every accepted request of a WINDOWED queue gets a new number.
        QueueMode::Windowed => u64::try_from(answers.iter().flatten().count()).unwrap_or(u64::MAX),
    };
    if joined_count > 0 {
        current.line.join(joined_count);
    }
    JoinDecisions { answers, joined_count, new_entries }
}

fn decide_tracked(
    current: &QueueAndLine,
    requests: &[&JoinRequest],
    facts: JoinFacts,
) -> (Vec<Result<Entry, Refusal>>, Vec<NewEntry>) {
    let JoinFacts { stored, blocked } = facts;
    let is_open_here = |stored: &&StoredJoin| {
        stored.entry.event_id == current.queue.event_id && stored.entry.state.is_open()
    };
    let mut open: HashMap<CustomerId, Entry> = stored
        .iter()
        .filter(is_open_here)
        .map(|stored| (stored.entry.customer_id, stored.entry.clone()))
        .collect();
    let by_request: HashMap<(CustomerId, RequestId), StoredJoin> =
        stored.into_iter().map(|stored| ((stored.entry.customer_id, stored.request_id), stored)).collect();
    let mut new_entries: Vec<NewEntry> = Vec::new();
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let repeated = by_request.get(&(request.customer_id, request.request_id));
        let joined_before = count(&new_entries);
        let answer = if let Some(stored) = repeated {
            let is_same = stored.fingerprint == request.fingerprint;
            if is_same { Ok(stored.entry.clone()) } else { Err(Refusal::RequestIdReused) }
        } else if let Some(entry) = open.get(&request.customer_id) {
            Ok(entry.clone())
        } else if blocked.contains(&request.customer_id) {
            Err(Refusal::CustomerBlocked)
        } else {
            let waiting_count = current.line.waiting_count.saturating_add(joined_before);
            current.queue.check_join(current.now, waiting_count).map(|()| {
                let entry = new_entry(current, request, joined_before);
                new_entries.push(request.new_entry(entry.entry_id));
                open.insert(request.customer_id, entry.clone());
                entry
            })
        };
        answers.push(answer);
    }
    (answers, new_entries)
}

/// Assigns the next numbers of a WINDOWED queue, one per accepted request. A repeated request gets a new number: only the
/// customer's token records the old one.
fn assign_numbers(
    current: &QueueAndLine,
    requests: &[&JoinRequest],
    blocked: &HashSet<CustomerId>,
) -> Vec<Result<Entry, Refusal>> {
    let mut seq = current.line.last_seq;
    let assign = |request: &&JoinRequest| {
        if blocked.contains(&request.customer_id) {
            return Err(Refusal::CustomerBlocked);
        }
        // `waiting_max` does not apply: the mode exists for lines of any length.
        current.queue.check_join(current.now, 0)?;
        seq = seq.saturating_add(1);
        let windowed = WindowedEntry {
            event_id: request.event_id,
            customer_id: request.customer_id,
            seq,
            join_time: current.now,
        };
        Ok(windowed.entry(&current.queue, &current.line, current.now).0)
    };
    requests.iter().map(assign).collect()
}

fn new_entry(current: &QueueAndLine, request: &JoinRequest, joined_before: u64) -> Entry {
    Entry {
        entry_id: EntryId::generate(),
        event_id: request.event_id,
        customer_id: request.customer_id,
        seq: current.line.last_seq.saturating_add(joined_before).saturating_add(1),
        state: EntryState::Waiting,
        join_time: current.now,
        display_name: request.display_name.clone(),
        avatar_url: request.avatar_url.clone(),
        turn: None,
        end_time: None,
        expire_reason: None,
        claim_id: None,
    }
}

impl JoinRequest {
    fn new_entry(&self, entry_id: EntryId) -> NewEntry {
        NewEntry {
            entry_id,
            customer_id: self.customer_id,
            display_name: self.display_name.clone(),
            avatar_url: self.avatar_url.clone(),
            request_id: self.request_id,
            fingerprint: self.fingerprint,
        }
    }
}

impl Queue {
    /// Refuses a new customer at `now` if the queue is not open for joins or `waiting_count` has reached the maximum.
    pub(crate) fn check_join(&self, now: Timestamp, waiting_count: u64) -> Result<(), Refusal> {
        match self.state {
            QueueState::Scheduled => {
                // The opening time of a draft is not public.
                let open_time = self.open_time.filter(|_| self.is_active);
                return Err(Refusal::QueueNotOpen { open_time, now });
            }
            QueueState::Paused if self.joins_paused => return Err(Refusal::QueuePaused),
            QueueState::Closed => return Err(self.closed_refusal()),
            QueueState::Open | QueueState::Paused => {}
        }
        if waiting_count >= self.policy.waiting_max {
            return Err(Refusal::QueueFull { waiting_max: self.policy.waiting_max });
        }
        Ok(())
    }

    fn closed_refusal(&self) -> Refusal {
        match &self.close {
            Some(close) if close.reason == CloseReason::SoldOut => Refusal::SoldOut {
                remaining: close.remaining.iter().map(|sector| sector.sector_id).collect(),
            },
            close => Refusal::QueueClosed {
                reason: close.as_ref().map_or(CloseReason::Organizer, |close| close.reason),
            },
        }
    }
}

impl Line {
    /// Adds `count` waiting entries at the end.
    pub(crate) fn join(&mut self, count: u64) {
        self.bump_revision();
        self.last_seq = self.last_seq.saturating_add(count);
        self.waiting_count = self.waiting_count.saturating_add(count);
    }
}

fn count<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}
