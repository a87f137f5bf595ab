//! Job `milestones`: workers → app → store::milestones → domain::milestone → store::presence → store::milestones (cursor) →
//! outbox. Customers without an open stream who passed a milestone get one push. The cursor and the event are written in one
//! transaction, so a crash loses no push and repeats none.

use std::collections::{HashMap, HashSet};

use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::{EntryId, EventId};
use parking_lot::Mutex;

use super::App;
use crate::{
    domain::{
        event::OutgoingQueueEvent,
        milestone::{MilestoneCandidate, MilestoneProgress, PassedMilestone, SeqRange, passes, spans},
        queue::QueueAndLine,
    },
    engine::leadership::LeaderShards,
    error::Error,
    metrics,
    store::{milestones, queues},
};

/// Largest number of customers in one event; the contract states it too.
const BATCH_MAX: usize = 500;

/// Transactions for one milestone in one round. The rest waits for the next round.
const BATCHES_MAX: u32 = 64;

/// A stream counts as open for this many intervals between two confirmations.
const CONFIRMATIONS: u32 = 3;

/// Revisions of the lines at their last check. A line that has not changed since is skipped.
#[derive(Debug, Default)]
pub(crate) struct CheckedRevisions(Mutex<HashMap<EventId, u64>>);

impl App {
    /// Pushes the milestones passed in queues that this pod leads and that have changed.
    pub(crate) async fn push_milestones(&self, shards: &LeaderShards) -> Result<(), Error> {
        let (postgres, defaults) = (&self.engine.stores.postgres, &self.engine.defaults);
        let checked = &self.checked_revisions.0;
        let moving: HashMap<EventId, u64> =
            milestones::moving(postgres, defaults).await?.into_iter().collect();
        let has_moved = |event_id: &EventId| checked.lock().get(event_id) != moving.get(event_id);
        let events: Vec<EventId> = moving.keys().copied().filter(has_moved).collect();
        for (event_id, lease) in shards.led(events) {
            match self.push_event(&lease, event_id).await {
                Ok(true) => {
                    let revision = moving.get(&event_id).copied().unwrap_or(0);
                    checked.lock().insert(event_id, revision);
                }
                // The rest follows in the next round.
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to push milestones, retrying next round");
                }
            }
        }
        checked.lock().retain(|event_id, _| moving.contains_key(event_id));
        Ok(())
    }

    /// Pushes the milestones of one queue; returns true if none is left.
    async fn push_event(&self, lease: &Lease, event_id: EventId) -> Result<bool, Error> {
        let postgres = &self.engine.stores.postgres;
        let current = queues::read(postgres, event_id, &self.engine.defaults).await?;
        let cursors = milestones::cursors(postgres, event_id).await?;
        let mut reached = Vec::new();
        for milestone in current.queue.policy.milestones.falling() {
            let pushed_seq = cursors.get(&milestone).copied().unwrap_or(0);
            // In a shorter line every entry is before the milestone.
            let nth = milestones::nth_waiting(postgres, event_id, milestone).await?;
            let upto_seq = nth.unwrap_or(current.line.last_seq).max(pushed_seq);
            reached.push(MilestoneProgress { milestone, pushed_seq, upto_seq });
        }
        let mut is_done = true;
        for range in spans(&reached) {
            is_done &= self.push_range(lease, &current, range).await?;
        }
        Ok(is_done)
    }

    async fn push_range(
        &self,
        lease: &Lease,
        current: &QueueAndLine,
        mut range: SeqRange,
    ) -> Result<bool, Error> {
        let event_id = current.queue.event_id;
        for _ in 0..BATCHES_MAX {
            if !lease.is_current() {
                return Ok(false);
            }
            let postgres = &self.engine.stores.postgres;
            let page = milestones::page(postgres, event_id, &range, BATCH_MAX).await?;
            let last = page.last().filter(|_| page.len() >= BATCH_MAX);
            let upto_seq = last.map_or(range.upto_seq, |last| last.seq);
            let absent = self.without_stream(event_id, passed(&page, range.milestone)).await;
            if !self.push_batch(lease, current, &range, upto_seq, &absent).await? {
                return Ok(false);
            }
            if upto_seq >= range.upto_seq {
                return Ok(true);
            }
            range = SeqRange { pushed_seq: upto_seq, after_seq: upto_seq, ..range };
        }
        Ok(false)
    }

    /// Returns the entries without an open stream; all of them if Redis is unavailable, because a superfluous push is better
    /// than a missing one.
    async fn without_stream(&self, event_id: EventId, passed: Vec<PassedMilestone>) -> Vec<PassedMilestone> {
        let engine = &self.engine;
        let ids: Vec<EntryId> = passed.iter().map(|passed| passed.entry_id).collect();
        let max_age = engine.watch_config.seen_interval.saturating_mul(CONFIRMATIONS);
        let watching = match engine.presence.watching_among(event_id, &ids, max_age).await {
            Ok(watching) => watching,
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to read open streams, pushing to every customer");
                HashSet::new()
            }
        };
        passed.into_iter().filter(|passed| !watching.contains(&passed.entry_id)).collect()
    }

    /// Moves the cursor and appends the event; returns false if another process moved the cursor.
    async fn push_batch(
        &self,
        lease: &Lease,
        current: &QueueAndLine,
        range: &SeqRange,
        upto_seq: u64,
        passed: &[PassedMilestone],
    ) -> Result<bool, Error> {
        let (event_id, milestone) = (current.queue.event_id, range.milestone);
        let stores = &self.engine.stores;
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let from = range.pushed_seq;
            if !milestones::move_cursor(&transaction, event_id, milestone, from, upto_seq).await? {
                return Ok(false);
            }
            if !passed.is_empty() {
                let event = OutgoingQueueEvent::PositionUpdate { current, milestone, passed };
                stores.outbox.append(&transaction, &[event]).await?;
            }
            Ok::<_, Error>(true)
        };
        let is_pushed = stores.postgres.transaction("tell milestone", work).await?;
        if is_pushed && !passed.is_empty() {
            stores.outbox.wake_relay();
            metrics::milestone_passed(passed.len());
            tracing::info!(%event_id, milestone, count = passed.len(), "customers passed a milestone");
        }
        Ok(is_pushed)
    }
}

fn passed(page: &[MilestoneCandidate], milestone: u64) -> Vec<PassedMilestone> {
    let passed = page.iter().filter(|candidate| passes(candidate.start_position, milestone));
    passed.map(|candidate| candidate.passed).collect()
}
