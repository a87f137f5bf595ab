//! Where a customer stands: the truth about an entry at one revision of its queue.

use std::time::Duration;

use onsale_types::{CustomerId, EventId, Timestamp};

use super::{App, places::Asked, tokens::GrantedTurn};
use crate::{
    domain::{
        entry::{Entry, EntryState},
        estimate::{Estimate, estimate},
        notify_policy::next_poll_after,
        policy::QueueMode,
        queue::QueueState,
        refusal::Refusal,
        windowed_entry::Ticket,
    },
    error::Error,
    store::{
        entries,
        queues::{self, Facts},
    },
};

/// How often an entry that moved between two looks is looked at again.
const LOOKS_MAX: u32 = 3;

/// The truth about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
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
pub(crate) struct OwnEntry {
    /// In which queue.
    pub(crate) event_id: EventId,
    /// Whose.
    pub(crate) customer_id: CustomerId,
    /// The token that they show; empty: none.
    pub(crate) queue_token: String,
}

impl App {
    /// Where the caller stands now; counts as a sign of life.
    pub(crate) async fn position(&self, own: &OwnEntry) -> Result<Standing, Error> {
        let mut looks = 0;
        loop {
            looks += 1;
            self.polls.count();
            let (facts, ticket) = self.own_queue(own).await?;
            if let Some(ticket) = ticket.filter(|_| facts.queue.policy.mode == QueueMode::Windowed) {
                self.viewers.note_poll(own.event_id, ticket.entry_id());
                return self.windowed_standing(&facts, &ticket);
            }
            let entry = self.newest_entry(own).await?;
            self.note_seen(&entry);
            self.viewers.note_poll(entry.event_id, entry.entry_id);
            let asked = Asked {
                event_id: entry.event_id,
                entry_id: entry.entry_id,
                seq: entry.seq,
                revision: facts.line.revision,
            };
            let position = match entry.state {
                EntryState::Waiting => self.positions.submit(asked).await?,
                EntryState::Admitted | EntryState::Completed | EntryState::Expired | EntryState::Left => None,
            };
            // It left the line since we looked: what it is now is the better answer.
            if entry.state == EntryState::Waiting && position.is_none() && looks < LOOKS_MAX {
                continue;
            }
            return self.standing(&facts, entry, position);
        }
    }

    /// The queue that the caller asks about, and what their token says. A WINDOWED queue knows them by it only.
    pub(crate) async fn own_queue(&self, own: &OwnEntry) -> Result<(Facts, Option<Ticket>), Error> {
        let facts = queues::read(&self.stores.postgres, own.event_id, &self.defaults).await?;
        if !own.queue_token.is_empty() {
            let (token, now) = (&own.queue_token, facts.now);
            let ticket = self.tokens.check_place(token, own.event_id, own.customer_id, now)?;
            return Ok((facts, Some(ticket)));
        }
        match facts.queue.policy.mode {
            QueueMode::Tracked => Ok((facts, None)),
            QueueMode::Windowed => Err(Refusal::QueueTokenRequired.into()),
        }
    }

    async fn newest_entry(&self, own: &OwnEntry) -> Result<Entry, Error> {
        let entry = entries::newest(&self.stores.postgres, own.event_id, own.customer_id).await?;
        Ok(entry.ok_or(Refusal::EntryNotFound { event_id: own.event_id })?)
    }

    /// Refuses a token that is not the caller's, or too old by the database's clock.
    pub(crate) fn check_token(&self, own: &OwnEntry, now: Timestamp) -> Result<(), Error> {
        if own.queue_token.is_empty() {
            return Ok(());
        }
        self.tokens.check_place(&own.queue_token, own.event_id, own.customer_id, now)?;
        Ok(())
    }

    /// Puts a standing together.
    pub(crate) fn standing(
        &self,
        facts: &Facts,
        entry: Entry,
        position: Option<u64>,
    ) -> Result<Standing, Error> {
        let is_waiting = entry.state == EntryState::Waiting;
        // One who waits and is nowhere in line is just being admitted.
        let position = if is_waiting { position.unwrap_or(1) } else { 0 };
        let queue = &facts.queue;
        let turn = match (entry.state, entry.turn) {
            (EntryState::Admitted, Some(turn)) => Some(self.tokens.turn(&entry, turn)?),
            _ => None,
        };
        let estimate = if is_waiting {
            estimate(position, queue.state, &queue.policy, facts.line.shown_service_time)
        } else {
            None
        };
        Ok(Standing {
            revision: facts.line.revision,
            entry,
            position,
            estimate,
            turn,
            queue_state: queue.state,
            next_poll_after: next_poll_after(position, queue.policy.idle_timeout, self.polls.per_second()),
        })
    }

    /// The customer is there.
    pub(crate) fn note_seen(&self, entry: &Entry) {
        if entry.state == EntryState::Waiting {
            self.seen.note(entry.event_id, entry.entry_id);
        }
    }
}
