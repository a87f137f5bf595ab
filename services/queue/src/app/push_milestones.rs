//! Milestone pushes: who does not watch and came past a milestone is told, once. The cursor and the event that tells of it are
//! written together, so a crash between them leaves nothing or both.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::{EntryId, EventId};

use super::{App, lock, shards::LeaderShards};
use crate::{
    convert,
    domain::milestone::{MilestoneProgress, SeqRange, passes, spans},
    error::Error,
    metrics,
    store::{
        milestones::{self, MilestoneCandidate, PassedMilestone},
        queues::{self, QueueAndLine},
    },
};

/// Customers in one event, as the contract has it.
const BATCH_MAX: usize = 500;

/// Transactions for one milestone in one round: what is left waits for the next.
const BATCHES_MAX: u32 = 64;

/// A stream counts as open as long as it was confirmed within so many times of the usual.
const CONFIRMATIONS: u32 = 3;

/// The lines as they were when they were last looked at: who did not move passed nothing.
#[derive(Debug, Default)]
pub(crate) struct CheckedRevisions {
    revisions: Mutex<HashMap<EventId, u64>>,
}

impl App {
    /// Tells those who passed a milestone in a queue that this pod leads and that has moved.
    pub(crate) async fn push_milestones(&self, shards: &LeaderShards) -> Result<(), Error> {
        let moving: HashMap<EventId, u64> =
            milestones::moving(&self.stores.postgres, &self.defaults).await?.into_iter().collect();
        let has_moved =
            |event_id: &EventId| lock(&self.milestone_looks.revisions).get(event_id) != moving.get(event_id);
        let events: Vec<EventId> = moving.keys().copied().filter(has_moved).collect();
        for (event_id, lease) in shards.led(events) {
            match self.tell_milestones(&lease, event_id).await {
                Ok(true) => {
                    let revision = moving.get(&event_id).copied().unwrap_or(0);
                    lock(&self.milestone_looks.revisions).insert(event_id, revision);
                }
                // What is left comes with the next round.
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to tell milestones");
                }
            }
        }
        lock(&self.milestone_looks.revisions).retain(|event_id, _| moving.contains_key(event_id));
        Ok(())
    }

    /// Answers whether everybody has been told.
    async fn tell_milestones(&self, lease: &Lease, event_id: EventId) -> Result<bool, Error> {
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let told = milestones::told(&self.stores.postgres, event_id).await?;
        let mut reached = Vec::new();
        for milestone in current.queue.policy.milestones.falling() {
            let told_seq = told.get(&milestone).copied().unwrap_or(0);
            // In a line that is shorter everybody stands before the milestone.
            let nth = milestones::nth_waiting(&self.stores.postgres, event_id, milestone).await?;
            let upto_seq = nth.unwrap_or(current.line.last_seq).max(told_seq);
            reached.push(MilestoneProgress { milestone, told_seq, upto_seq });
        }
        let mut is_done = true;
        for span in spans(&reached) {
            is_done &= self.tell_span(lease, &current, span).await?;
        }
        Ok(is_done)
    }

    async fn tell_span(
        &self,
        lease: &Lease,
        current: &QueueAndLine,
        mut span: SeqRange,
    ) -> Result<bool, Error> {
        let event_id = current.queue.event_id;
        for _ in 0..BATCHES_MAX {
            if !lease.is_current() {
                return Ok(false);
            }
            let page = milestones::page(&self.stores.postgres, event_id, &span, BATCH_MAX).await?;
            let last = page.last().filter(|_| page.len() >= BATCH_MAX);
            let upto_seq = last.map_or(span.upto_seq, |last| last.seq);
            let passed = self.absent(event_id, passed(&page, span.milestone)).await;
            if !self.tell_batch(lease, current, &span, upto_seq, &passed).await? {
                return Ok(false);
            }
            if upto_seq >= span.upto_seq {
                return Ok(true);
            }
            span = SeqRange { told_seq: upto_seq, after_seq: upto_seq, ..span };
        }
        Ok(false)
    }

    /// Those without an open stream. Without Redis nobody knows, and a push too many is better than none.
    async fn absent(&self, event_id: EventId, passed: Vec<PassedMilestone>) -> Vec<PassedMilestone> {
        let ids: Vec<EntryId> = passed.iter().map(|passed| passed.entry_id).collect();
        let max_age = self.watching.seen_interval.saturating_mul(CONFIRMATIONS);
        let watching = match self.presence.watching_among(event_id, &ids, max_age).await {
            Ok(watching) => watching,
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to ask who is watching");
                HashSet::new()
            }
        };
        passed.into_iter().filter(|passed| !watching.contains(&passed.entry_id)).collect()
    }

    /// Moves the cursor and tells of who passed, or neither. Answers false when another was quicker.
    async fn tell_batch(
        &self,
        lease: &Lease,
        current: &QueueAndLine,
        span: &SeqRange,
        upto_seq: u64,
        passed: &[PassedMilestone],
    ) -> Result<bool, Error> {
        let (event_id, milestone) = (current.queue.event_id, span.milestone);
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            if !milestones::tell(&transaction, event_id, milestone, span.told_seq, upto_seq).await? {
                return Ok(false);
            }
            if !passed.is_empty() {
                let event = convert::events::position_update(current, milestone, passed);
                self.stores.outbox.append(&transaction, &[event]).await?;
            }
            Ok::<_, Error>(true)
        };
        let is_told = self.stores.postgres.transaction("tell milestone", work).await?;
        if is_told && !passed.is_empty() {
            self.stores.outbox.wake_relay();
            metrics::milestone_passed(passed.len());
            tracing::info!(%event_id, milestone, count = passed.len(), "customers passed a milestone");
        }
        Ok(is_told)
    }
}

fn passed(page: &[MilestoneCandidate], milestone: u64) -> Vec<PassedMilestone> {
    let passed = page.iter().filter(|candidate| passes(candidate.start_position, milestone));
    passed.map(|candidate| candidate.passed).collect()
}
