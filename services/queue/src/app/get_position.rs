//! Where a customer stands: the truth about an entry at one revision of its queue.

use std::time::Duration;

use onsale_types::{CustomerId, EventId, Timestamp};

use super::{App, places::PositionQuery, tokens::GrantedTurn};
use crate::{
    domain::{
        entry::{Entry, EntryState},
        estimate::{Estimate, estimate},
        notify_policy::next_poll_after,
        policy::QueueMode,
        queue::QueueState,
        refusal::Refusal,
        windowed_entry::WindowedEntry,
    },
    error::Error,
    store::{
        entries,
        queues::{self, QueueAndLine},
    },
};

/// How often an entry that moved between two looks is looked at again.
const ATTEMPTS_MAX: u32 = 3;

/// The truth about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryView {
    /// Of the queue.
    pub(crate) revision: u64,
    /// The entry.
    pub(crate) entry: Entry,
    /// How many stand before it, plus one; 0: it does not wait.
    pub(crate) position: u64,
    /// How long it will probably take.
    pub(crate) estimate: Option<Estimate>,
    /// The turn, while it has one.
    pub(crate) turn: Option<GrantedTurn>,
    /// State of the queue.
    pub(crate) queue_state: QueueState,
    /// When to ask again.
    pub(crate) next_poll_after: Duration,
}

/// A question of a customer about their own entry.
#[derive(Clone, Debug)]
pub(crate) struct EntryQuery {
    /// In which queue.
    pub(crate) event_id: EventId,
    /// Whose.
    pub(crate) customer_id: CustomerId,
    /// The token that they show; empty: none.
    pub(crate) queue_token: String,
}

impl App {
    /// Where the caller stands now; counts as a sign of life.
    pub(crate) async fn position(&self, own: &EntryQuery) -> Result<EntryView, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.polls.count();
            let (current, ticket) = self.own_queue(own).await?;
            if let Some(ticket) = ticket.filter(|_| current.queue.policy.mode == QueueMode::Windowed) {
                self.viewers.record_poll(own.event_id, ticket.entry_id());
                return self.windowed_standing(&current, &ticket);
            }
            let entry = self.newest_entry(own).await?;
            self.record_heartbeat(&entry);
            self.viewers.record_poll(entry.event_id, entry.entry_id);
            let asked = PositionQuery {
                event_id: entry.event_id,
                entry_id: entry.entry_id,
                seq: entry.seq,
                revision: current.line.revision,
            };
            let position = match entry.state {
                EntryState::Waiting => self.positions.submit(asked).await?,
                EntryState::Admitted | EntryState::Completed | EntryState::Expired | EntryState::Left => None,
            };
            // It left the line since we looked: what it is now is the better answer.
            if entry.state == EntryState::Waiting && position.is_none() && attempts < ATTEMPTS_MAX {
                continue;
            }
            return self.standing(&current, entry, position);
        }
    }

    /// The queue that the caller asks about, and what their token says. A WINDOWED queue knows them by it only.
    pub(crate) async fn own_queue(
        &self,
        own: &EntryQuery,
    ) -> Result<(QueueAndLine, Option<WindowedEntry>), Error> {
        let current = queues::read(&self.stores.postgres, own.event_id, &self.defaults).await?;
        if !own.queue_token.is_empty() {
            let (token, now) = (&own.queue_token, current.now);
            let ticket = self.tokens.verify_queue_token(token, own.event_id, own.customer_id, now)?;
            return Ok((current, Some(ticket)));
        }
        match current.queue.policy.mode {
            QueueMode::Tracked => Ok((current, None)),
            QueueMode::Windowed => Err(Refusal::QueueTokenRequired.into()),
        }
    }

    async fn newest_entry(&self, own: &EntryQuery) -> Result<Entry, Error> {
        let entry = entries::newest(&self.stores.postgres, own.event_id, own.customer_id).await?;
        Ok(entry.ok_or(Refusal::EntryNotFound { event_id: own.event_id })?)
    }

    /// Refuses a token that is not the caller's, or too old by the database's clock.
    pub(crate) fn check_token(&self, own: &EntryQuery, now: Timestamp) -> Result<(), Error> {
        if own.queue_token.is_empty() {
            return Ok(());
        }
        self.tokens.verify_queue_token(&own.queue_token, own.event_id, own.customer_id, now)?;
        Ok(())
    }

    /// Puts a standing together.
    pub(crate) fn standing(
        &self,
        current: &QueueAndLine,
        entry: Entry,
        position: Option<u64>,
    ) -> Result<EntryView, Error> {
        let is_waiting = entry.state == EntryState::Waiting;
        // One who waits and is nowhere in line is just being admitted.
        let position = if is_waiting { position.unwrap_or(1) } else { 0 };
        let queue = &current.queue;
        let turn = match (entry.state, entry.turn) {
            (EntryState::Admitted, Some(turn)) => Some(self.tokens.turn(&entry, turn)?),
            _ => None,
        };
        let estimate = if is_waiting {
            estimate(position, queue.state, &queue.policy, current.line.shown_service_time)
        } else {
            None
        };
        Ok(EntryView {
            revision: current.line.revision,
            entry,
            position,
            estimate,
            turn,
            queue_state: queue.state,
            next_poll_after: next_poll_after(position, queue.policy.idle_timeout, self.polls.per_second()),
        })
    }

    /// The customer is there.
    pub(crate) fn record_heartbeat(&self, entry: &Entry) {
        if entry.state == EntryState::Waiting {
            self.seen.note(entry.event_id, entry.entry_id);
        }
    }
}
