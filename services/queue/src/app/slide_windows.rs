//! WINDOWED queues behind the same methods: joining issues a number, and where a customer stands follows from it (ADR 0010).

use std::{collections::HashSet, sync::Arc};

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::{ClaimId, CustomerId, EntryId, EventId};

use super::{
    App, admit::EVENTS_CONCURRENCY, join::Join, shards::LeaderShards, standing::EntryView, tell::QueueChange,
};
use crate::{
    domain::{
        entry::{Entry, Turn, TurnKey},
        policy::QueueMode,
        refusal::Refusal,
        windowed_entry::{WindowedCompletion, WindowedEntry},
    },
    error::Error,
    metrics,
    store::{
        blocked_customers,
        queues::{self, QueueAndLine},
        windows,
    },
};

impl App {
    /// Issues the next numbers of a locked line, one for each who may join, in order. A repeat gets a new one: nobody knows
    /// the old one but who has its token.
    pub(crate) async fn assign_numbers(
        &self,
        transaction: &Transaction,
        current: &mut QueueAndLine,
        items: &[&Join],
        blocked: &HashSet<CustomerId>,
    ) -> Result<Vec<Result<Entry, Error>>, Error> {
        let mut seq = current.line.last_seq;
        let mut tickets = Vec::with_capacity(items.len());
        for item in items {
            // As many may wait as come: that is what the mode is for.
            let is_blocked = blocked.contains(&item.customer_id);
            let may = if is_blocked {
                Err(Refusal::CustomerBlocked)
            } else {
                current.queue.check_join(current.now, 0)
            };
            tickets.push(may.map(|()| {
                seq = seq.saturating_add(1);
                let (event_id, customer_id) = (item.event_id, item.customer_id);
                WindowedEntry { event_id, customer_id, seq, join_time: current.now }
            }));
        }
        let issued = seq.saturating_sub(current.line.last_seq);
        if issued > 0 {
            current.line.joined(issued);
            queues::save_line(transaction, current.queue.event_id, &current.line).await?;
        }
        let current = &*current;
        let entry = |ticket: WindowedEntry| ticket.entry(&current.queue, &current.line, current.now).0;
        Ok(tickets.into_iter().map(|ticket| Ok(ticket.map(entry)?)).collect())
    }

    /// The answers to those who got a number.
    pub(crate) fn tickets_issued(
        self: &Arc<Self>,
        current: &QueueAndLine,
        entries: Vec<Result<Entry, Error>>,
    ) -> Vec<Result<EntryView, Error>> {
        let count = entries.iter().flatten().count();
        if count > 0 {
            metrics::joined(count);
            self.publish_in_background(QueueChange::joined(current, Vec::new()));
        }
        let joined = |entry: Entry| {
            let position = entry.seq.saturating_sub(current.line.last_admitted_seq);
            self.standing(current, entry, Some(position))
        };
        entries.into_iter().map(|entry| entry.and_then(joined)).collect()
    }

    /// Where the holder of a ticket stands.
    pub(crate) fn windowed_standing(
        &self,
        current: &QueueAndLine,
        ticket: &WindowedEntry,
    ) -> Result<EntryView, Error> {
        let (entry, position) = ticket.entry(&current.queue, &current.line, current.now);
        self.standing(current, entry, position)
    }

    /// Whether a ticket may buy; none when the queue is not WINDOWED, or there is no such queue.
    pub(crate) async fn validate_ticket(&self, turn: TurnKey) -> Result<Option<(EntryId, Turn)>, Error> {
        let current = match queues::read(&self.stores.postgres, turn.event_id, &self.defaults).await {
            Ok(current) if current.queue.policy.mode == QueueMode::Windowed => current,
            Ok(_) | Err(Error::Refused(Refusal::EventNotFound { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        let used_by = windows::used(&self.stores.postgres, turn.event_id, turn.fencing_number).await?;
        if blocked_customers::is_blocked(&self.stores.postgres, turn.event_id, turn.customer_id).await? {
            return Err(Refusal::CustomerBlocked.into());
        }
        let ticket = ticket_of(turn, &current);
        let turn = ticket.holds(&current.queue, &current.line, used_by, current.now)?;
        Ok(Some((ticket.entry_id(), turn)))
    }

    /// Uses a ticket of a locked line for a purchase; answers whether that is news.
    pub(crate) async fn complete_ticket(
        &self,
        transaction: &Transaction,
        current: &mut QueueAndLine,
        turn: TurnKey,
        claim_id: ClaimId,
    ) -> Result<bool, Error> {
        let ticket = ticket_of(turn, current);
        let used_by = windows::used_in(transaction, ticket.event_id, ticket.seq).await?;
        match ticket.completes(&current.queue.policy, &current.line, used_by, claim_id)? {
            WindowedCompletion::Done => Ok(false),
            WindowedCompletion::Use => {
                current.line.touch();
                current.line.completed_count = current.line.completed_count.saturating_add(1);
                queues::save_line(transaction, ticket.event_id, &current.line).await?;
                windows::mark_used(transaction, &ticket, claim_id, current.now).await?;
                Ok(true)
            }
        }
    }

    /// Slides every window that this pod leads and whose time has come.
    pub(crate) async fn slide_windows(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = windows::sliding(&self.stores.postgres, &self.defaults).await?;
        stream::iter(shards.led(events))
            .for_each_concurrent(EVENTS_CONCURRENCY, |(event_id, lease)| async move {
                // One queue that cannot go on keeps no other from doing so.
                if let Err(error) = self.slide(&lease, event_id).await {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to slide a window");
                }
            })
            .await;
        Ok(())
    }

    async fn slide(&self, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let has_stock = self.inventory.availability(event_id).await?.free_units() > 0;
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            let policy = current.queue.policy;
            let rate = policy.admissions_per_minute;
            current.line.bucket = current.line.bucket.filled_over(rate, policy.slide_interval, current.now);
            let count = current.line.slide_count(current.queue.state, &policy, has_stock, current.now);
            if count > 0 {
                current.line.slid(count, &policy, current.now);
                queues::save_line(&transaction, event_id, &current.line).await?;
            }
            Ok::<_, Error>((count, current))
        };
        let (count, current) = self.stores.postgres.transaction("slide", work).await?;
        if count > 0 {
            metrics::admitted(usize::try_from(count).unwrap_or(usize::MAX));
            let last_active_seq = current.line.last_admitted_seq;
            tracing::info!(%event_id, count, last_active_seq, "window slid");
            // Who waits in a WINDOWED queue nobody knows by name; the step says all there is.
            self.tell(QueueChange::granted(&current, Vec::new())).await;
        }
        Ok(())
    }
}

/// The ticket that a turn is about. Whose it is the token says, which the caller has verified.
fn ticket_of(turn: TurnKey, current: &QueueAndLine) -> WindowedEntry {
    let TurnKey { event_id, customer_id, fencing_number } = turn;
    WindowedEntry { event_id, customer_id, seq: fencing_number, join_time: current.now }
}
