//! Admission: turns for those at the head of the line, as many as rate, open turns and stock allow. Done by the event's
//! leader, and every transaction proves that it still is the one.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::EventId;

use super::{App, shards::LeaderShards, tell::QueueChange};
use crate::{
    convert,
    domain::{admission, entry::Entry},
    error::Error,
    metrics,
    store::{
        entries,
        queues::{self, QueueAndLine},
    },
};

/// Queues worked on at a time.
pub(crate) const EVENTS_CONCURRENCY: usize = 8;

/// Transactions for one queue in one round: what is left waits for the next.
const BATCHES_MAX: u32 = 64;

impl App {
    /// One round over all queues that this pod leads and in which somebody may be admitted.
    pub(crate) async fn admit_customers(self: &Arc<Self>, shards: &LeaderShards) -> Result<(), Error> {
        let events = queues::admitting(&self.stores.postgres, &self.defaults).await?;
        stream::iter(shards.led(events))
            .for_each_concurrent(EVENTS_CONCURRENCY, |(event_id, lease)| async move {
                // One queue that cannot go on keeps no other from doing so.
                if let Err(error) = self.admit_event(&lease, event_id).await {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to admit");
                }
            })
            .await;
        Ok(())
    }

    async fn admit_event(self: &Arc<Self>, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let mut free_units = self.inventory.availability(event_id).await?.free_units();
        let batch_max = u64::from(self.admission.batch_max);
        for _ in 0..BATCHES_MAX {
            if free_units == 0 || !lease.is_current() {
                return Ok(());
            }
            let (current, granted) = self.admit_batch(lease, event_id, free_units).await?;
            let count = u64::try_from(granted.len()).unwrap_or(u64::MAX);
            free_units = free_units.saturating_sub(count);
            let is_full = count >= batch_max;
            if let Some(last) = granted.last() {
                metrics::admitted(granted.len());
                tracing::info!(%event_id, count, last_seq = last.seq, "customers admitted");
                self.publish_in_background(QueueChange::granted(&current, granted));
                self.line_moved.notify_one();
            }
            if !is_full {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn admit_batch(
        &self,
        lease: &Lease,
        event_id: EventId,
        free_units: u64,
    ) -> Result<(QueueAndLine, Vec<Entry>), Error> {
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            let policy = current.queue.policy;
            current.line.bucket = current.line.bucket.filled(policy.admissions_per_minute, current.now);
            let batch_max = u64::from(self.admission.batch_max);
            let count = admission::count(current.queue.state, &policy, &current.line, free_units, batch_max);
            if count == 0 {
                return Ok((current, Vec::new()));
            }
            let revision = current.line.revision.saturating_add(1);
            let last_fencing = current.line.last_fencing_number;
            let granted =
                entries::admit(&transaction, event_id, count, revision, last_fencing, current.now, &policy)
                    .await?;
            let Some(last) = granted.last() else { return Ok((current, granted)) };
            current.line.admitted(u64::try_from(granted.len()).unwrap_or(0), last.seq);
            queues::save_line(&transaction, event_id, &current.line).await?;
            let checkout_url = self.tokens.checkout_url(event_id);
            let events: Vec<_> = granted
                .iter()
                .filter_map(|entry| convert::events::granted(&current.queue, entry, &checkout_url))
                .collect();
            self.stores.outbox.append(&transaction, &events).await?;
            Ok((current, granted))
        };
        self.stores.postgres.transaction("admit", work).await
    }
}
